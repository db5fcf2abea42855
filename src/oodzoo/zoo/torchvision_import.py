"""The one place that imports torchvision, also where its compiled operators do not load.

A torchvision built for CUDA beside a torch built for the CPU (what `pip install torchvision` gives
where torch came as a CPU build) cannot load its compiled library, and then fails to import with
`operator torchvision::nms does not exist`: it registers shape rules for operators that nobody
declared. No model here uses those operators, and timm and open_clip import torchvision only for
its Python part. So the operators are declared, without an implementation, and the import is tried
again; torchvision itself refuses to run them ("Couldn't load custom C++ ops").
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import Any

from oodzoo.zoo.packages import optional_package

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_lock = RLock()
_declarations: list[Any] = []  # torch forgets the operators of a library that is collected


def import_torchvision(*, extra: str, purpose: str) -> Any:
    """Import torchvision; one that imports by itself is left alone."""
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
    """Whether torchvision is there at all, without importing it."""
    try:
        return find_spec("torchvision") is not None
    except ValueError:  # a test or a user put something without a spec into sys.modules
        return sys.modules.get("torchvision") is not None


def _declare_missing_operators() -> None:
    torch: Any = import_module("torch")
    _forget_half_imported()
    library = torch.library.Library("torchvision", "FRAGMENT")
    _declarations.append(library)
    for operator in _operators_with_shape_rules():
        if not hasattr(torch.ops.torchvision, operator):
            library.define(operator + _SCHEMA)


def _operators_with_shape_rules() -> list[str]:
    """The operators torchvision registers shape rules for, read from its source.

    Reading them all first matters: after a second failure the rules that did get registered would
    be in the way of a third attempt.
    """
    spec = find_spec("torchvision")
    folders = (spec.submodule_search_locations if spec else None) or []
    files = [Path(folder) / "_meta_registrations.py" for folder in folders]
    text = "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    return sorted({"nms", *re.findall(r"[\"']torchvision::(\w+)[\"']", text)})


def _forget_half_imported() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
