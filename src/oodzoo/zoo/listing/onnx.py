"""What is known about ONNX files before they are opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from oodzoo.errors import InputError
from oodzoo.zoo.listing.weights import Measured, Weights
from oodzoo.zoo.onnx import count_parameters, external_files
from oodzoo.zoo.spec import ModelSpec

T = TypeVar("T")


def licence(spec: ModelSpec) -> None:
    """Unknown: the format has no place for it."""


def measure(spec: ModelSpec) -> Measured:
    return Measured(_parsed(count_parameters, spec))


def weights(spec: ModelSpec) -> Weights:
    folder = spec.file.parent
    files = [spec.file, *(folder / name for name in _parsed(external_files, spec))]
    return Weights(folder, True, sum(file.stat().st_size for file in files if file.is_file()))


def _parsed(parse: Callable[[bytes], T], spec: ModelSpec) -> T:
    try:
        return parse(spec.file.read_bytes())
    except OSError as error:
        reason = error.strerror
    except (IndexError, KeyError, ValueError):
        reason = "it is not an ONNX file"
    raise InputError(f"model {spec.name!r}: cannot read {str(spec.file)!r}: {reason}")
