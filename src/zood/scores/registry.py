"""The scores by name: a score is a function and one registration."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from zood.errors import InputError

Needs = Literal["features", "probabilities", "source_labels"]


@dataclass(frozen=True)
class Score:
    """A function that says how well a pre-trained network suits labelled data; higher is better.

    Attributes
    ----------
    name : str
        What a person types.
    function : callable
        `function(what it needs, y)`, or `function(what it needs, y, domains)`.
    needs : {"features", "probabilities", "source_labels"}
        The first argument: features (n, d); or, from the head that the network was pre-trained
        with, the probabilities (n, source classes) or the most probable source class (n,).
    uses_domains : bool
        Whether the third argument is the domain of each sample.
    reference : str
        Authors, title, venue, year.
    title : str
        The name in full.
    """

    name: str
    function: Callable[..., float]
    needs: Needs
    uses_domains: bool
    reference: str
    title: str


_SCORES: dict[str, Score] = {}


def register(score: Score) -> Score:
    """Make a score known by its name; a name is given once."""
    if score.name in _SCORES:
        raise ValueError(f"a score named {score.name!r} is registered already")
    _SCORES[score.name] = score
    return score


def get(name: str) -> Score:
    """The score of that name.

    Examples
    --------
    >>> get("leep").needs
    'probabilities'
    """
    if name not in _SCORES:
        near = difflib.get_close_matches(str(name), _SCORES, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(names())}"
        raise InputError(f"unknown score {name!r}; {hint}")
    return _SCORES[name]


def names() -> tuple[str, ...]:
    """The names of all scores, sorted."""
    return tuple(sorted(_SCORES))
