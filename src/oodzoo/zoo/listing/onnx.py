"""What is known about ONNX files before they are opened."""

from __future__ import annotations

from oodzoo.errors import InputError
from oodzoo.zoo.listing.weights import Measured, Weights
from oodzoo.zoo.onnx import count_parameters, external_files
from oodzoo.zoo.spec import ModelSpec


def licence(spec: ModelSpec) -> None:
    """Unknown: the format has no place for it."""


def measure(spec: ModelSpec) -> Measured:
    return Measured(count_parameters(_content(spec)))


def weights(spec: ModelSpec) -> Weights:
    folder = spec.file.parent
    files = [spec.file, *(folder / name for name in external_files(_content(spec)))]
    return Weights(folder, True, sum(file.stat().st_size for file in files if file.is_file()))


def _content(spec: ModelSpec) -> bytes:
    try:
        return spec.file.read_bytes()
    except OSError as error:
        raise InputError(
            f"model {spec.name!r}: cannot read {str(spec.file)!r}: {error.strerror}"
        ) from error
