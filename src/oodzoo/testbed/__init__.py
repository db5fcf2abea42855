"""How good scores are: their order of the models against the accuracy that these reach."""

from oodzoo.testbed.bed import Column, Judged, TestBed, judge
from oodzoo.testbed.comparing import Comparison, Means, compare
from oodzoo.testbed.published import paper
from oodzoo.testbed.results import load, save
from oodzoo.testbed.running import run

__all__ = [
    "Column",
    "Comparison",
    "Judged",
    "Means",
    "TestBed",
    "compare",
    "judge",
    "load",
    "paper",
    "run",
    "save",
]
