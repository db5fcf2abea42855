from __future__ import annotations

import json
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
