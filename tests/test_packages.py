from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oodzoo._packages import optional_package
from oodzoo.errors import InputError, MissingPackageError


def test_an_installed_package_is_imported() -> None:
    assert optional_package("json", extra="timm", purpose="this test") is json


def test_a_missing_package_names_the_extra() -> None:
    expected = 'this test needs the package no_such_package; .* "oodzoo\\[some-extra\\]"'
    with pytest.raises(MissingPackageError, match=expected):
        optional_package("no_such_package.part", extra="some-extra", purpose="this test")


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        ("import no_such_package", MissingPackageError, "needs the package no_such_package"),
        ("raise OSError('wrong\\nABI')", InputError, "fails to import: wrong ABI"),
    ],
)
def test_a_broken_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, kind: Any, message: str
) -> None:
    (tmp_path / "oodzoo_broken_package.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(kind, match=message) as caught:
        optional_package("oodzoo_broken_package", extra="timm", purpose="this test")
    assert "\n" not in str(caught.value)


def test_a_missing_package_gives_the_line_that_installs_it(torch: Any) -> None:
    # All in one process: importing torch takes seconds.
    cases = [
        ("timm/resnet50.a1_in1k", "torch", "timm"),
        ("timm/resnet50.a1_in1k", "torchvision", "timm"),
        ("timm/resnet50.a1_in1k", "timm", "timm"),
        ("torchvision/resnet50", "torchvision", "torchvision"),
        ("hf/facebook/dinov2-small", "transformers", "hf"),
        ("open_clip/ViT-B-16/openai", "open_clip", "open-clip"),
    ]
    code = f"""
import sys
from oodzoo.errors import MissingPackageError
from oodzoo.zoo import load_model, load_zoo
for spec, package, extra in {cases!r}:
    before = sys.modules.pop(package, None)
    sys.modules[package] = None
    try:
        load_model(load_zoo(spec)[0])
    except MissingPackageError as error:
        print(error)
    del sys.modules[package]
    if before is not None:
        sys.modules[package] = before
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    assert len(lines) == len(cases), run
    for line, (_, package, extra) in zip(lines, cases, strict=True):
        assert line.endswith(
            f'needs the package {package}; install it with: pip install "oodzoo[{extra}]"'
        )
