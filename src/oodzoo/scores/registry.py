"""Registry of scores by name.

Other packages add scores with an entry point of the group ``oodzoo.scores`` that names a
:class:`Score`, or a module or function whose import registers one.
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
"""Entry-point group of score plugins."""

RESERVED = (
    *("zood", "discriminability", "stability", "accuracy"),
    *("parameters", "feature_dim", "source_accuracy"),
)
"""Reserved names: scores and columns of rankings and test beds."""


@dataclass(frozen=True)
class Score:
    """A score of how well a pre-trained model suits labelled data; higher is better.

    Attributes
    ----------
    name : str
        Name to select it by: letters, digits and underscores.
    function : callable
        Called with NumPy arrays as `function(values, y)` or `function(values, y, domains)`.
    needs : {"features", "probabilities", "source_labels"}
        The first argument: features (n, d); or the outputs of the pre-training head, as
        probabilities (n, source classes) or most probable source classes (n,).
    uses_domains : bool
        Whether the third argument is the domain of each sample.
    reference : str
        Authors, title, venue, year.
    title : str
        Full name.
    """

    name: str
    function: Callable[..., float]
    needs: Needs = "features"
    uses_domains: bool = False
    reference: str = ""
    title: str = ""


_SCORES: dict[str, Score] = {}
_plugins_pending = True


def register(score: Score) -> Score:
    """Register a score; its name must not be in use."""
    if not score.name.isidentifier():
        raise ValueError(
            f"the name of a score must be letters, digits and underscores, got {score.name!r}"
        )
    if score.name in RESERVED:
        raise ValueError(f"the name {score.name!r} is reserved; choose another")
    if score.name in _SCORES:
        raise ValueError(f"a score named {score.name!r} is already registered")
    if score.needs not in (known := get_args(Needs)):
        raise ValueError(
            f"score {score.name!r}: unknown needs {score.needs!r}; expected one of "
            f"{', '.join(known)}"
        )
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
    """Register the decorated function as a score; the function itself is returned unchanged.

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
    """Remove a score, so that its name can be reused, for example in a notebook."""
    get(name)
    del _SCORES[name]


def get(name: str) -> Score:
    """Return the score of this name.

    Examples
    --------
    >>> get("leep").needs
    'probabilities'
    """
    _load_plugins()
    if name not in _SCORES:
        hint = did_you_mean(str(name), _SCORES) or f"expected one of {', '.join(names())}"
        raise InputError(f"unknown score {name!r}; {hint}")
    return _SCORES[name]


def names() -> tuple[str, ...]:
    """Return the names of all scores, sorted."""
    _load_plugins()
    return tuple(sorted(_SCORES))


def _load_plugins() -> None:
    """Load the scores of other packages, once, on first use."""
    global _plugins_pending
    if not _plugins_pending:
        return
    _plugins_pending = False  # set first: plugins may look up scores themselves
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            _load(point)
        except Exception as error:  # a broken plugin must not break oodzoo
            origin = f" of the package {point.dist.name!r}" if point.dist else ""
            warnings.warn(
                f"the score plugin {point.name!r}{origin} failed and is skipped: "
                f"{type(error).__name__}: {error}",
                stacklevel=4,
            )


def _load(point: EntryPoint) -> None:
    before = set(_SCORES)
    loaded = point.load()
    if isinstance(loaded, Score) and _SCORES.get(loaded.name) is not loaded:
        register(loaded)
    known = isinstance(loaded, Score) or any(s.function is loaded for s in _SCORES.values())
    if set(_SCORES) == before and not known:
        raise ValueError(f"{point.value!r} is not a Score, and importing it registers none")
