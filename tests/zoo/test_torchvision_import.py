from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from oodzoo.errors import MissingPackageError
from oodzoo.zoo.torchvision_import import import_torchvision, torchvision_installed


def test_installed_without_importing_it(torchvision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert torchvision_installed()
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert not torchvision_installed()


def test_a_missing_torchvision_names_the_extra(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(MissingPackageError, match=r"this test needs the package torchvision"):
        import_torchvision(extra="timm", purpose="this test")


def test_operators_are_declared_only_if_the_import_fails(torchvision: Any) -> None:
    code = """
import sys
try:
    import torchvision as plain
except RuntimeError:
    plain = None
from oodzoo.zoo import torchvision_import
repaired = torchvision_import.import_torchvision(extra="torchvision", purpose="this test")
assert repaired is sys.modules["torchvision"]
assert repaired.models.resnet18 and repaired.transforms.CenterCrop
if plain is None:
    assert torchvision_import._declarations
    try:
        repaired.ops.nms(*[__import__("torch").zeros(1, 4)] * 2, 0.5)
    except RuntimeError as error:
        assert "custom C++ ops" in str(error)
    else:
        raise AssertionError("an operator without implementation ran")
else:
    assert repaired is plain and not torchvision_import._declarations
print("done")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "done\n", run.stderr
