"""The scores by name: a score is a function and one registration.

A package adds scores to an installed oodzoo by an entry point of the group ``oodzoo.scores`` that names
a :class:`Score`, or a module or function whose import registers one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Literal, TypeVar, get_args

from oodzoo._text import did_you_mean
from oodzoo.errors import InputError

Needs = Literal["features", "probabilities", "source_labels"]
Function = TypeVar("Function", bound=Callable[..., float])

GROUP = "oodzoo.scores"
"""Entry points of this group add scores."""

RESERVED = (
    *("zood", "discriminability", "stability", "accuracy"),
    *("parameters", "feature_dim", "source_accuracy"),
)
"""What a ranking and a test bed know of themselves, and no peer may be called."""


@dataclass(frozen=True)
class Score:
    """A function that says how well a pre-trained model suits labelled data; higher is better.

    Attributes
    ----------
    name : str
        What a person types: letters, digits and underscores.
    function : callable
        `function(what it needs, y)`, or `function(what it needs, y, domains)`; arrays of NumPy.
    needs : {"features", "probabilities", "source_labels"}
        The first argument: features (n, d); or, from the head that the model was pre-trained
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
    needs: Needs = "features"
    uses_domains: bool = False
    reference: str = ""
    title: str = ""


_SCORES: dict[str, Score] = {}
_plugins_wanted = True


def register(score: Score) -> Score:
    """Make a score known by its name; a name is given once."""
    if not score.name.isidentifier():
        raise ValueError(
            f"a score is named by letters, digits and underscores, and not {score.name!r}"
        )
    if score.name in RESERVED:
        raise ValueError(f"the name {score.name!r} has a meaning already; choose another")
    if score.name in _SCORES:
        raise ValueError(f"a score named {score.name!r} is registered already")
    if score.needs not in get_args(Needs):
        known = ", ".join(get_args(Needs))
        raise ValueError(f"score {score.name!r} needs {score.needs!r}; known are {known}")
    _SCORES[score.name] = score
    return score


def score(
    name: str,
    *,
    needs: Needs = "features",
    uses_domains: bool = False,
    reference: str = "",
    title: str = "",
) -> Callable[[Function], Function]:
    """Register the function below under a name; the function itself stays as it is.

    Parameters are those of :class:`Score`.

    Examples
    --------
    >>> from oodzoo import scores
    >>> @scores.score("spread", title="Standard deviation of the features")
    ... def spread(X, y):
    ...     return float(X.std())
    >>> scores.get("spread").title
    'Standard deviation of the features'
    >>> scores.unregister("spread")
    """

    def decorate(function: Function) -> Function:
        register(Score(name, function, needs, uses_domains, reference, title))
        return function

    return decorate


def unregister(name: str) -> None:
    """Forget a score, so that its name can be given again, as when a notebook cell runs twice."""
    get(name)
    del _SCORES[name]


def get(name: str) -> Score:
    """The score of that name.

    Examples
    --------
    >>> get("leep").needs
    'probabilities'
    """
    _load_plugins()
    if name not in _SCORES:
        hint = did_you_mean(str(name), _SCORES) or f"known are {', '.join(names())}"
        raise InputError(f"unknown score {name!r}; {hint}")
    return _SCORES[name]


def names() -> tuple[str, ...]:
    """The names of all scores, sorted."""
    _load_plugins()
    return tuple(sorted(_SCORES))


def _load_plugins() -> None:
    """Import what other packages add, once, when scores are first asked for."""
    global _plugins_wanted
    if not _plugins_wanted:
        return
    _plugins_wanted = False  # first, as what is imported may ask for scores itself
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            _load(point)
        except Exception as error:  # a package of somebody else's: its fault stops nobody
            origin = f" of the package {point.dist.name!r}" if point.dist else ""
            warnings.warn(
                f"the score plugin {point.name!r}{origin} is left out: "
                f"{type(error).__name__}: {error}",
                stacklevel=4,
            )


def _load(point: EntryPoint) -> None:
    before = set(_SCORES)
    loaded = point.load()
    if isinstance(loaded, Score) and _SCORES.get(loaded.name) is not loaded:
        register(loaded)
    if set(_SCORES) == before and not isinstance(loaded, Score):
        known = any(score.function is loaded for score in _SCORES.values())
        if not known:
            raise ValueError(f"{point.value!r} is no Score, and importing it registers none")
