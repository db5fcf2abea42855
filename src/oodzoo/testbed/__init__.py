"""How good scores are: their order of the models against the accuracy that these reach."""

from oodzoo.testbed.bed import Column, Judged, TestBed, judge
from oodzoo.testbed.comparing import Comparison, Means, compare
from oodzoo.testbed.published import paper
from oodzoo.testbed.results import from_dict, load, save, to_dict
from oodzoo.testbed.running import run

__all__ = [
    "Column",
    "Comparison",
    "Judged",
    "Means",
    "TestBed",
    "compare",
    "from_dict",
    "judge",
    "load",
    "paper",
    "run",
    "save",
    "to_dict",
]
