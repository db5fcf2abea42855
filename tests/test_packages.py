from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.test_collection import OPTIONAL, without

from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.core.packages import optional_package


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


def run_without(packages: tuple[str, ...], program: str, *arguments: str | Path) -> Any:
    return subprocess.run(
        [sys.executable, "-c", without(packages) + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", ["run", "extract"])
def test_packages_of_a_zoo_are_required_before_anything_else(tmp_path: Path, command: str) -> None:
    out = tmp_path / "job"
    where = ("--out" if command == "run" else "--store", out)
    main = "from oodzoo.cli import main; main()"
    done = run_without(OPTIONAL, main, command, "nowhere", "--zoo", "modern", *where)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "oodzoo: --zoo modern needs the packages open-clip-torch, timm and torch; install them "
        'with: pip install "oodzoo[open-clip,timm]"\n'
    )
    assert not out.exists()


def test_packages_of_a_zoo_are_required_in_python(photos: Path, tmp_path: Path) -> None:
    program = (
        "import oodzoo\n"
        "try: oodzoo.extract(sys.argv[1], 'timm/resnet10t.c3_in1k', sys.argv[2])\n"
        "except oodzoo.InputError as error: print(error)\n"
    )
    done = run_without(OPTIONAL, program, photos, tmp_path / "store")
    assert done.stdout.startswith("the zoo needs the packages timm and torch; install them with")
    assert not (tmp_path / "store").exists()


def test_suggested_commands_say_what_to_install() -> None:
    program = (
        "from oodzoo.report.record import PredictorSummary, Run\n"
        "from oodzoo.report.headline import steps\n"
        "run = Run('oodzoo run', predictor=PredictorSummary('model', ('a',), 'digest'))\n"
        "print(*(step.title for step in steps(run)), sep='\\n')\n"
        "from oodzoo.core.packages import install_hint\n"
        "print(install_hint('tune'), install_hint('torchvision', 'parquet'), sep='\\n')\n"
    )
    done = run_without(("onnx", "torch"), program)
    assert done.stdout.splitlines()[2:] == [
        'Deploy it as one ONNX file (needs onnx: pip install "oodzoo[onnx]")',
        'needs onnx and torch: pip install "oodzoo[tune]"',
        'needs torch: pip install "oodzoo[torchvision]"',
    ], done.stderr
