"""Unlabelled images of the target domain, which models can be ranked for."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from array_api_compat import is_torch_array

from oodzoo.core.backend import Array, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count, did_you_mean, typed
from oodzoo.data.listing import inspect
from oodzoo.data.sources.folder import UnlabelledImages
from oodzoo.extraction.features import FeatureSource, StoreSource
from oodzoo.store.feature_store import BLOCK_ROWS, FeatureStore

SCORE = "unseen"
"""The score that uses target images."""

FEWEST_IMAGES = 20
"""Fewest images to rank by without a warning."""


@dataclass(frozen=True)
class Target:
    """Features of the images of the target domain.

    Attributes
    ----------
    name : str
    n : int
        Number of images.
    blocks : callable
        `blocks(model)` yields the features of a model, arrays (k, d); the order of the images is
        the same for all models.
    digest : callable
        `digest(model)` identifies the features of a model, for the key of a cache.
    """

    name: str
    n: int
    blocks: Callable[[str], Iterator[Array]]
    digest: Callable[[str], str]


TargetImages = str | Mapping[str, Array] | Target
"""What :func:`as_target` takes."""


def as_target(source: FeatureSource, target: TargetImages) -> Target:
    """Check the target images, and give access to their features.

    That the target has the classes of the training domains is assumed; it cannot be checked.

    Parameters
    ----------
    source : FeatureSource
        The training domains.
    target : str, mapping or Target
        The name of an unlabelled domain of the store; or features (n, d) of each model of the
        source by name, whose rows are the same images in the same order. A Target is returned
        unchanged.

    Raises
    ------
    InputError
        If the store has no such unlabelled domain, features of a model are missing or do not match
        those of the source, there is no image, or all of them are in the training domains.

    Warns
    -----
    UserWarning
        If there are fewer than 20 images, or some are also in the training domains: identical
        files in a store, identical features of all models in arrays.
    """
    if isinstance(target, Target):
        return target
    if isinstance(target, Mapping):
        arrays = _checked_arrays(source, target)
        made = _array_target(arrays)
        _warn_of_few(made)
        _warn_of_seen(made.name, _seen_rows(source, made))
        return made
    if not isinstance(target, str):
        raise InputError(
            "target must be the name of an unlabelled domain or a dict {model: array (n, d)}, got "
            f"{type(target).__name__}"
        )
    if not isinstance(source, StoreSource):
        raise InputError(
            f"target {target!r}: only a feature store has domains without labels; give the "
            "features of the target as a dict {model: array (n, d)}"
        )
    made = _stored_target(source, target)
    _warn_of_few(made)
    training = {domain: source.store.images(domain) for domain in source.domains}
    _warn_of_seen(made.name, seen_images(source.store.images(target), training))
    return made


def require_target_score(score: str) -> None:
    """Reject a score that does not use target images; called before they are extracted."""
    if score != SCORE:
        raise InputError(f"images of the target are for the score {SCORE!r} only, got {score!r}")


# --- a domain of a store -------------------------------------------------------------------------


def _stored_target(source: StoreSource, name: str) -> Target:
    store = source.store
    _require_unlabelled(store, name)
    n = len(store.images(name))
    if not n:
        raise InputError(f"the target {name!r} has no readable image; add images to its folder")
    lacking = [model for model in source.models if not store.has_features(model, name)]
    if lacking:
        raise InputError(
            f"the store {store.location!r} has no features of the target {name!r} with "
            f"{_names(lacking)}; extract them with `{extraction_command(store, name)}`"
        )

    def digest(model: str) -> str:
        content = [store.samples_digest(name), *store.checksums(model, name)]
        return hashlib.sha256("\n".join(content).encode()).hexdigest()

    return Target(name, n, lambda model: store.blocks(model, name), digest)


def _require_unlabelled(store: FeatureStore, name: str) -> None:
    if name in store.unlabelled:
        return
    add = f"add one with `{extraction_command(store, 'NAME')}`"
    if name in store.domains:
        raise InputError(
            f"{name!r} is a labelled domain of the store {store.location!r}; the target must be a "
            f"domain without labels: {add}"
        )
    known = f"it has {_names(store.unlabelled)}" if store.unlabelled else f"it has none; {add}"
    hint = did_you_mean(name, store.unlabelled)
    raise InputError(
        f"the store {store.location!r} has no unlabelled domain {name!r}; {known}"
        + (f"; {hint}" if hint else "")
    )


def extraction_command(store: FeatureStore, name: str) -> str:
    """Return the command that adds an unlabelled domain to a store."""
    path, unlabelled = typed(store.location), typed(f"{name}=FOLDER")
    return f"oodzoo extract DATA --zoo ZOO --store {path} --unlabelled {unlabelled}"


def require_usable(images: UnlabelledImages, training: Mapping[str, Iterable[Hashable]]) -> None:
    """Reject images of a target that cannot be used, before anything is extracted.

    Images that are in no training domain are decoded until one can be.

    Raises
    ------
    InputError
        If no image can be decoded, or all that can be are in training domains.
    """
    domain_of = seen_images(images.digests, training)
    problems = dict(images.unreadable)
    for (path, file), domain in zip(images.files.items(), domain_of, strict=True):
        if domain is None and path not in problems:
            problem = inspect({path: file})[path].problem
            if problem is None:
                return
            problems[path] = problem
    if len(problems) == len(images):
        path, reason = next(iter(problems.items()))
        raise InputError(
            f"none of the images in {str(images.location)!r} can be read; first error: {path!r}: "
            f"{reason}"
        )
    require_unseen(images.name, [domain for domain in domain_of if domain is not None])


def seen_images(
    images: Iterable[Hashable], training: Mapping[str, Iterable[Hashable]]
) -> list[str | None]:
    """Return a training domain of each image, None for an image that is in none of them."""
    domain_of = {image: domain for domain, known in training.items() for image in known}
    return [domain_of.get(image) for image in images]


# --- arrays --------------------------------------------------------------------------------------


def _checked_arrays(source: FeatureSource, target: Mapping[str, Any]) -> dict[str, Array]:
    """Return the features of the target in the order of the models of the source."""
    if missing := [model for model in source.models if model not in target]:
        raise InputError(f"the target has no features of {_names(missing)}")
    if unknown := [str(model) for model in target if model not in source.models]:
        raise InputError(
            f"the target has features of {_names(unknown)}; the models are {_names(source.models)}"
        )
    arrays = {model: _matrix(target[model], model) for model in source.models}
    first = source.models[0]
    for model, array in arrays.items():
        d = source.facts(model).feature_dim
        if array.shape[1] != d:
            raise InputError(
                f"the target has {array.shape[1]} features of {model!r}, the training domains {d}"
            )
        if len(array) != len(arrays[first]):
            raise InputError(
                f"the target has {count(len(arrays[first]), 'row')} of {first!r} and "
                f"{len(array):,} of {model!r}; the rows must be the same images in the same order"
            )
    if not len(arrays[first]):
        raise InputError("the target has no image: its arrays have no row")
    return arrays


def _matrix(values: Any, model: str) -> Array:
    what = f"the target features of {model!r}"
    try:
        array = values if is_torch_array(values) else np.asarray(values)
    except ValueError as error:
        raise InputError(f"{what} are not an array: {error}") from error
    if array.ndim != 2:
        raise InputError(f"{what} must be (n, d), got {tuple(array.shape)}")
    start = 0
    for block in _blocks(array):
        numbers = to_numpy(block)
        if numbers.dtype.kind not in "fiu":
            raise InputError(f"{what} must be numbers, got {numbers.dtype}")
        if not np.isfinite(numbers).all():
            row = start + int(np.flatnonzero(~np.isfinite(numbers).all(axis=1))[0])
            raise InputError(f"{what} contain NaN or infinity, first in row {row}")
        start += len(numbers)
    return array


def _blocks(array: Array) -> Iterator[Array]:
    for start in range(0, len(array), BLOCK_ROWS):
        yield array[start : start + BLOCK_ROWS]


def _array_target(arrays: Mapping[str, Array]) -> Target:
    def digest(model: str) -> str:
        array = arrays[model]
        total = hashlib.sha256(f"{array.dtype} {tuple(array.shape)}".encode())
        for block in _blocks(array):
            total.update(np.ascontiguousarray(to_numpy(block)).tobytes())
        return total.hexdigest()

    n = len(next(iter(arrays.values())))
    return Target("target", n, lambda model: _blocks(arrays[model]), digest)


def _seen_rows(source: FeatureSource, target: Target) -> list[str | None]:
    """Return the training domain of each row of the target that is also a row there.

    Two rows are the same if the features of all models are equal. A row that the training domains
    have twice shows nothing: features of few different values repeat by chance.
    """
    keys = [0] * target.n
    training = {domain: [0] * len(source.labels(domain)) for domain in source.domains}
    for model in source.models:
        keys = _chained(keys, target.blocks(model))
        for domain, known in training.items():
            features = (block for block, _ in source.shards(model, domain))
            training[domain] = _chained(known, features)
        times = Counter(key for known in training.values() for key in known)
        if times.keys().isdisjoint(keys):
            return [None] * target.n
    once = {domain: [k for k in known if times[k] == 1] for domain, known in training.items()}
    return seen_images(keys, once)


def _chained(keys: Sequence[int], blocks: Iterable[Array]) -> list[int]:
    """Hash each row together with its earlier key."""
    found: list[int] = []
    for block in blocks:
        rows = to_numpy(block).astype(np.float32) + np.float32(0)  # -0 is 0
        for row in rows:
            found.append(xxhash.xxh3_64_intdigest(row.tobytes(), keys[len(found)]))
    return found


# --- warnings ------------------------------------------------------------------------------------


def _warn_of_few(target: Target) -> None:
    if target.n < FEWEST_IMAGES:
        warnings.warn(
            f"the target {target.name!r} has {count(target.n, 'image')}, too few to rank models "
            f"by; give {FEWEST_IMAGES} or more",
            stacklevel=4,
        )


def _warn_of_seen(name: str, domain_of: Sequence[str | None]) -> None:
    require_unseen(name, domain_of)
    by_domain = Counter(domain for domain in domain_of if domain is not None)
    if by_domain:
        warnings.warn(
            f"{by_domain.total():,} of the {count(len(domain_of), 'image')} of the target {name!r} "
            f"are also in the training domains ({_numbers(by_domain)}), so their labels are known; "
            "remove them from the target if that is not intended",
            stacklevel=4,
        )


def require_unseen(name: str, domain_of: Sequence[str | None]) -> None:
    """Reject a target whose images are all in training domains, see :func:`seen_images`."""
    by_domain = Counter(domain for domain in domain_of if domain is not None)
    if by_domain.total() == len(domain_of):
        raise InputError(
            f"all images of the target {name!r} are also in the training domains "
            f"({_numbers(by_domain)}); give images of another domain"
        )


def _numbers(by_domain: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} in {domain!r}" for domain, n in by_domain.items())


def _names(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
