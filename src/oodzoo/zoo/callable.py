"""Models from any Python callable."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.text import one_line
from oodzoo.zoo.model import Model, ModelInfo, Outputs, Pixels
from oodzoo.zoo.preprocessing import Preprocessing

Extractor = Callable[[NDArray[np.float32]], Any]
"""Maps a normalised batch (n, 3, height, width) to features (n, d), or (features, logits)."""


class CallableModel(Model):
    """A model that calls a Python function; made by :func:`model_from_callable`."""

    def __init__(self, function: Extractor, info: ModelInfo) -> None:
        self.info = info
        self._function = function

    def prepare(self, pixels: Pixels) -> NDArray[np.float32]:
        return self.info.preprocessing.normalise(pixels)

    def launch(self, prepared: NDArray[np.float32]) -> tuple[int, Any]:
        return len(prepared), self._function(prepared)

    def collect(self, launched: tuple[int, Any]) -> Outputs:
        n, returned = launched
        name = self.info.name
        if not isinstance(returned, tuple):
            return Outputs(_matrix(returned, n, "features", name), None)
        if len(returned) != 2:
            raise InputError(
                f"model {name!r}: the callable returned a tuple of {len(returned)}; expected "
                "features, or (features, logits)"
            )
        features, logits = returned
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
    """Make a model from any function that maps a batch of images to features.

    Parameters
    ----------
    function : callable
        Takes a float32 array (n, 3, height, width), normalised by `preprocessing`, and returns
        features (n, d), or a tuple of features and logits (n, C), as arrays or torch tensors. It
        is called from one thread at a time.
    name : str
        The model's name in a store and in a ranking.
    preprocessing : Preprocessing
        How an image is resized, cropped and normalised.
    version : str
        Any string; change it whenever the function returns different features for the same image,
        so that stored features of the old version are not reused.
    parameters, pretraining, licence : optional
        Informational only.

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
        raise InputError(f"model {name!r}: version must not be empty; give a string such as '1'")
    info = ModelInfo(
        name=name,
        preprocessing=preprocessing,
        parameters=parameters,
        fingerprint=hashlib.sha256(f"callable\n{name}\n{version}".encode()).hexdigest(),
        pretraining=pretraining,
        licence=licence,
    )
    model = CallableModel(function, info)
    model.info = info.measured(_run_once(model))
    return model


def _run_once(model: CallableModel) -> Outputs:
    """Run two black images: a function that drops the batch dimension would pass with one."""
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
            f"model {model.info.name!r}: the callable returned NaN or infinite features for "
            "black images"
        )
    return outputs


def _matrix(output: Any, n: int, what: str, name: str) -> NDArray[np.float32]:
    """Convert an array, or a torch tensor on any device in any precision, to float32 (n, d)."""
    if hasattr(output, "detach"):
        output = output.detach().cpu().float().numpy()
    try:
        matrix = np.asarray(output, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"model {name!r}: the callable returned {type(output).__name__} as {what}; "
            "expected an array or a tensor of numbers"
        ) from error
    if matrix.ndim != 2 or len(matrix) != n or matrix.shape[1] == 0:
        raise InputError(
            f"model {name!r}: the callable returned {what} of shape {matrix.shape} for a batch "
            f"of {n}; expected ({n}, d)"
        )
    return matrix
