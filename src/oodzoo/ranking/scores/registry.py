"""Registry of scores by name.

Other packages add scores with an entry point of the group ``oodzoo.ranking.scores`` that names a
:class:`Score`, or a module or function whose import registers one.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeVar, get_args

from oodzoo.core.errors import InputError
from oodzoo.core.text import did_you_mean
from oodzoo.extraction.source import Shard
from oodzoo.linear.moments import Moments
from oodzoo.tasks import KINDS, Kind

Needs = Literal["features", "probabilities", "source_labels", "class_embeddings"]
Function = TypeVar("Function", bound=Callable[..., float])
FromMoments = Callable[[Mapping[str, Moments], Callable[[str], Iterable[Shard]]], float]

GROUP = "oodzoo.scores"
"""Entry-point group of score plugins."""

RESERVED = (
    *("unseen", "transfer", "zood", "zood_paper", "discriminability", "stability"),
    *("accuracy", "balanced_accuracy", "parameters", "feature_dim", "source_accuracy"),
    *("explained_variance", "absolute_error", "average_precision", "exact_match"),
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
        Called with NumPy arrays as `function(values, y)` or `function(values, y, domains)`; labels
        are integers from 0, or a matrix (n, C) for other tasks than classification.
    needs : {"features", "probabilities", "source_labels", "class_embeddings"}
        The first argument: features (n, d); or the outputs of the pre-training head, as
        probabilities (n, source classes) or most probable source classes (n,). With
        "class_embeddings", the features are followed by the embeddings (classes, d) of the classes
        by a text tower: `function(X, embeddings, y)`.
    uses_domains : bool
        Whether the third argument is the domain of each sample.
    reference : str
        Authors, title, venue, year.
    title : str
        Full name.
    from_moments : callable, optional
        The same score of features that are not held in memory, called as
        `from_moments(moments, shards)` in place of `function` if there are more samples than
        features. `moments` are :class:`oodzoo.linear.moments.Moments` by domain, on the device of
        the ranking; every class has a sample. `shards(domain)` yields the features and labels of a
        domain once more, block by block, for a score that moments do not determine.
    tasks : tuple of str
        The kinds of labels it can be computed for.
    """

    name: str
    function: Callable[..., float]
    needs: Needs = "features"
    uses_domains: bool = False
    reference: str = ""
    title: str = ""
    from_moments: FromMoments | None = None
    tasks: tuple[Kind, ...] = ("classification",)

    @classmethod
    def of_function(cls, function: Callable[..., float]) -> Score:
        """Make a score of a function, named after it, without registering it.

        The function takes features and labels, `(X, y)`; and domains, `(X, y, domains)`, if its
        third parameter is called `domains` or has no default. The function of a registered score
        gives that score.

        Raises
        ------
        InputError
            If it is not a function, takes other arguments, or has the name of another score.

        Examples
        --------
        >>> def spread(X, y):
        ...     return float(X.std())
        >>> Score.of_function(spread).name
        'spread'
        """
        if not callable(function):
            raise InputError(f"score must be a name or a function (X, y), got {function!r}")
        _load_plugins()
        for known in _SCORES.values():
            if known.function is function:
                return known
        name = _name_of(function)
        if name in (*RESERVED, *_SCORES):
            raise InputError(f"there is a score called {name!r} already; rename the function")
        return cls(name, function, uses_domains=_takes_domains(function, name), tasks=KINDS)


_SCORES: dict[str, Score] = {}
_plugins_pending = True


def register(score: Score) -> Score:
    """Register a score; its name must not be in use.

    A function of a notebook or script (`__main__`) replaces an earlier one of the same name, so
    that its cell can be run again.
    """
    if not score.name.isidentifier():
        raise ValueError(
            f"the name of a score must be letters, digits and underscores, got {score.name!r}"
        )
    if score.name in RESERVED:
        raise ValueError(f"the name {score.name!r} is reserved; choose another")
    if score.name in _SCORES and not _redefined(_SCORES[score.name].function, score.function):
        raise ValueError(f"a score named {score.name!r} is already registered")
    if score.needs not in (known := get_args(Needs)):
        raise ValueError(
            f"score {score.name!r}: unknown needs {score.needs!r}; expected one of "
            f"{', '.join(known)}"
        )
    if score.from_moments is not None and score.needs != "features":
        raise ValueError(f"score {score.name!r}: moments are of features, not {score.needs}")
    _SCORES[score.name] = score
    return score


def _redefined(old: Callable[..., float], new: Callable[..., float]) -> bool:
    module, name = (getattr(new, each, "") for each in ("__module__", "__qualname__"))
    same = (getattr(old, "__module__", ""), getattr(old, "__qualname__", "")) == (module, name)
    return same and module == "__main__"


def score(
    name: str,
    *,
    needs: Needs = "features",
    uses_domains: bool = False,
    reference: str = "",
    title: str = "",
    from_moments: FromMoments | None = None,
    tasks: tuple[Kind, ...] = ("classification",),
) -> Callable[[Function], Function]:
    """Register the decorated function as a score; the function itself is returned unchanged.

    Parameters are those of :class:`Score`.

    Examples
    --------
    >>> from oodzoo.ranking import scores
    >>> @scores.score("spread", title="Standard deviation of the features")
    ... def spread(X, y):
    ...     return float(X.std())
    >>> scores.get("spread").title
    'Standard deviation of the features'
    >>> scores.unregister("spread")
    """

    def decorate(function: Function) -> Function:
        register(Score(name, function, needs, uses_domains, reference, title, from_moments, tasks))
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


def _name_of(function: Callable[..., float]) -> str:
    """Name of a function, without the brackets of "<lambda>"; of an object, that of its class."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__)).strip("<>")


def _takes_domains(function: Callable[..., float], name: str) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function that is not written in Python
        return False
    takes_two, takes_three = (_accepts(signature, n) for n in (2, 3))
    if not (takes_two or takes_three):
        raise InputError(
            f"the score function {name!r} must take (X, y) or (X, y, domains), got {signature}"
        )
    third = list(signature.parameters)[2:3]
    return takes_three and (not takes_two or third == ["domains"])


def _accepts(signature: inspect.Signature, n_arguments: int) -> bool:
    arguments: list[Any] = [None] * n_arguments
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


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
