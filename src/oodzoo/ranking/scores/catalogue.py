"""Registry of scores by name, and their computation for the models of a feature source.

Other packages add scores with an entry point of the group ``oodzoo.scores`` that names a
:class:`Score`, or a module or function whose import registers one.

Of the two ways to compute a score, the cheaper one is taken. With more samples than features it is
computed from moments, where it can be, and the features are read block by block. With fewer, the
Gram matrix of the moments would be larger than the features, which are held in memory. Scores of
all pairs of samples, or of the samples of each class, always need the features; they are held once,
in the number type of the store.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import reprlib
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from oodzoo.core.backend import Array, backend
from oodzoo.core.errors import InputError
from oodzoo.core.text import did_you_mean, one_line
from oodzoo.core.threads import LARGE_PRODUCT, blas_threads
from oodzoo.extraction.features import FeatureSource, Shard
from oodzoo.linear.moments import Moments, domain_moments
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
    tasks: Collection[Kind] = ("classification",)

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
    tasks: Collection[Kind] = ("classification",),
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


class MissingHeadError(InputError):
    """A score needs the pre-training head or the text tower of a model that has none."""


def compute_score(
    source: FeatureSource,
    score: Score,
    model: str,
    domains: Sequence[str] | None = None,
    device: str | None = None,
) -> float:
    """Compute a score of one model, on some domains or all.

    Scores of oodzoo and those from moments are computed with NumPy, or with PyTorch on a device;
    other functions get NumPy arrays.

    Raises
    ------
    MissingHeadError
        If the score needs a head that the model does not have.
    InputError
        If a score of another package fails, or its value is not a finite number.
    """
    source = source.only(source.domains if domains is None else domains)
    if source.task.kind not in score.tasks:
        raise InputError(
            f"the score {score.name!r} is not for labels of the kind {source.task.kind}"
        )
    compute = _from_moments(source, score, model, device) or _from_arrays(
        source, score, model, device
    )
    context = f"score {score.name!r} of model {model!r}"
    n = sum(len(source.labels(domain)) for domain in source.domains)
    try:
        with blas_threads(n * source.facts(model).feature_dim, LARGE_PRODUCT):
            value = compute()
    except Exception as error:
        if is_own(score):
            raise
        reason = type(error).__name__
        if (text := one_line(error)) != reason:
            reason = f"{reason}: {text}"
        raise InputError(f"{context} failed: {reason}") from error
    return _finite_number(value, context)


def compute_scores(
    source: FeatureSource,
    score: str | Score,
    domains: Sequence[str],
    device: str | None = None,
    *,
    models: Sequence[str] | None = None,
) -> tuple[dict[str, float], dict[str, str]]:
    """Compute a score of all or some models on some domains, and why models were skipped."""
    if isinstance(score, str):
        score = get(score)
    totals: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for model in source.models if models is None else models:
        try:
            totals[model] = compute_score(source, score, model, domains, device)
        except MissingHeadError as error:
            left_out[model] = str(error)
    return totals, left_out


def is_own(score: Score) -> bool:
    """Whether a score is part of oodzoo."""
    module = getattr(score.function, "__module__", None)  # None for code entered interactively
    return isinstance(module, str) and module.startswith("oodzoo.")


def _from_moments(
    source: FeatureSource, score: Score, model: str, device: str | None
) -> Callable[[], Any] | None:
    """The score as a function of moments, if it has one and it is the cheaper way."""
    n = sum(len(source.labels(domain)) for domain in source.domains)
    if score.from_moments is None or n <= source.facts(model).feature_dim:
        return None
    if source.task.one_class and len(source.classes) < 2:
        return None  # an error, with its message, in every function
    moments = {
        domain: found.to(device) for domain, found in domain_moments(source, model, device).items()
    }
    return partial(score.from_moments, moments, partial(source.shards, model))


def _from_arrays(
    source: FeatureSource, score: Score, model: str, device: str | None
) -> Callable[[], Any]:
    labels = [source.labels(domain) for domain in source.domains]
    if score.needs in ("features", "class_embeddings"):
        texts = _class_embeddings(source, score, model)
        arguments = [_features(source, model, device if is_own(score) else None), *texts]
    else:
        arguments = [_outputs(source, score, model)]
    arguments.append(np.concatenate(labels))
    if score.uses_domains:
        arguments.append(np.repeat(list(source.domains), [len(part) for part in labels]))
    return partial(score.function, *arguments)


def _features(source: FeatureSource, model: str, device: str | None) -> Array:
    """Features of all domains, in their number type; filled block by block, to hold them once."""
    be = backend(device)
    n = sum(len(source.labels(domain)) for domain in source.domains)
    values, start = None, 0
    for features, _ in (shard for d in source.domains for shard in source.shards(model, d)):
        block = be.asarray(features)
        if values is None:
            values = be.xp.empty((n, block.shape[1]), dtype=block.dtype, device=be.device)
        values[start : start + block.shape[0], :] = block
        start += block.shape[0]
    return values


def _class_embeddings(source: FeatureSource, score: Score, model: str) -> list[NDArray[np.float32]]:
    """The embeddings of the classes, if a score needs them."""
    if score.needs != "class_embeddings":
        return []
    found = source.class_embeddings(model)
    if found is None:
        raise MissingHeadError(
            f"{score.name} needs embeddings of the classes by a text tower, and the store has none "
            "of this model; rerun oodzoo extract if it is a CLIP-like model"
        )
    return [found.embeddings]


def _outputs(source: FeatureSource, score: Score, model: str) -> NDArray[Any]:
    found = [source.logits(model, domain) for domain in source.domains]
    known = [part for part in found if part is not None]
    if len(known) < len(found):
        raise MissingHeadError(f"{score.name} needs a classifier head, and the model has none")
    logits = np.concatenate(known)
    outputs: NDArray[Any] = logits.argmax(axis=1)
    if score.needs == "probabilities":
        outputs = softmax(logits.astype(np.float64), axis=1)
    return outputs


def _finite_number(value: Any, context: str) -> float:
    """Convert the value of a score, which may be an array without dimensions, to a float."""
    shape = getattr(value, "shape", ())
    number = value.item() if shape == () and hasattr(value, "item") else value
    if isinstance(number, numbers.Real) and np.isfinite(float(number)):
        return float(number)
    got = f"an array of shape {tuple(shape)}" if shape != () else reprlib.repr(number)
    raise InputError(f"{context} must be a finite number, got {' '.join(got.split())}")
