"""Validation of the inputs of scores, and stratified random samples and folds of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oodzoo.core.backend import Array, Backend, backend_of, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.linear.heads.samples import Groups, group_numbers, grouped_folds
from oodzoo.linear.moments import label_matrix, require_size
from oodzoo.tasks import as_labels
from oodzoo.tasks.arrays import require_variation

Codes = npt.NDArray[np.int64]
"""Labels as class indices."""

_SUM_TOLERANCE = 1e-3  # accuracy of a softmax in half precision


class Labelled(NamedTuple):
    """Validated values with the class of each row."""

    backend: Backend
    values: Array
    y: Codes
    n_classes: int


def labelled_features(X: Any, y: Any) -> Labelled:
    """Validate features X (n, d) and labels y of at least two classes.

    X is converted to float64 on its own device. The result may share its memory, so do not modify
    it.
    """
    backend, values, codes, n_classes = labelled_samples(X, y)
    return Labelled(backend, backend.float64(values), codes, n_classes)


class Targeted(NamedTuple):
    """Validated features, and labels as a matrix Y (n, C)."""

    backend: Backend
    values: Array
    Y: Array


def targeted_features(X: Any, y: Any, task: str | None = None) -> Targeted:
    """Validate features X (n, d), and labels of any kind that vary.

    A matrix y (n, C) is Y as it is. Otherwise y is as in :func:`oodzoo.tasks.as_labels`; classes
    become one-hot labels.
    """
    backend, values = _features(X)
    if getattr(y, "ndim", 1) == 2 and to_numpy(y).dtype.kind in "biuf" and task is None:
        kind = "multilabel" if np.isin(to_numpy(y), (0, 1)).all() else "regression"
        labels = as_labels(y, kind)
    else:
        labels = as_labels(y, task)
    if len(labels.values) != values.shape[0]:
        raise InputError(
            f"y has {count(len(labels.values), 'label')} for {values.shape[0]} samples; pass one "
            "per sample"
        )
    require_variation(labels)
    codes = backend.asarray(labels.values)
    return Targeted(backend, backend.float64(values), label_matrix(codes, len(labels.classes)))


def labelled_samples(X: Any, y: Any) -> Labelled:
    """Validate as :func:`labelled_features`, but leave the features in their own number type."""
    backend, values = _features(X)
    return _labelled(backend, values, y)


def _features(X: Any) -> tuple[Backend, Array]:
    backend, values = _matrix(X, "X", "n samples, d features")
    largest = max(
        float(backend.xp.max(backend.xp.abs(block))) for _, block in float64_blocks(backend, values)
    )
    require_size(largest, "X")
    return backend, values


def float64_blocks(
    backend: Backend, values: Array, rows: npt.NDArray[np.intp] | None = None
) -> Iterator[tuple[int, Array]]:
    """Split all or some rows into float64 blocks, each with the number of its first row."""
    size = max(1, backend.block_bytes // (8 * values.shape[1]))
    for start in range(0, values.shape[0] if rows is None else len(rows), size):
        part = slice(start, start + size)
        taken = values[part, :] if rows is None else values[backend.asarray(rows[part]), :]
        yield start, backend.float64(taken)


def labelled_probabilities(probabilities: Any, y: Any) -> Labelled:
    """Validate and normalise probabilities (n, S), and labels y of at least two classes."""
    backend, values = _matrix(probabilities, "source_probabilities", "n samples, source classes")
    xp = backend.xp
    values = backend.float64(values)
    if (least := float(xp.min(values))) < 0:
        raise InputError(
            f"source_probabilities contains the negative value {least:g}; "
            "pass probabilities (the softmax of the logits), not logits"
        )
    sums = xp.sum(values, axis=1, keepdims=True)
    if (off := float(xp.max(xp.abs(sums - 1)))) > _SUM_TOLERANCE:
        raise InputError(
            f"the sum of a row of source_probabilities differs from one by {off:.3g}; "
            "pass probabilities (the softmax of the logits) of all source classes"
        )
    return _labelled(backend, values / sums, y)


def as_classes(
    labels: Any, name: str, n: int | None = None, at_least: int = 1
) -> tuple[Codes, int]:
    """Convert labels, strings or integers, to class indices in sorted order of the labels."""
    try:
        array = to_numpy(labels)
    except ValueError as error:
        raise InputError(f"{name} is not a list of labels: {error}") from error
    if array.ndim != 1:
        raise InputError(f"{name} must have shape (n,), one label per sample, got {array.shape}")
    if n is not None and len(array) != n:
        raise InputError(
            f"{name} has {count(len(array), 'label')} for {n} samples; pass one per sample"
        )
    if len(array) < 2:
        raise InputError(
            f"{name} has {count(len(array), 'label')}; at least two samples are needed"
        )
    classes, codes = np.unique(_discrete(array, name), return_inverse=True)
    if len(classes) < at_least:
        raise InputError(
            f"{name} has only the value {classes.tolist()[0]!r}; at least two are needed"
        )
    return codes.astype(np.int64), len(classes)


def positive(value: float, name: str) -> float:
    """Require a finite number above zero."""
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a number above 0, got {value!r}")
    return value


def _labelled(backend: Backend, values: Array, y: Any) -> Labelled:
    codes, n_classes = as_classes(y, "y", n=values.shape[0], at_least=2)
    return Labelled(backend, values, codes, n_classes)


def _matrix(values: Any, name: str, meaning: str) -> tuple[Backend, Array]:
    backend = backend_of(values)
    xp = backend.xp
    try:
        values = backend.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} is not a matrix ({meaning}): {error}") from error
    if not backend.is_numpy:
        values = values.detach()  # scores have no gradient
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(f"{name} must be a matrix ({meaning}), got shape {tuple(values.shape)}")
    if values.shape[0] < 2:
        raise InputError(
            f"{name} has {count(values.shape[0], 'row')}; at least two samples are needed"
        )
    if not _is_real(xp, values):
        raise InputError(f"{name} must be real numbers, got {values.dtype}")
    _require_finite(backend, values, name)
    return backend, values


def _require_finite(backend: Backend, values: Array, name: str) -> None:
    xp = backend.xp
    first, n_wrong = "", 0
    for start, block in float64_blocks(backend, values):
        wrong = ~xp.isfinite(block)
        n_wrong += int(xp.count_nonzero(wrong))
        if n_wrong and not first:
            row, column = (int(at[0]) for at in xp.nonzero(wrong))
            first = f"{float(block[row, column])} in row {start + row}, column {column}"
    if n_wrong:
        raise InputError(
            f"{name} is not finite: {first}, {count(n_wrong, 'such value')} in all; "
            "remove or replace them"
        )


def _is_real(xp: Any, values: Array) -> bool:
    try:
        return bool(xp.isdtype(values.dtype, ("real floating", "integral", "bool")))
    except TypeError:  # types outside the array API, such as NumPy strings
        return False


def _discrete(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    if array.dtype.kind in "biuUS":
        return array
    if array.dtype.kind == "f":
        invalid = ~np.isfinite(array) | (array != np.floor(array))
        if invalid.any():
            raise InputError(f"{name} must be strings or integers, got {float(array[invalid][0])}")
        return array
    if array.dtype.kind == "O":
        values = array.tolist()
        kind = str if isinstance(values[0], str) else (int, np.integer)
        invalid = [value for value in values if not isinstance(value, kind)]
        if not invalid:
            return np.asarray(values)
        raise InputError(f"{name} must be all strings or all integers, got {invalid[0]!r}")
    raise InputError(f"{name} must be strings or integers, got {array.dtype}")


def generator(random_state: int) -> np.random.Generator:
    """Create a random-number generator from a seed, a non-negative integer."""
    if random_state != int(random_state) or random_state < 0:
        raise InputError(f"random_state must be a non-negative integer, got {random_state!r}")
    return np.random.default_rng(int(random_state))


def stratified_order(y: Codes, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return a random order whose every prefix is approximately stratified."""
    by_class = _shuffled_by_class(y, rng)
    counts = np.bincount(y)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    place = (np.arange(len(y)) - starts + rng.random(len(y))) / np.repeat(counts, counts)
    return by_class[np.argsort(place, kind="stable")]


def stratified_folds(
    y: Codes, n_folds: int, rng: np.random.Generator, groups: Groups | None = None
) -> Codes:
    """Return the fold of each sample; folds are stratified and of about equal size.

    Groups are kept whole; at least two are needed.
    """
    numbers = group_numbers(groups, len(y))
    if numbers is not None:
        if (n_groups := int(numbers.max()) + 1) < 2:
            raise InputError("all samples are of one group; folds keep groups whole and need two")
        shuffled = rng.permutation(n_groups)  # decides between groups of equal size
        return grouped_folds(y, shuffled[numbers], min(n_folds, n_groups))
    folds = np.empty(len(y), dtype=np.int64)
    folds[_shuffled_by_class(y, rng)] = np.arange(len(y)) % n_folds  # round robin, class by class
    return folds


def _shuffled_by_class(y: Codes, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    order = rng.permutation(len(y))
    return order[np.argsort(y[order], kind="stable")]
