"""Test beds: agreement of scores with the accuracy of models on test domains."""

from oodzoo.testbed.agreement import Agreement
from oodzoo.testbed.bed import Column, ScoreResult, TestBed, judge
from oodzoo.testbed.comparison import Comparison, Means, compare
from oodzoo.testbed.results import load, save
from oodzoo.testbed.runner import paper, run

__all__ = [
    "Agreement",
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
