"""From what a predictor takes to the selected features of several models, chunk by chunk.

It takes images, texts, given features, or inputs of encoders: Python functions that compute
features of texts, waveforms, rows of a table.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from oodzoo.core.backend import to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.text import count, one_line
from oodzoo.data.files import ImageFile, LocalFile, ObjectImage, RemoteImage, StoredFile
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.forward import Chunk, Decoding, ForwardJob, run_forward
from oodzoo.predictor.filing import image_files
from oodzoo.predictor.models import AnyModel
from oodzoo.zoo import Geometry, Model
from oodzoo.zoo.model import Pixels, network_of
from oodzoo.zoo.spec import by_network

Encoder = Callable[[Any], Any]
"""Maps a batch of n inputs to features (n, d), as an array or a tensor.

A batch is a list; of an array, a tensor or a pandas table it is a slice."""

ImageLike = str | os.PathLike[str] | ImageFile | Image.Image | NDArray[np.uint8]
"""A file or URL, a Pillow image, or pixels (height, width, 3) or (height, width)."""

Listed = Iterable[ImageLike] | Mapping[str, Any] | Iterable[Any]
"""Images; features by model; or inputs of encoders."""

Inputs = str | os.PathLike[str] | Image.Image | Listed
"""What a predictor takes: several samples, or one image or path."""

BATCH_SIZE = 256
"""Inputs of encoders per call, unless another batch size is asked for."""
KEPT_BYTES = 2**30
"""Size of the features that are kept while a predictor adapts to the images it classifies."""
_IMAGES, _TEXTS = 64, 256
"""Samples per chunk, unless a batch is larger; at most two chunks of images are in memory."""
_ROWS = 4096
"""Rows of given features per chunk."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class FeatureChunk:
    """Features of consecutive samples, and why some have none."""

    paths: list[str | None]
    """Path or URL of each image; None for an image in memory."""
    positions: list[int]
    """Position in `paths` of each row of `features`."""
    features: NDArray[np.float32]
    problems: dict[int, str]
    """Why an image has no features, by position in `paths`."""


# --- images and texts --------------------------------------------------------------------------


def iter_features(
    samples: Iterable[Any],
    models: Mapping[str, Model],
    columns: Columns,
    batch_size: int,
    start: int = 0,
) -> Iterator[FeatureChunk]:
    """Compute the given columns of the models' features for any number of images or texts.

    The next chunk of images is decoded while this one goes through the models. A blank text has no
    features, as in a table of texts.
    """
    geometries = list(dict.fromkeys(m.info.preprocessing.geometry for m in models.values()))
    networks = by_network(
        models.values(), lambda each: (network_of(each), each.info.preprocessing.geometry)
    )
    if geometries == [None]:
        chunks = _texts(samples, max(batch_size, _TEXTS), start)
    else:
        chunks = _decoded(islice(samples, start, None), geometries, max(batch_size, _IMAGES))

    def jobs() -> Iterator[ForwardJob[tuple[list[str | None], Chunk]]]:
        for paths, chunk in chunks:
            for together in networks:
                pixels = chunk.pixels[together[0].info.preprocessing.geometry]
                yield ForwardJob((paths, chunk), together, pixels, batch_size)

    kept: dict[str, Floats] = {}
    for done in run_forward(jobs()):
        if done.outputs is None:
            raise done.error or RuntimeError("no outputs")
        for model, outputs in zip(done.job.models, done.outputs, strict=True):
            kept[model.info.name] = columns.of(model.info.name, outputs.features)
        if len(kept) == len(models):
            paths, chunk = done.job.tag
            problems = {position: str(error) for position, error in chunk.problems.items()}
            features = np.concatenate([kept[name] for name in models], axis=1)
            yield _finite(paths, chunk.positions, features, problems, "a model")
            kept.clear()


def _decoded(
    images: Iterable[ImageLike], geometries: Sequence[Geometry], size: int
) -> Iterator[tuple[list[str | None], Chunk]]:
    """Decode images in chunks of this size, one chunk ahead."""
    opened = (_file_or_image(image) for image in images)
    chunks = iter(lambda: list(islice(opened, size)), [])
    started = ((chunk, Decoding(dict(enumerate(chunk)), geometries)) for chunk in chunks)
    following = next(started, None)
    try:
        while following is not None:
            current, decoding = following
            chunk = decoding.result()
            following = next(started, None)
            yield [None if isinstance(x, Image.Image) else str(x) for x in current], chunk
    finally:
        if following is not None:
            following[1].cancel()


def _texts(texts: Any, size: int, start: int) -> Iterator[tuple[list[str | None], Chunk]]:
    """Check texts in chunks of this size."""
    for chunk in batches(texts, size, start):
        problems: dict[int, Any] = {}
        for at, text in enumerate(chunk):
            if not isinstance(text, str):
                raise InputError(
                    f"the models of this predictor take texts; a text must be a string, got "
                    f"{type(text).__name__} {str(text)[:40]!r}"
                )
            if not text.strip():
                problems[at] = "the text is blank"
        n = len(chunk)
        yield [None] * n, Chunk(list(range(n)), {None: chunk}, problems)


def _finite(
    paths: list[str | None],
    positions: list[int],
    features: Floats,
    problems: dict[int, str],
    source: str,
) -> FeatureChunk:
    """A chunk without the rows that have a problem already, or NaN or infinite features."""
    for row in np.flatnonzero(~np.isfinite(features).all(axis=1)).tolist():
        problems.setdefault(positions[row], f"{source} returns NaN or infinite features for it")
    kept = [row for row, position in enumerate(positions) if position not in problems]
    return FeatureChunk(paths, [positions[row] for row in kept], features[kept], problems)


def preprocess_images(images: Iterable[ImageLike], geometry: Geometry) -> Pixels:
    """Decode and resize images into one array (n, height, width, 3)."""
    opened = dict(enumerate(_file_or_image(image) for image in images))
    chunk = Decoding(opened, [geometry]).result()
    for position, error in chunk.problems.items():
        raise InputError(f"cannot read the image {str(opened[position])!r}: {error}") from error
    pixels: Pixels = chunk.pixels[geometry]
    return pixels


def _file_or_image(image: ImageLike) -> ImageFile | Image.Image:
    if isinstance(image, Image.Image | StoredFile | ObjectImage):
        return image
    if isinstance(image, str | os.PathLike):
        location = parse_location(image)
        return RemoteImage.at(location) if isinstance(location, Url) else LocalFile(str(location))
    if not isinstance(image, np.ndarray):
        raise InputError(
            "an image must be a path, a URL, a Pillow image or a uint8 array, got "
            f"{type(image).__name__} {str(image)[:40]!r}"
        )
    if image.dtype != np.uint8 or not (
        image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (3, 4))
    ):
        raise InputError(
            "an image as an array must be uint8 (height, width, 3) or (height, width), got "
            f"{image.dtype} {image.shape}"
        )
    return Image.fromarray(image)


# --- given features, and encoders --------------------------------------------------------------


def iter_given(
    features: Mapping[str, Any], columns: Columns, start: int = 0
) -> Iterator[FeatureChunk]:
    """Take the given columns of checked features, from a row on."""
    n = len(next(iter(features.values())))
    for at in range(start, n, _ROWS):
        blocks = [columns.of(name, features[name][at : at + _ROWS]) for name in columns.by_model]
        rows = len(blocks[0])
        yield FeatureChunk([None] * rows, list(range(rows)), np.concatenate(blocks, axis=1), {})


def iter_encoded(
    inputs: Iterable[Any],
    models: Sequence[AnyModel],
    encoders: Mapping[str, Encoder],
    columns: Columns,
    batch_size: int,
    start: int = 0,
) -> Iterator[FeatureChunk]:
    """Compute the given columns of features of any number of inputs, from a position on."""
    if missing := [model.name for model in models if model.name not in encoders]:
        wanted = ", ".join(f"{name!r}: function" for name in missing)
        raise InputError(
            "the models of this predictor have features only; to predict from inputs, load it "
            f"with encoders={{{wanted}}}, or give features as a dict {{model: array (n, d)}}"
        )
    for batch in batches(inputs, batch_size, start):
        blocks = []
        for model in models:
            features = _encode(model.name, encoders[model.name], batch)
            if features.shape[1] != model.feature_dim:
                raise InputError(
                    f"the encoder {model.name!r} returns {count(features.shape[1], 'feature')}, "
                    f"but the predictor was fitted with {model.feature_dim}; pass the encoder that "
                    "computed the training features"
                )
            blocks.append(columns.of(model.name, features))
        n = _length(batch)
        together = np.concatenate(blocks, axis=1)
        yield _finite([None] * n, list(range(n)), together, {}, "an encoder")


def encode_all(
    encoders: Mapping[str, Encoder], inputs: Iterable[Any]
) -> tuple[dict[str, Floats], dict[str, float]]:
    """Compute the features of all inputs, and the time per input in milliseconds, by encoder."""
    blocks: dict[str, list[Floats]] = {name: [] for name in encoders}
    seconds = dict.fromkeys(encoders, 0.0)
    n = 0
    for batch in batches(inputs, BATCH_SIZE):
        for name, encoder in encoders.items():
            start = time.perf_counter()
            blocks[name].append(_encode(name, encoder, batch))
            seconds[name] += time.perf_counter() - start
        n += _length(batch)
    if not n:
        raise InputError("inputs must have one or more samples, got none")
    for name, each in blocks.items():
        if len(widths := {block.shape[1] for block in each}) > 1:
            raise InputError(
                f"the encoder {name!r} returned between {min(widths)} and {max(widths)} features; "
                "it must return the same number for each batch"
            )
    features = {name: np.concatenate(each) for name, each in blocks.items()}
    return features, {name: 1000 * spent / n for name, spent in seconds.items()}


def _encode(name: str, encoder: Encoder, batch: Any) -> Floats:
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
    n = _length(batch)
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
        for at in range(start, _length(inputs), size):
            yield rows[at : at + size]  # type: ignore[index]
        return
    remaining = islice(inputs, start, None)
    while batch := list(islice(remaining, size)):
        yield batch


def _length(batch: Any) -> int:
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


def known_encoders(
    encoders: Mapping[str, Encoder], models: Sequence[AnyModel]
) -> dict[str, Encoder]:
    """Check encoders, and return those of the models; the fit may have left out others."""
    require_encoders(encoders)
    if not encoders:
        return {}
    names = ", ".join(repr(model.name) for model in models)
    if models[0].spec is not None:
        raise InputError(f"{names} can be loaded and need no encoders; leave the encoders out")
    known = {model.name: encoders[model.name] for model in models if model.name in encoders}
    if not known:
        raise InputError(
            f"the predictor has the models {names}; got encoders of "
            f"{', '.join(map(repr, encoders))}"
        )
    return known


# --- what is given ------------------------------------------------------------------------------


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


def checked_features(features: Any, models: Sequence[AnyModel]) -> dict[str, Floats]:
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


def _matrix(values: Any, model: AnyModel) -> Floats:
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


def keep_first(chunks: Iterable[FeatureChunk], kept: list[FeatureChunk]) -> Iterator[FeatureChunk]:
    """Yield all chunks, and append the first ones to a list, up to `KEPT_BYTES` of features."""
    size = 0
    for chunk in chunks:
        size += chunk.features.nbytes
        if size <= KEPT_BYTES:
            kept.append(chunk)
        yield chunk


def as_list(images: Inputs, noun: str) -> Listed:
    """List a single image, or those that one path or URL stands for; anything else as it is.

    Raises
    ------
    InputError
        For a path where nothing is, and for a single text.
    """
    if isinstance(images, str | os.PathLike):
        if noun != "image":
            raise InputError(f"{noun}s must be a list, got {os.fspath(images)!r}; put it in a list")
        return image_files([images])
    is_one = isinstance(images, Image.Image)
    if isinstance(images, np.ndarray) and images.dtype == np.uint8:  # images have four dimensions
        is_one = images.ndim == 2 or (images.ndim == 3 and images.shape[2] in (3, 4))
    return cast("Listed", [images] if noun == "image" and is_one else images)
