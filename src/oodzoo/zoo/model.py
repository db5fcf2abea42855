"""What sources return: loaded models, modules that can be trained, where weights are."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.zoo.preprocessing import Decode, Preprocessing
from oodzoo.zoo.spec import Pooling

T = TypeVar("T")
Module = Any  # torch.nn.Module; torch is imported only when a model needs it
Pixels = NDArray[np.uint8]
"""A batch of images (n, height, width, 3), resized and cropped by a model's geometry."""


class Outputs(NamedTuple):
    """Result of a forward pass: pooled features (n, d) and, if the model has a head, its logits."""

    features: NDArray[np.float32]
    logits: NDArray[np.float32] | None


@dataclass(frozen=True)
class ModelInfo:
    """Properties of a loaded model.

    `fingerprint` identifies everything that determines the features (the weights, and which
    outputs are used), but neither the location of the model nor the device it runs on.
    """

    name: str
    preprocessing: Preprocessing
    feature_dim: int = 0
    n_logits: int | None = None
    parameters: int | None = None
    fingerprint: str = ""
    pretraining: str | None = None
    licence: str | None = None
    outputs: tuple[str, ...] = ()
    """Names of the outputs in use, for an ONNX model: (features,) or (features, logits)."""
    layer: str | None = None
    """The layer whose output are the features, if it is not the last one."""
    pooling: Pooling | None = None
    """How the output of the layer is pooled."""

    def measured(self, outputs: Outputs, stated: int | None = None) -> ModelInfo:
        """Set the dimensions to those of a forward pass; `stated` is the zoo's feature_dim."""
        dim = outputs.features.shape[1]
        if stated is not None and dim != stated:
            raise InputError(
                f"model {self.name!r} returns {dim} features, but its zoo file sets "
                f"feature_dim = {stated}"
            )
        n_logits = None if outputs.logits is None else outputs.logits.shape[1]
        return replace(self, feature_dim=dim, n_logits=n_logits)


class Model(ABC):
    """A loaded model: a feature extractor with its own preprocessing.

    A batch goes through three steps, so that a caller can overlap them: `prepare` (thread-safe;
    normalises, or copies to the device), `launch` (starts the forward pass) and `collect` (waits
    for its result). Calling the model does all three.
    """

    info: ModelInfo
    modality: Literal["image", "text"] = "image"
    """What `prepare` takes: pixels of images, or a list of strings."""
    on_cpu: bool = False
    """Whether inference runs on the CPU, where prefetching images would compete with it."""
    batch: int = 1
    """A forward pass computes a multiple of so many images."""

    def decoding(self, decode: Decode) -> Self:
        """Return this model for images that are decoded in another way, with the same weights."""
        preprocessing = self.info.preprocessing.decoding(decode)
        if preprocessing == self.info.preprocessing:
            return self
        model = copy.copy(self)
        model.info = replace(self.info, preprocessing=preprocessing)
        return model

    def one_thread(self) -> AbstractContextManager[None]:
        """Run forward passes on the CPU in the calling thread only."""
        return nullcontext()

    @abstractmethod
    def prepare(self, batch: Any, /) -> Any: ...

    @abstractmethod
    def launch(self, prepared: Any) -> Any: ...

    @abstractmethod
    def collect(self, launched: Any) -> Outputs: ...

    def __call__(self, batch: Any) -> Outputs:
        """Compute the outputs of a batch of images, or of texts."""
        return self.collect(self.launch(self.prepare(batch)))


def only_one(models: Sequence[T | InputError]) -> T:
    """The only model of a list; raises the error that is in its place."""
    (model,) = models
    if isinstance(model, InputError):
        raise model
    return model


class Collected(NamedTuple):
    """Result of a forward pass for several models."""

    outputs: list[Outputs]
    shares: list[float]
    """Share of the time of the forward pass after which each model's features were there."""
    seconds: float | None = None
    """Time of the forward pass on the device, if that measures it."""


class Network(ABC):
    """Weights on a device; one forward pass computes the features of several models."""

    on_cpu: bool
    batch: int = 1

    @abstractmethod
    def one_thread(self) -> AbstractContextManager[None]: ...

    @abstractmethod
    def prepare(self, pixels: Pixels) -> Any: ...

    @abstractmethod
    def launch(self, prepared: Any, models: Sequence[Any]) -> Any:
        """Start a forward pass up to the last of the layers that the models need."""

    @abstractmethod
    def collect(self, launched: Any) -> Collected: ...


class NetworkModel(Model):
    """A model that may share its network with others: with other layers of it."""

    def __init__(self, network: Network, info: ModelInfo) -> None:
        self.info = info
        self.network = network
        self.on_cpu = network.on_cpu
        self.batch = network.batch

    def one_thread(self) -> AbstractContextManager[None]:
        return self.network.one_thread()

    def prepare(self, pixels: Pixels) -> Any:
        return self.network.prepare(pixels)

    def launch(self, prepared: Any) -> Any:
        return self.network.launch(prepared, [self])

    def collect(self, launched: Any) -> Outputs:
        return self.network.collect(launched).outputs[0]


def network_of(model: Model) -> int:
    """Identify the network of a loaded model."""
    return id(model.network if isinstance(model, NetworkModel) else model)


def launch_together(models: Sequence[Model], prepared: Any) -> Any:
    """Start the forward pass of models of one network."""
    first = models[0]
    if len(models) > 1 and isinstance(first, NetworkModel):
        return first.network.launch(prepared, models)
    return first.launch(prepared)


def collect_together(models: Sequence[Model], launched: Any) -> Collected:
    """Wait for the result of :func:`launch_together`."""
    first = models[0]
    if len(models) > 1 and isinstance(first, NetworkModel):
        return first.network.collect(launched)
    return Collected([first.collect(launched)], [1.0])


@dataclass(frozen=True)
class Trainable:
    """A model as a module of PyTorch.

    Attributes
    ----------
    name : str
    module : torch.nn.Module
        Maps a normalised batch (n, 3, height, width) to features (n, d), in float32. It is on the
        CPU and in eval mode. All weights that the features depend on are parameters that require
        gradients.
    preprocessing : Preprocessing
        From an image to the input of the module.
    feature_dim : int
    write : callable
        Writes the module to a file; :meth:`write_onnx` calls it.
    """

    name: str
    module: Module
    preprocessing: Preprocessing
    feature_dim: int
    write: Callable[[Path], None]

    def write_onnx(self, file: Path) -> None:
        """Write the module with its current weights as an ONNX file.

        The file has the input `input`, float32 (n, 3, height, width), normalised, and the output
        `features`, float32 (n, d).
        """
        self.write(file)


@dataclass(frozen=True)
class Weights:
    """Where the weights of a model are, or will be.

    Attributes
    ----------
    folder : Path
        The folder that contains them, or the cache they are downloaded to.
    is_local : bool
        Whether they are there already.
    size : int, optional
        Size in bytes; None if unknown.
    """

    folder: Path
    is_local: bool
    size: int | None = None


@dataclass(frozen=True)
class ModelSize:
    """Size of a model, counted without its weights.

    Attributes
    ----------
    parameters : int
        Number of parameters of the parts in use.
    size : int, optional
        Estimated size of the weights in bytes; None if unknown.
    """

    parameters: int
    size: int | None = None
