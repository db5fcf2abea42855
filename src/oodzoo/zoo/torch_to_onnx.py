"""PyTorch modules as ONNX files, written by torch.onnx; each file is checked against its module."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.io import write_tidily
from oodzoo.core.packages import optional_package
from oodzoo.core.text import one_line
from oodzoo.zoo.model import Module
from oodzoo.zoo.onnx_to_torch import TOLERANCE, relative_difference

OPSET = 18
"""The first opset whose Resize has antialiasing, and the lowest that torch.onnx writes well."""

IR_VERSION = 8
"""Of a file without functions; read by every ONNX Runtime that has the opset."""

_MAX_BYTES = 2_000_000_000  # limit of a protobuf
_BATCHES = (1, 3)
"""Batch sizes of the check; the module is exported with two images."""
_PURPOSE = "writing PyTorch models as ONNX files"


def write_outputs(
    module: Module, crop: tuple[int, int], file: Path, outputs: Sequence[str], *, name: str
) -> None:
    """Write a module as an ONNX file.

    Parameters
    ----------
    module : torch.nn.Module
        On the CPU, in float32 and in eval mode. Maps a normalised batch (n, 3, height, width) to
        a tuple of tensors (n, d), or to one tensor for one output.
    crop : tuple of int
        Height and width.
    file : Path
        Its input is `input`, float32 (n, 3, height, width), with any n. The weights are in the
        file itself.
    outputs : sequence of str
        Names of the outputs.
    name : str
        Of the model, for error messages.

    Raises
    ------
    InputError
        If the module cannot be exported, if the outputs of the file differ from the module's, or
        if it is larger than 2 GB.
    MissingPackageError
        If onnx or onnxscript is not installed.
    """
    for package in ("onnx", "onnxscript"):
        optional_package(package, extra="tune", purpose=_PURPOSE)
    size = sum(t.numel() * t.element_size() for t in module.state_dict().values())
    if size > _MAX_BYTES:
        raise InputError(
            f"model {name!r} has weights of {size / 1e9:.1f} GB; an ONNX file is limited to 2 GB"
        )
    proto = _exported(module, crop, outputs, name)
    _remove_metadata(proto)
    content: bytes = proto.SerializeToString()
    _require_equal_file(content, module, crop, name)
    write_tidily(file, content)


def _exported(module: Module, crop: tuple[int, int], outputs: Sequence[str], name: str) -> Any:
    """Export a module; two images stand for any number."""
    torch: Any = import_module("torch")
    if "dynamo" not in signature(torch.onnx.export).parameters:
        raise InputError(f"{_PURPOSE} needs torch 2.5 or newer, got {torch.__version__}")
    try:
        with _quietly(), torch.no_grad():
            program = torch.onnx.export(
                module,
                (_random_batch(2, crop),),
                input_names=["input"],
                output_names=list(outputs),
                dynamic_shapes=({0: torch.export.Dim("n")},),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
            return program.model_proto
    except Exception as error:
        raise InputError(
            f"model {name!r} cannot be written as an ONNX file: {one_line(_cause(error))}"
        ) from error


def _require_equal_file(content: bytes, module: Module, crop: tuple[int, int], name: str) -> None:
    """Raise InputError if the file and the module differ on images of noise."""
    import onnxruntime

    torch: Any = import_module("torch")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    for n in _BATCHES:
        batch = _random_batch(n, crop)
        with torch.no_grad():
            expected = module(batch)
        expected = expected if isinstance(expected, tuple) else (expected,)
        try:
            session = onnxruntime.InferenceSession(content, options, providers=providers)
            found = session.run(None, {"input": batch.numpy()})
        except Exception as error:
            raise InputError(
                f"model {name!r} cannot be written as an ONNX file: ONNX Runtime does not run it "
                f"with a batch of {n}: {one_line(error)}"
            ) from error
        for one, other in zip(found, expected, strict=True):
            if other.ndim != 2 or len(other) != n:
                raise InputError(
                    f"model {name!r} cannot be written as an ONNX file: it returns an output of "
                    f"shape {tuple(other.shape)} for a batch of {n}; expected ({n}, d)"
                )
            difference = relative_difference(one, other.numpy())
            if not difference <= TOLERANCE:
                raise InputError(
                    f"model {name!r} cannot be written as an ONNX file: its outputs differ by "
                    f"{difference:.1g} of the largest from PyTorch's, more than {TOLERANCE:.0e}"
                )


def _random_batch(n: int, crop: tuple[int, int]) -> Any:
    """Noise whose mean differs with n: a branch on values is not always taken."""
    import torch

    return torch.randn(n, 3, *crop, generator=torch.Generator().manual_seed(n)) + (n - 2)


def _remove_metadata(proto: Any) -> None:
    """Remove stack traces and the names of PyTorch's operators, which every node has."""
    graph = proto.graph
    described = (*graph.node, *graph.input, *graph.output, *graph.initializer)
    for part in (proto, graph, *described):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    graph.ClearField("value_info")
    if not proto.functions:
        proto.ir_version = min(proto.ir_version, IR_VERSION)


def _cause(error: BaseException) -> BaseException:
    """The first of a chain of errors."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress what torch.onnx prints, warns and logs."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
