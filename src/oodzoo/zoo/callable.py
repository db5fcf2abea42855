"""Any Python callable as a model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._text import one_line
from oodzoo.errors import InputError
from oodzoo.zoo.model import Model, ModelInfo, Outputs, Pixels
from oodzoo.zoo.preprocessing import Preprocessing

Extractor = Callable[[NDArray[np.float32]], Any]
"""From a normalised batch (n, 3, height, width) to features (n, d), or (features, logits)."""


class CallableModel(Model):
    """A function of a batch; use :func:`model_from_callable` to make one."""

    def __init__(self, function: Extractor, info: ModelInfo) -> None:
        self.info = info
        self._function = function

    def prepare(self, pixels: Pixels) -> NDArray[np.float32]:
        return self.info.preprocessing.normalise(pixels)

    def launch(self, prepared: NDArray[np.float32]) -> tuple[int, Any]:
        return len(prepared), self._function(prepared)

    def collect(self, launched: tuple[int, Any]) -> Outputs:
        n, given = launched
        name = self.info.name
        if not isinstance(given, tuple):
            return Outputs(_matrix(given, n, "features", name), None)
        if len(given) != 2:
            raise InputError(
                f"model {name!r}: the callable gave a tuple of {len(given)}; expected features, "
                "or (features, logits)"
            )
        features, logits = given
        return Outputs(
            _matrix(features, n, "features", name),
            None if logits is None else _matrix(logits, n, "logits", name),
        )


def model_from_callable(
    function: Extractor,
    *,
    name: str,
    preprocessing: Preprocessing,
    version: str,
    parameters: int | None = None,
    pretraining: str | None = None,
    licence: str | None = None,
) -> CallableModel:
    """Make a model of any function that maps a batch of images to features.

    Parameters
    ----------
    function : callable
        Takes a float32 array (n, 3, height, width), normalised as `preprocessing` says, and gives
        features (n, d), or a tuple of features and logits (n, C), as arrays or torch tensors. It
        is called from one thread at a time.
    name : str
        The model's name in a store and in a ranking.
    preprocessing : Preprocessing
        How an image is resized, cut and normalised.
    version : str
        A text that you change whenever the function gives other features for the same image, so
        that features of the old one in a store are not taken for those of the new one.
    parameters, pretraining, licence : optional
        What is known of the model; shown, never used.

    Examples
    --------
    >>> from oodzoo.zoo.preprocessing import square
    >>> model = model_from_callable(
    ...     lambda batch: batch.mean(axis=(2, 3)),
    ...     name="mean colour",
    ...     preprocessing=square(32, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    ...     version="1",
    ... )
    >>> model.info.feature_dim
    3
    """
    if not callable(function):
        raise InputError(f"model {name!r}: expected a callable, got {function!r}")
    if not version:
        raise InputError(f"model {name!r}: version is empty; give a text such as '1'")
    info = ModelInfo(
        name=name,
        preprocessing=preprocessing,
        feature_dim=0,
        n_logits=None,
        parameters=parameters,
        fingerprint=hashlib.sha256(f"callable\n{name}\n{version}".encode()).hexdigest(),
        pretraining=pretraining,
        licence=licence,
    )
    model = CallableModel(function, info)
    features, logits = _try(model)
    model.info = replace(
        info,
        feature_dim=features.shape[1],
        n_logits=None if logits is None else logits.shape[1],
    )
    return model


def _try(model: CallableModel) -> Outputs:
    """Two black images: a function that forgets the batch dimension would pass with one."""
    height, width = model.info.preprocessing.geometry.crop
    try:
        outputs = model(np.zeros((2, height, width, 3), np.uint8))
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"model {model.info.name!r}: the callable failed on a batch (2, 3, {height}, "
            f"{width}) with {type(error).__name__}: {one_line(error)}"
        ) from error
    if not np.isfinite(outputs.features).all():
        raise InputError(
            f"model {model.info.name!r}: the callable gave infinite or undefined features "
            "for black images"
        )
    return outputs


def _matrix(given: Any, n: int, what: str, name: str) -> NDArray[np.float32]:
    """An array, or a torch tensor on any device and of any precision, as float32 (n, d)."""
    if hasattr(given, "detach"):
        given = given.detach().cpu().float().numpy()
    try:
        matrix = np.asarray(given, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"model {name!r}: the callable gave {type(given).__name__} as {what}; "
            "expected an array or a tensor of numbers"
        ) from error
    if matrix.ndim != 2 or len(matrix) != n or matrix.shape[1] == 0:
        raise InputError(
            f"model {name!r}: the callable gave {what} of shape {matrix.shape} for a batch of "
            f"{n}; expected ({n}, d)"
        )
    return matrix
