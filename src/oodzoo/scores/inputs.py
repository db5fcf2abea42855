"""What a score may be given: everything is checked here, once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oodzoo.backend import Array, Backend, backend_of, to_numpy
from oodzoo.errors import InputError

Codes = npt.NDArray[np.int64]
"""Labels as the positions of their classes."""

_SUM_TOLERANCE = 1e-3  # what a softmax in half precision keeps to


class Labelled(NamedTuple):
    """Checked values with the class of each row."""

    backend: Backend
    values: Array
    y: Codes
    n_classes: int


def labelled_features(X: Any, y: Any) -> Labelled:
    """X as finite float64 (n, d) on its own device; y as codes 0..C-1, C at least 2.

    X itself is never written to, but what is returned may share its memory.
    """
    return _labelled(*_matrix(X, "X", "n samples, d features"), y)


def labelled_probabilities(probabilities: Any, y: Any) -> Labelled:
    """Rows as probabilities that sum to one exactly; y as codes 0..C-1, C at least 2."""
    backend, values = _matrix(probabilities, "source_probabilities", "n samples, source classes")
    xp = backend.xp
    if (least := float(xp.min(values))) < 0:
        raise InputError(
            f"source_probabilities has the negative value {least:g}; "
            "give probabilities (the softmax of the logits), not logits"
        )
    sums = xp.sum(values, axis=1, keepdims=True)
    if (off := float(xp.max(xp.abs(sums - 1)))) > _SUM_TOLERANCE:
        raise InputError(
            f"a row of source_probabilities sums to one only within {off:.3g}; "
            "give probabilities (the softmax of the logits) of all source classes"
        )
    return _labelled(backend, values / sums, y)


def as_classes(
    labels: Any, name: str, n: int | None = None, at_least: int = 1
) -> tuple[Codes, int]:
    """Any labels, strings or integers, as codes in the order of the sorted labels."""
    try:
        array = to_numpy(labels)
    except ValueError as error:
        raise InputError(f"{name} is not a list of labels: {error}") from error
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}; give one label per sample, shape (n,)")
    if n is not None and len(array) != n:
        raise InputError(f"{name} has {len(array)} labels for {n} samples; give one per sample")
    if len(array) < 2:
        raise InputError(f"{name} has {len(array)} labels; at least two samples are needed")
    classes, codes = np.unique(_discrete(array, name), return_inverse=True)
    if len(classes) < at_least:
        raise InputError(
            f"{name} has the single value {classes.tolist()[0]!r}; at least two are needed"
        )
    return codes.astype(np.int64), len(classes)


def positive(value: float, name: str) -> float:
    """A parameter that has to be a finite number above zero."""
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"{name} is {value!r}; it has to be a number above 0")
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
        raise InputError(f"{name} has shape {tuple(values.shape)}; give a matrix ({meaning})")
    if values.shape[0] < 2:
        raise InputError(f"{name} has {values.shape[0]} row; at least two samples are needed")
    if not _is_real(xp, values):
        raise InputError(f"{name} holds values of type {values.dtype}; give real numbers")
    values = backend.float64(values)
    finite = xp.isfinite(values)
    if not bool(xp.all(finite)):
        row, column = (int(at[0]) for at in xp.nonzero(~finite))
        raise InputError(
            f"{name} has {int(xp.count_nonzero(~finite))} values that are not finite, the first "
            f"{float(values[row, column])} in row {row}, column {column}; remove or replace them"
        )
    return backend, values


def _is_real(xp: Any, values: Array) -> bool:
    try:
        return bool(xp.isdtype(values.dtype, ("real floating", "integral", "bool")))
    except TypeError:  # NumPy's own kinds that the array API does not know, such as strings
        return False


def _discrete(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    if array.dtype.kind in "biuUS":
        return array
    if array.dtype.kind == "f":
        odd = ~np.isfinite(array) | (array != np.floor(array))
        if odd.any():
            raise InputError(
                f"{name} has the value {float(array[odd][0])}; labels are strings or integers"
            )
        return array
    if array.dtype.kind == "O":
        values = array.tolist()
        kind = str if isinstance(values[0], str) else (int, np.integer)
        strange = [value for value in values if not isinstance(value, kind)]
        if not strange:
            return np.asarray(values)
        raise InputError(
            f"{name} has the value {strange[0]!r}; labels are all strings or all integers"
        )
    raise InputError(f"{name} holds values of type {array.dtype}; labels are strings or integers")
