"""Test beds: agreement of scores with the accuracy of models on held-out domains."""

from oodzoo.ranking.testbed.agreement import Agreement
from oodzoo.ranking.testbed.bed import Column, ScoreResult, TestBed, judge
from oodzoo.ranking.testbed.comparison import Comparison, Means, compare, load, save
from oodzoo.ranking.testbed.runner import paper, run

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
