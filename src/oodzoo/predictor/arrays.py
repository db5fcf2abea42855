"""From given features, or inputs and encoders, to the selected features of several models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oodzoo._text import count
from oodzoo.backend import to_numpy
from oodzoo.errors import InputError
from oodzoo.features.columns import Columns
from oodzoo.predictor.encoders import Encoder, batch_length, batches, encode, require_encoders
from oodzoo.predictor.feature_models import FeatureModel
from oodzoo.predictor.images import FeatureChunk

_ROWS = 4096
"""Rows of given features per chunk."""

Floats = NDArray[np.float32]


class HasFeatures(Protocol):
    """A model of a predictor, of any kind."""

    @property
    def name(self) -> str: ...
    @property
    def feature_dim(self) -> int: ...


def iter_given(
    features: Mapping[str, Any],
    columns: Columns,
    start: int = 0,
) -> Iterator[FeatureChunk]:
    """Take the given columns of checked features, from a row on."""
    n = len(next(iter(features.values())))
    for at in range(start, n, _ROWS):
        parts = [columns.of(name, features[name][at : at + _ROWS]) for name in columns.by_model]
        rows = len(parts[0])
        yield FeatureChunk([None] * rows, list(range(rows)), np.concatenate(parts, axis=1), {})


def iter_encoded(
    inputs: Iterable[Any],
    models: Sequence[HasFeatures],
    encoders: Mapping[str, Encoder],
    columns: Columns,
    batch_size: int,
    start: int = 0,
) -> Iterator[FeatureChunk]:
    """Compute the given columns of features of any number of inputs, from a position on."""
    for batch in batches(inputs, batch_size, start):
        parts = []
        for model in models:
            features = encode(model.name, encoders[model.name], batch)
            if features.shape[1] != model.feature_dim:
                raise InputError(
                    f"the encoder {model.name!r} returns {count(features.shape[1], 'feature')}, "
                    f"but the predictor was fitted with {model.feature_dim}; pass the encoder that "
                    "computed the training features"
                )
            parts.append(columns.of(model.name, features))
        together = np.concatenate(parts, axis=1)
        finite = np.asarray(np.isfinite(together).all(axis=1))
        problems = dict.fromkeys(
            np.flatnonzero(~finite).tolist(), "an encoder returns NaN or infinite features for it"
        )
        paths: list[str | None] = [None] * batch_length(batch)
        yield FeatureChunk(paths, np.flatnonzero(finite).tolist(), together[finite], problems)


def known_encoders(
    encoders: Mapping[str, Encoder], models: Sequence[HasFeatures]
) -> dict[str, Encoder]:
    """Check encoders, and return those of the models; the fit may have left out others."""
    require_encoders(encoders)
    if not encoders:
        return {}
    names = ", ".join(repr(model.name) for model in models)
    if not all(isinstance(model, FeatureModel) for model in models):
        raise InputError(f"{names} can be loaded and need no encoders; leave the encoders out")
    known = {model.name: encoders[model.name] for model in models if model.name in encoders}
    if not known:
        raise InputError(
            f"the predictor has the models {names}; got encoders of "
            f"{', '.join(map(repr, encoders))}"
        )
    return known


def require_every_encoder(encoders: Mapping[str, Encoder], models: Sequence[HasFeatures]) -> None:
    """Raise InputError if a model has no encoder."""
    if missing := [model.name for model in models if model.name not in encoders]:
        wanted = ", ".join(f"{name!r}: function" for name in missing)
        raise InputError(
            "the models of this predictor have features only; to predict from inputs, load it "
            f"with encoders={{{wanted}}}, or give features as a dict {{model: array (n, d)}}"
        )


def is_feature_array(inputs: Any) -> bool:
    """Whether inputs are an array of features, if need be one of a wrong shape."""
    n_dimensions = getattr(inputs, "ndim", None)
    if n_dimensions is None or n_dimensions == 2:
        return n_dimensions == 2
    return np.asarray(to_numpy(inputs)).dtype.kind in "fiu"


def one_column(samples: Any, noun: str) -> Any:
    """Samples of a table with one column, or of an array (n, 1), as scikit-learn may pass them.

    Raises
    ------
    InputError
        If the table has another number of columns; iterating over it would give their names.
    """
    if hasattr(samples, "columns"):
        names = list(samples.columns)
        if len(names) != 1:
            raise InputError(
                f"{noun}s must be one column of a table, got {count(len(names), 'column')}: "
                f"{', '.join(map(repr, names[:5]))}; choose one of them"
            )
        return samples[names[0]]
    if isinstance(samples, np.ndarray) and samples.dtype.kind in "OUS" and samples.ndim == 2:
        return samples[:, 0] if samples.shape[1] == 1 else samples
    return samples


def checked_features(features: Any, models: Sequence[HasFeatures]) -> dict[str, Floats]:
    """Check given features, and return those of each model as float32 (n, d).

    `features` is a dict of arrays by model; other models are ignored. For a single model it may be
    its array.

    Raises
    ------
    InputError
        If a model is missing, or an array has another width, other rows, or is not finite.
    """
    names = ", ".join(repr(model.name) for model in models)
    if not isinstance(features, Mapping):
        if len(models) > 1:
            raise InputError(
                f"the predictor has {count(len(models), 'model')}; give their features as a dict "
                f"{{model: array (n, d)}} with {names}, not as one array"
            )
        features = {models[0].name: features}
    if missing := [model.name for model in models if model.name not in features]:
        given = ", ".join(map(repr, features)) or "none"
        raise InputError(f"the features of model {missing[0]!r} are missing; got those of {given}")
    found = {model.name: _matrix(features[model.name], model) for model in models}
    first, *others = found
    for name in others:
        if len(found[name]) != len(found[first]):
            raise InputError(
                f"the features of model {name!r} have {count(len(found[name]), 'row')}, those of "
                f"{first!r} {len(found[first])}; each row must be the same sample in all of them"
            )
    return found


def _matrix(values: Any, model: HasFeatures) -> Floats:
    what = f"the features of model {model.name!r}"
    try:
        array = np.asarray(to_numpy(values))
    except ValueError as error:
        raise InputError(f"{what} are not an array: {error}") from error
    if array.ndim == 1 and array.dtype.kind in "fiu":
        raise InputError(
            f"{what} are 1-D, with the shape {array.shape}, and must be (n, d); give one sample as "
            "x.reshape(1, -1)"
        )
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InputError(f"{what} must be numbers (n, d), got {array.dtype} {array.shape}")
    if array.shape[1] != model.feature_dim:
        raise InputError(
            f"{what} must have {count(model.feature_dim, 'column')}, as those that the predictor "
            f"was fitted with; got {array.shape[1]}"
        )
    with np.errstate(over="ignore"):  # values beyond float32 are infinite, and rejected as such
        matrix = array.astype(np.float32, copy=False)
    if not np.isfinite(matrix).all():
        row = int(np.flatnonzero(~np.isfinite(matrix).all(axis=1))[0])
        raise InputError(f"{what} contain NaN or infinity, first in row {row}")
    return matrix
