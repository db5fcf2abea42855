"""Models of torch.hub in a local folder: `torch_hub/<folder>:<entry point>`.

The folder has a `hubconf.py` whose function of that name returns a module; its code runs. A
repository on GitHub is not downloaded, because its code would run, too: clone it first.

If the output of the module is that of a linear layer, this layer is taken as a classifier: its
input is the features and its output the logits. Otherwise the output is the features; feature maps
(n, d, height, width) are averaged over space. Images are squashed to `input_size` (224 by default)
and normalised by ImageNet's mean and standard deviation, unless a zoo file sets others.

A predictor with such a model cannot be saved, since loading it would run the code; export the
network to ONNX for that.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.packages import optional_package
from oodzoo.core.text import did_you_mean, one_line
from oodzoo.zoo.hub import no_unpickling
from oodzoo.zoo.preprocessing import IMAGENET_MEAN, IMAGENET_STD, square
from oodzoo.zoo.sources.torch import TorchSource, refuse_sha256, seeded
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import (
    Built,
    Forward,
    Module,
    Tensor,
    features_and_logits,
    split_head,
)

_SIZE = 224


class TorchHubSource(TorchSource):
    """Models that a local hubconf.py defines."""

    kind = "torch_hub"
    packages = ("torch",)
    extra = "torch"
    takes_arguments = True

    def build(self, spec: ModelSpec, *, pretrained: bool = True) -> Built:
        """Call an entry point; random weights are those of the seed of the model's name."""
        refuse_sha256(spec)
        torch = optional_package("torch", extra="torch", purpose=f"model {spec.name!r} (torch_hub)")
        path, colon, entry = spec.identifier.rpartition(":")
        if not (colon and path and entry):
            raise InputError(
                f"model {spec.name!r}: {spec.source!r} names no entry point; write "
                "torch_hub/<folder>:<entry point>"
            )
        folder = self.local_path(spec)
        if not folder.is_dir():
            raise InputError(
                f"model {spec.name!r}: there is no folder {str(folder)!r}; a repository on GitHub "
                "is not downloaded, because its code would run: clone it and give the folder"
            )
        if not (folder / "hubconf.py").is_file():
            raise InputError(f"model {spec.name!r}: the folder {str(folder)!r} has no hubconf.py")
        options = dict(spec.arguments or {})
        if spec.pretrained is not None:
            options["pretrained"] = spec.pretrained
        what = f"model {spec.name!r}: the entry point {entry!r} of {str(folder / 'hubconf.py')!r}"
        try:
            with no_unpickling(), seeded(spec), _own_modules(folder):
                module = torch.hub.load(str(folder), entry, source="local", **options)
        except Exception as error:
            if str(error).startswith("Cannot find callable"):
                known = _functions(folder / "hubconf.py")
                hint = did_you_mean(entry, known) or f"it has {', '.join(known) or 'none'}"
                raise InputError(f"{what} does not exist; {hint}") from error
            raise InputError(f"{what} failed: {type(error).__name__}: {one_line(error)}") from error
        if not isinstance(module, torch.nn.Module):
            raise InputError(f"{what} returned {type(module).__name__}, not a module of PyTorch")
        size = spec.input_size or _SIZE
        module, forward, output = _extractor(module.float().eval(), size, what)
        return Built(
            module=module,
            forward=forward,
            preprocessing=square(size, spec.mean or IMAGENET_MEAN, spec.std or IMAGENET_STD),
            identity=f"torch_hub {entry} {output} code {_code_digest(folder)}{spec.variant}",
        )

    def local_path(self, spec: ModelSpec) -> Path:
        return spec.folder / Path(spec.identifier.rpartition(":")[0])

    def portable(self, spec: ModelSpec) -> str:
        entry = spec.identifier.rpartition(":")[2]
        return f"{spec.kind}/{self.local_path(spec).absolute().name}:{entry}"


def _functions(file: Path) -> list[str]:
    """The public functions that a Python file defines."""
    parsed = ast.parse(file.read_bytes())
    names = [each.name for each in parsed.body if isinstance(each, ast.FunctionDef)]
    return [name for name in names if not name.startswith("_")]


def _extractor(whole: Module, size: int, what: str) -> tuple[Module, Forward, str]:
    """Split off a linear layer whose output is that of the module, as its head."""
    import torch

    outputs: dict[str, Any] = {}

    def keep(name: str) -> Any:
        return lambda layer, inputs, output: outputs.__setitem__(name, output)

    linear = {n: m for n, m in whole.named_modules() if isinstance(m, torch.nn.Linear) and n}
    hooks = [layer.register_forward_hook(keep(name)) for name, layer in linear.items()]
    try:
        with torch.no_grad():
            returned = whole(torch.zeros(1, 3, size, size))
    except Exception as error:
        raise InputError(
            f"{what} returned a module that fails on an image of {size}×{size} pixels "
            f"({one_line(error)}); set input_size in a zoo file"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(returned, torch.Tensor):
        raise InputError(
            f"{what} returned a module whose output is {type(returned).__name__}, not a tensor"
        )
    head = next((name for name, output in outputs.items() if output is returned), None)
    if head is None:
        return whole, _output, "output"
    return split_head(whole, head), features_and_logits, f"input of {head}"


def _output(module: Module, batch: Tensor) -> tuple[Tensor, None]:
    output = module(batch)
    return (output.mean((2, 3)) if output.ndim == 4 else output), None


def _code_digest(folder: Path) -> str:
    """SHA-256 of the Python files of a folder: the code determines the features."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        path = file.relative_to(folder)
        if not any(part.startswith(".") for part in path.parts):
            digest.update(f"{path.as_posix()}\n".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


@contextmanager
def _own_modules(folder: Path) -> Iterator[None]:
    """Forget the modules that code of a folder imports from it.

    Modules of two repositories often have the same name, such as `models`.
    """
    root = folder.resolve()
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).resolve().is_relative_to(root):
                del sys.modules[name]
