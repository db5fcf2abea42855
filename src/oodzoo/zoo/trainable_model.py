"""A model as a module of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodzoo.zoo.preprocessing import Preprocessing

Module = Any  # torch.nn.Module; torch is imported only when a model needs it


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
