"""Test beds: rank correlation of scores with the accuracy of models on test domains."""

from oodzoo.testbed.bed import Column, ScoreResult, TestBed, judge
from oodzoo.testbed.comparison import Comparison, Means, compare
from oodzoo.testbed.published import paper
from oodzoo.testbed.results import load, save
from oodzoo.testbed.runner import run

__all__ = [
    "Column",
    "Comparison",
    "Means",
    "ScoreResult",
    "TestBed",
    "compare",
    "judge",
    "load",
    "paper",
    "run",
    "save",
]
