"""ONNX models: `onnx/<path>`, run by onnxruntime."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.io import file_digest
from oodzoo.core.text import one_line
from oodzoo.zoo.model import Model, ModelInfo, ModelSize, Module, Trainable, Weights, only_one
from oodzoo.zoo.onnx_model import (
    DTYPES,
    FLOATS,
    OnnxModel,
    OnnxNetwork,
    OnnxTap,
    add_layers,
    count_parameters,
    cut_tensors,
    external_files,
    fingerprint,
    layer_fingerprint,
    open_session,
    output_names,
    read_graph,
    with_outputs,
)
from oodzoo.zoo.onnx_to_torch import ConvertedNetwork
from oodzoo.zoo.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Geometry, Preprocessing
from oodzoo.zoo.sources import ModelSource
from oodzoo.zoo.spec import ModelSpec, read_geometry, verified_file

T = TypeVar("T")

MOST_LAYERS = 12
"""Most tensors that `@all` stands for."""


class OnnxSource(ModelSource):
    """ONNX files."""

    kind = "onnx"
    packages = ("onnxruntime",)
    precision = "float32"  # of inputs and outputs; the precision inside is that of the file
    takes_geometry = True

    def load(self, spec: ModelSpec, *, device: str, precision: str) -> Model:
        return only_one(self.load_layers([spec], device=device, precision=precision))

    def load_layers(
        self, specs: Sequence[ModelSpec], *, device: str, precision: str
    ) -> list[Model | InputError]:
        """Open a file once, after checking its sha256 if the zoo file sets one."""
        first = specs[0]
        if precision != "float32":
            raise InputError(
                f"model {first.name!r}: precision {precision!r} is not supported for ONNX models, "
                "which run in the precision of the file"
            )
        path, digest = verified_file(first)
        session = open_session(path, first.name, device)
        reopen = functools.partial(open_session, path, first.name, device)
        content = path.read_bytes()
        digests = [digest, *(file_digest(path.parent / name) for name in external_files(content))]
        n_parameters = count_parameters(content)
        preprocessing = _preprocessing(first, session)
        taps: dict[ModelSpec, OnnxTap | InputError] = {}
        if layers := [spec for spec in specs if spec.layer is not None]:
            content, taps = add_layers(layers, path, content, preprocessing)
            reopen = functools.partial(reopen, content=content)
            session = reopen()
        network = OnnxNetwork(
            session, preprocessing, lambda threads: reopen(threads=threads), partial=bool(layers)
        )
        height, width = preprocessing.geometry.crop
        black = np.zeros((1, height, width, 3), np.uint8)
        models: list[Model | InputError] = []
        for spec in specs:
            tap = taps.get(spec)
            try:
                if isinstance(tap, InputError):
                    raise InputError(f"model {spec.name!r}: {tap}")
                outputs = output_names(spec, session) if tap is None else [tap.output]
                if tap is None:
                    identity = fingerprint(digests, outputs)
                else:
                    identity = layer_fingerprint(digests, tap.tensor, tap.pool.pooling)
                info = ModelInfo(
                    name=spec.name,
                    preprocessing=preprocessing,
                    parameters=spec.parameters or n_parameters,
                    fingerprint=identity,
                    pretraining=spec.pretraining,
                    licence=spec.licence,
                    outputs=tuple(outputs) if tap is None else (),
                    layer=None if tap is None else tap.tensor,
                    pooling=None if tap is None else tap.pool.pooling,
                )
                model = OnnxModel(network, info, outputs)
                model.info = info.measured(model(black), spec.feature_dim)
                models.append(model)
            except InputError as error:
                models.append(error)
            except Exception as error:
                size = f"{height}×{width} pixels"
                models.append(
                    InputError(
                        f"model {spec.name!r} cannot run on an image of {size}: {one_line(error)}"
                    )
                )
        return models

    def layers(self, spec: ModelSpec) -> list[str]:
        """A dozen tensors at most, spread over the depth of a network.

        They are tensors on which alone all that follows depends, such as the outputs of the blocks
        of a residual network.
        """
        path, _ = verified_file(spec)
        content = path.read_bytes()
        open_session(path, spec.name, "cpu")  # reports a file that is not ONNX
        graph = read_graph(content)
        cuts = cut_tensors(graph)
        session = open_session(path, spec.name, "cpu", content=with_outputs(content, graph, cuts))
        known = {output.name: output for output in session.get_outputs()}
        usable = [
            name
            for name in cuts
            if known[name].type in FLOATS and len(known[name].shape or ()) in (2, 3, 4)
        ]
        if not usable:
            raise InputError(f"model {spec.name!r}: found no tensors for @all; name layers instead")
        if len(usable) <= MOST_LAYERS:
            return usable
        step = (len(usable) - 1) / (MOST_LAYERS - 1)
        return [usable[round(step * number)] for number in range(MOST_LAYERS)]

    def trainable(self, spec: ModelSpec, preprocessing: Preprocessing) -> Trainable:
        network = ConvertedNetwork([spec], preprocessing)
        return Trainable(spec.name, network.module, preprocessing, network.dims[0], network.write)

    def trainable_network(self, specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> Module:
        return ConvertedNetwork(specs, preprocessing).separate()

    def measure(self, spec: ModelSpec) -> ModelSize:
        return ModelSize(_parsed(count_parameters, spec))

    def weights(self, spec: ModelSpec) -> Weights:
        folder = spec.file.parent
        files = [spec.file, *(folder / name for name in _parsed(external_files, spec))]
        return Weights(folder, True, sum(file.stat().st_size for file in files if file.is_file()))

    def local_path(self, spec: ModelSpec) -> Path | None:
        return spec.file

    def is_model(self, path: Path) -> bool:
        return path.is_file()


def _parsed(parse: Callable[[bytes], T], spec: ModelSpec) -> T:
    try:
        return parse(spec.file.read_bytes())
    except OSError as error:
        reason = error.strerror
    except (IndexError, KeyError, ValueError):
        reason = "it is not an ONNX file"
    raise InputError(f"model {spec.name!r}: cannot read {str(spec.file)!r}: {reason}")


def _preprocessing(spec: ModelSpec, session: Any) -> Preprocessing:
    """The preprocessing of a zoo file; by default a squashed square and ImageNet's mean and std."""
    inputs = session.get_inputs()
    shape = inputs[0].shape if len(inputs) == 1 else []
    if len(shape) != 4 or inputs[0].type not in DTYPES or shape[1] != 3:
        described = ", ".join(f"{i.name} {i.type} {i.shape}" for i in inputs) or "none"
        raise InputError(
            f"model {spec.name!r} must take one float tensor (n, 3, height, width); "
            f"it takes {described}"
        )
    sides = shape[2:]
    if spec.geometry is None:
        size = spec.input_size or (sides[0] if isinstance(sides[0], int) else 224)
        geometry, stated = Geometry((size, size), (size, size)), f"input_size = {size}"
    else:
        geometry = read_geometry(spec.geometry, f"model {spec.name!r}")
        stated = f"crop = {list(geometry.crop)} in geometry"
        if spec.input_size not in (None, *geometry.crop):
            raise InputError(
                f"model {spec.name!r}: its zoo file sets input_size = {spec.input_size}, but "
                f"{stated}; remove input_size"
            )
    if any(isinstance(a, int) and a != b for a, b in zip(sides, geometry.crop, strict=True)):
        raise InputError(
            f"model {spec.name!r} takes images of {sides[0]}×{sides[1]} pixels, "
            f"but its zoo file sets {stated}"
        )
    if spec.mean is None or spec.std is None:
        warnings.warn(
            f"model {spec.name!r}: ONNX files do not contain mean and std; using ImageNet's. Set "
            "them in a zoo file if they differ",
            stacklevel=2,
        )
    return Preprocessing(geometry, spec.mean or IMAGENET_MEAN, spec.std or IMAGENET_STD)
