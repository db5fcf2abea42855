"""Optional packages, imported only when they are needed; a workaround for a broken torchvision.

A torchvision built for CUDA next to a CPU build of torch (the result of `pip install torchvision`
after installing a CPU build of torch) cannot load its compiled library, and its import fails with
`operator torchvision::nms does not exist`: it registers shape rules for operators that were never
declared. No model needs those operators, and timm and open_clip use only the Python part of
torchvision. So the operators are declared without an implementation and the import is retried;
torchvision itself refuses to run them ("Couldn't load custom C++ ops").
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import Any

from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.core.text import one_line


def optional_package(name: str, *, extra: str, purpose: str) -> Any:
    """Import a package that an extra installs; `purpose` begins the error message.

    Spell the extra with hyphens: old versions of pip do not find `open_clip`.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or name).partition(".")[0]
        raise MissingPackageError(missing, extra, purpose) from error
    except Exception as error:  # a mismatched binary, a broken installation, …
        raise InputError(
            f"{purpose} needs the package {name}, which is installed but fails to import: "
            f"{one_line(error)}"
        ) from error


def is_installed(package: str) -> bool:
    """Whether a package can be imported, without importing it."""
    name = _MODULES.get(package, package.replace("-", "_"))
    try:
        return find_spec(name) is not None
    except ValueError:  # an entry of sys.modules without a spec
        return sys.modules.get(name) is not None


_MODULES = {"open-clip-torch": "open_clip"}
"""Names of modules that are not those of their packages."""


def require_extras(extras: Iterable[str], purpose: str) -> None:
    """Raise one error for all packages of some extras that are not installed."""
    packages, lacking = _missing(extras)
    if packages:
        raise MissingPackageError(packages, lacking, purpose)


def install_hint(*extras: str) -> str:
    """What a suggested command needs that is not installed; empty if it works as it is."""
    packages, lacking = _missing(extras)
    return f'needs {packages}: pip install "oodzoo[{lacking}]"' if packages else ""


def _missing(extras: Iterable[str]) -> tuple[str, str]:
    """The packages of extras that are not installed, in words, and the extras that have them."""
    known, packages, lacking = set(extras), set(), set()
    for line in requires("oodzoo") or ():
        found = re.match(r"""([\w.-]+).*\bextra == ['"]([\w-]+)['"]""", line)
        if found and found[2] in known and not is_installed(found[1]):
            packages.add(found[1])
            lacking.add(found[2])
    *names, last = sorted(packages) or [""]
    return " and ".join(filter(None, [", ".join(names), last])), ",".join(sorted(lacking))


_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_lock = RLock()
_declarations: list[Any] = []  # operators disappear when their library is garbage-collected


def import_torchvision(*, extra: str, purpose: str) -> Any:
    """Import torchvision, declaring missing operators if the plain import fails on them."""
    optional_package("torch", extra=extra, purpose=purpose)
    with _lock:
        try:
            return import_module("torchvision")
        except RuntimeError as error:
            if "operator torchvision::" in str(error) and "does not exist" in str(error):
                _declare_missing_operators()
        except ImportError:
            pass
        return optional_package("torchvision", extra=extra, purpose=purpose)


def torchvision_installed() -> bool:
    """Whether torchvision is installed, without importing it."""
    return is_installed("torchvision")


def _declare_missing_operators() -> None:
    torch: Any = import_module("torch")
    _remove_partial_import()
    library = torch.library.Library("torchvision", "FRAGMENT")
    _declarations.append(library)
    for operator in _operators_with_shape_rules():
        if not hasattr(torch.ops.torchvision, operator):
            library.define(operator + _SCHEMA)


def _operators_with_shape_rules() -> list[str]:
    """List the operators for which torchvision registers shape rules, read from its source.

    All must be declared at once: after a second failure, the rules registered so far would make a
    third attempt fail.
    """
    spec = find_spec("torchvision")
    folders = (spec.submodule_search_locations if spec else None) or []
    files = [Path(folder) / "_meta_registrations.py" for folder in folders]
    text = "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    return sorted({"nms", *re.findall(r"[\"']torchvision::(\w+)[\"']", text)})


def _remove_partial_import() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
