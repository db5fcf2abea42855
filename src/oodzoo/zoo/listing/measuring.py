"""Sizes of models, counted without weights and remembered in oodzoo's cache folder."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from oodzoo._packages import optional_package
from oodzoo.errors import InputError
from oodzoo.remote.cache import cache_folder
from oodzoo.zoo.listing.weights import Measured
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.spec import ModelSpec, local_path
from oodzoo.zoo.torch_model import Built, Module, count_parameters
from oodzoo.zoo.torch_source import TorchSource


def build_empty(spec: ModelSpec) -> Built:
    """Build a PyTorch model whose tensors have shapes but no content."""
    source = get_source(spec.kind)
    if not isinstance(source, TorchSource):
        raise InputError(f"model {spec.name!r}: {spec.source} is not a PyTorch model")
    with on_meta_device(spec):
        return source.build(spec, pretrained=False)


@contextmanager
def on_meta_device(spec: ModelSpec) -> Iterator[None]:
    """Create tensors without content, and suppress the messages about missing weights."""
    torch = optional_package("torch", extra="torch", purpose=f"model {spec.name!r}")
    before = logging.root.manager.disable
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


def measure_module(module: Module) -> Measured:
    """Count the parameters of a module and the bytes of its weights."""
    tensors = module.state_dict().values()
    return Measured(
        count_parameters(module), sum(each.numel() * each.element_size() for each in tensors)
    )


def remembered(
    package: str, spec: ModelSpec, name: str, compute: Callable[[], Measured]
) -> Measured:
    """Return the size of a model that a version of a package defines; computed once.

    The file in the cache folder has a line for each model, so several processes can append to it.
    Models in local files are not remembered: the files may change.
    """
    if local_path(spec) is not None or ":" in spec.identifier:
        return compute()
    key = name if spec.input_size is None else f"{name} {spec.input_size}"
    key += spec.variant
    try:
        path = cache_folder() / "sizes" / f"{package}-{version(package)}.jsonl"
    except PackageNotFoundError:
        return compute()  # which says what to install
    known = _read(path)
    if key not in known:
        known[key] = compute()
        line = json.dumps([key, known[key].parameters, known[key].size])
        with suppress(OSError):  # it only saves time
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
    return known[key]


@cache
def _read(path: Path) -> dict[str, Measured]:
    known: dict[str, Measured] = {}
    with suppress(OSError, UnicodeDecodeError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # a line that a stopped process has not finished
                entry: Any = json.loads(line)
                match entry:
                    case [str(name), int(parameters), int() | None as size]:
                        known[name] = Measured(parameters, size)
    return known
