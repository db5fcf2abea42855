"""How good scores are: their order of the networks against the accuracy that these reach."""

from zood.testbed.bed import Column, Judged, TestBed, judge
from zood.testbed.comparing import Comparison, Means, compare
from zood.testbed.published import paper
from zood.testbed.results import document, from_document, load, save
from zood.testbed.running import run

__all__ = [
    "Column",
    "Comparison",
    "Judged",
    "Means",
    "TestBed",
    "compare",
    "document",
    "from_document",
    "judge",
    "load",
    "paper",
    "run",
    "save",
]
