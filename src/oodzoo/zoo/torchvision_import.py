"""Import of torchvision, with a workaround for compiled operators that fail to load.

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
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import Any

from oodzoo.core.packages import is_installed, optional_package

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
