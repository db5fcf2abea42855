"""Python functions that compute features of any inputs: texts, waveforms, rows of a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._text import one_line
from oodzoo.backend import to_numpy
from oodzoo.errors import InputError

Encoder = Callable[[Any], Any]
"""Maps a batch of n inputs to features (n, d), as an array or a tensor.

A batch is a list; of an array, a tensor or a pandas table it is a slice."""

BATCH_SIZE = 256
"""Inputs per call, unless another batch size is asked for."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Encoded:
    """Features of all inputs, and the time per input in milliseconds, by encoder."""

    features: dict[str, Floats]
    milliseconds: dict[str, float]


def encode_all(encoders: Mapping[str, Encoder], inputs: Iterable[Any]) -> Encoded:
    """Compute the features of all inputs."""
    parts: dict[str, list[Floats]] = {name: [] for name in encoders}
    seconds = dict.fromkeys(encoders, 0.0)
    n = 0
    for batch in batches(inputs, BATCH_SIZE):
        for name, encoder in encoders.items():
            start = time.perf_counter()
            parts[name].append(encode(name, encoder, batch))
            seconds[name] += time.perf_counter() - start
        n += batch_length(batch)
    if not n:
        raise InputError("inputs must have one or more samples, got none")
    for name, blocks in parts.items():
        if len(widths := {block.shape[1] for block in blocks}) > 1:
            raise InputError(
                f"the encoder {name!r} returned between {min(widths)} and {max(widths)} features; "
                "it must return the same number for each batch"
            )
    return Encoded(
        {name: np.concatenate(blocks) for name, blocks in parts.items()},
        {name: 1000 * spent / n for name, spent in seconds.items()},
    )


def encode(name: str, encoder: Encoder, batch: Any) -> Floats:
    """Compute the features (n, d) of a batch."""
    try:
        returned = encoder(batch)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"the encoder {name!r} failed with {type(error).__name__}: {one_line(error)}"
        ) from error
    try:
        features = np.asarray(to_numpy(returned), np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the encoder {name!r} returned {type(returned).__name__}; expected an array or a "
            "tensor of numbers"
        ) from error
    n = batch_length(batch)
    if features.ndim != 2 or len(features) != n or not features.shape[1]:
        raise InputError(
            f"the encoder {name!r} returned the shape {features.shape} for a batch of {n}; "
            f"expected ({n}, d)"
        )
    return features


def batches(inputs: Iterable[Any], size: int, start: int = 0) -> Iterator[Any]:
    """Split inputs into batches, from a position on; arrays and tables are sliced."""
    if hasattr(inputs, "shape"):
        rows = getattr(inputs, "iloc", inputs)  # a table may be sliced by label
        for at in range(start, batch_length(inputs), size):
            yield rows[at : at + size]  # type: ignore[index]
        return
    remaining = islice(inputs, start, None)
    while batch := list(islice(remaining, size)):
        yield batch


def batch_length(batch: Any) -> int:
    """Number of inputs of a batch."""
    return int(batch.shape[0]) if hasattr(batch, "shape") else len(batch)


def require_encoders(encoders: Any) -> Mapping[str, Encoder]:
    """Return a dict of functions; raise InputError for anything else."""
    if not isinstance(encoders, Mapping):
        raise InputError(
            f"encoders must be a dict {{model: function}}, got {type(encoders).__name__}"
        )
    for name, encoder in encoders.items():
        if not callable(encoder):
            raise InputError(
                f"the encoder {name!r} must be a function, got {type(encoder).__name__}"
            )
    return encoders
