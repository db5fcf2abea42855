"""What a predictor takes: images, features, lists of paths; as selected features, chunk by chunk.

Images (:mod:`oodzoo.predictor.images`), texts, given features, or inputs of encoders: Python
functions that compute features of texts, waveforms, rows of a table.

Lines are read as they come, in groups: a group is what is there to read, so the first predictions
need not wait for the end of a list that another program is still writing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from oodzoo.core.backend import to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import is_url
from oodzoo.core.text import count, one_line
from oodzoo.data.files import ImageFile
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.forward import Job, run_jobs
from oodzoo.predictor.images import FeatureChunk, ImageLike, image_files
from oodzoo.predictor.models import AnyModel
from oodzoo.zoo import Model

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


_ROWS = 4096
"""Rows of given features per chunk."""


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
    models: Sequence[AnyModel],
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


def require_every_encoder(encoders: Mapping[str, Encoder], models: Sequence[AnyModel]) -> None:
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


_CHUNK_SIZE = 256
"""Texts per chunk, unless a batch is larger."""


def iter_texts(
    texts: Iterable[Any],
    models: Mapping[str, Model],
    columns: Columns,
    batch_size: int,
    start: int = 0,
) -> Iterator[FeatureChunk]:
    """Compute the given columns of the models' features for any number of texts.

    A blank text has no features, as in a table of texts.
    """
    for chunk in batches(texts, max(batch_size, _CHUNK_SIZE), start):
        _require_texts(chunk)
        jobs = [Job(name, [model], chunk, batch_size) for name, model in models.items()]
        parts = {}
        for done in run_jobs(jobs):
            if done.outputs is None:
                raise done.error or RuntimeError("no outputs")
            parts[done.job.tag] = columns.of(done.job.tag, done.outputs[0].features)
        features = np.concatenate([parts[name] for name in models], axis=1)
        finite = np.asarray(np.isfinite(features).all(axis=1))
        problems = dict.fromkeys(
            np.flatnonzero(~finite).tolist(), "a model returns NaN or infinite features for it"
        )
        blank = np.array([not text.strip() for text in chunk])
        problems |= dict.fromkeys(np.flatnonzero(blank).tolist(), "the text is blank")
        usable = finite & ~blank
        yield FeatureChunk(
            [None] * len(chunk), np.flatnonzero(usable).tolist(), features[usable], problems
        )


def _require_texts(texts: Iterable[Any]) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise InputError(
                f"the models of this predictor take texts; a text must be a string, got "
                f"{type(text).__name__} {str(text)[:40]!r}"
            )


KEPT_BYTES = 2**30
"""Size of the features that are kept while a predictor adapts to the images it classifies."""

Samples = Iterable[ImageLike] | Mapping[str, Any] | Iterable[Any]
"""Images; features by model; or inputs of encoders."""

Inputs = str | os.PathLike[str] | Image.Image | Samples
"""What a predictor takes: samples, or one image or path."""


def keep_first(chunks: Iterable[FeatureChunk], kept: list[FeatureChunk]) -> Iterator[FeatureChunk]:
    """Yield all chunks, and append the first ones to a list, up to `KEPT_BYTES` of features."""
    size = 0
    for chunk in chunks:
        size += chunk.features.nbytes
        if size <= KEPT_BYTES:
            kept.append(chunk)
        yield chunk


def as_list(images: Inputs, noun: str) -> Samples:
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
    if noun == "image" and _is_one_image(images):
        return [images]
    return cast("Samples", images)


def _is_one_image(images: Any) -> bool:
    """Whether it is an image in memory; an array of images has four dimensions."""
    if isinstance(images, np.ndarray) and images.dtype == np.uint8:
        return images.ndim == 2 or (images.ndim == 3 and images.shape[2] in (3, 4))
    return isinstance(images, Image.Image)


_BYTES = 1 << 16
"""Most bytes of one group of lines."""
_PARALLEL = 8
"""URLs that are looked up at the same time."""


@dataclass(frozen=True)
class Line:
    """A line of a list, without its end; `number` counts from 1."""

    number: int
    text: str


@dataclass(frozen=True)
class BadLine:
    """A line that names no image, and the reason."""

    line: Line
    reason: str


@dataclass(frozen=True)
class ListedImage:
    """An image, and the line that names it or its folder."""

    line: Line
    file: ImageFile


def read_lines(stream: BinaryIO, *, null: bool = False) -> Iterator[list[Line]]:
    r"""Read the lines of a list in groups; blank lines are left out.

    Parameters
    ----------
    stream : binary stream
        Buffered: `read1` returns what is there, and waits only if there is nothing.
    null : bool
        Whether lines end with a NUL, as `find -print0` writes them, instead of a newline.

    Examples
    --------
    >>> import io
    >>> [[line.text for line in group] for group in read_lines(io.BytesIO(b"a.png\r\n\nb.png"))]
    [['a.png'], ['b.png']]
    """
    end = b"\0" if null else b"\n"
    number, rest = 0, b""
    while True:
        block = stream.read1(_BYTES)  # type: ignore[attr-defined]
        *complete, rest = (rest + block).split(end)
        if not block and rest:
            complete, rest = [*complete, rest], b""
        group = []
        for content in complete:
            number += 1
            text = os.fsdecode(content if null else content.rstrip(b"\r"))
            if number == 1:
                text = text.removeprefix("\ufeff")
            if text if null else text.strip():
                group.append(Line(number, text))
        if group:
            yield group
        if not block:
            return


class ImageFinder:
    """Finds the images that lines name: files, folders of images, and URLs of both.

    What is below a folder that an earlier line named is found once: `find photos` writes the
    folder, and then all that is in it.
    """

    def __init__(self) -> None:
        self._folders: set[str] = set()

    def find(self, group: list[Line]) -> Iterator[ListedImage | BadLine]:
        """Yield the images of some lines in order."""
        with ThreadPoolExecutor(_PARALLEL) as pool:
            # only URLs are worth a thread; files are looked up when it is their turn
            urls = {line.number: pool.submit(_look_up, line) for line in group if is_url(line.text)}
            for line in group:
                if self._was_found(line):
                    continue
                found = urls[line.number].result() if line.number in urls else _look_up(line)
                if isinstance(found, InputError):
                    yield BadLine(line, str(found))
                    continue
                if not is_url(line.text) and Path(line.text).is_dir():
                    self._folders.add(os.path.normpath(line.text))
                yield from (ListedImage(line, file) for file in found)

    def _was_found(self, line: Line) -> bool:
        """Whether a line names something below a folder of an earlier line."""
        if not self._folders or is_url(line.text):
            return False
        path = Path(os.path.normpath(line.text))
        return any(str(folder) in self._folders for folder in (path, *path.parents))


def _look_up(line: Line) -> list[ImageFile] | InputError:
    try:
        return image_files([line.text])
    except InputError as error:
        return error
