"""Packages: what is said when an optional one is missing or broken; versions that are stated."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import oodzoo
from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.core.packages import install_hint, is_installed, optional_package
from oodzoo.report.recommendation import steps
from oodzoo.report.record import PredictorSummary, Run

ROOT = Path(__file__).parents[1]
OPTIONAL = (
    *("torch", "torchvision", "timm", "transformers", "open_clip", "sentence_transformers"),
    *("onnx2torch", "onnxscript", "huggingface_hub", "pandas", "polars", "datasets"),
    *("s3fs", "moto", "mlflow", "tensorboard", "ray", "playwright"),
)
WITHOUT = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *rest):
        missing = name.partition(".")[0] in {packages!r}
        return None if missing else self.finder.find_spec(name, *rest)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Without, sys.meta_path)
"""
COLLECT = """
import pytest

plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
sys.exit(pytest.main(["--collect-only", "-qq", "-W", "ignore", *plugins]))
"""


def run_without(packages: Sequence[str], program: str, *arguments: str | Path) -> Any:
    """Run a program that finds none of some packages, as if they were not installed."""
    start = WITHOUT.replace("{packages!r}", repr(tuple(packages)))
    return subprocess.run(
        [sys.executable, "-c", start + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (
            None,
            MissingPackageError,
            'this test needs the package broken_package; .* "oodzoo.timm."',
        ),
        ("import no_such_package", MissingPackageError, "needs the package no_such_package"),
        ("raise OSError('wrong\\nABI')", InputError, "fails to import: wrong ABI"),
    ],
)
def test_a_missing_or_broken_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, kind: Any, message: str
) -> None:
    if content is not None:
        (tmp_path / "broken_package.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(kind, match=message) as caught:
        optional_package("broken_package", extra="timm", purpose="this test")
    assert "\n" not in str(caught.value)


def test_packages_of_a_zoo_are_required_before_anything_else(tmp_path: Path, photos: Path) -> None:
    program = """
from pathlib import Path
import oodzoo
from oodzoo.cli import main
try:
    oodzoo.extract(sys.argv.pop(), 'timm/resnet10t.c3_in1k', 'store')
except oodzoo.InputError as error:
    print(error, Path('store').exists(), flush=True)
main()
"""
    out = tmp_path / "job"
    done = run_without(OPTIONAL, program, "run", "nowhere", "--zoo", "modern", "--out", out, photos)
    needs = 'install them with: pip install "oodzoo[{}timm]"'.format
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        f"the zoo needs the packages timm and torch; {needs('')} False\n",
        (
            "oodzoo: --zoo modern needs the packages open-clip-torch, timm and torch; "
            f"{needs('open-clip,')}\n"
        ),
    )
    assert not out.exists()


def test_suggested_commands_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    if not all(map(is_installed, ("onnx2torch", "onnxscript", "torchvision"))):
        pytest.skip("needs the packages of the extra tune")
    for package in ("onnx", "torch"):
        monkeypatch.setitem(sys.modules, package, None)
    run = Run("oodzoo run", predictor=PredictorSummary("model", ("a",), "digest"))
    assert [*(step.title for step in steps(run)), install_hint("tune")][2:] == [
        'Deploy it as one ONNX file (needs onnx: pip install "oodzoo[onnx]")',
        'needs onnx and torch: pip install "oodzoo[tune]"',
    ]
    assert (
        install_hint("torchvision", "parquet") == 'needs torch: pip install "oodzoo[torchvision]"'
    )


def test_no_module_of_tests_needs_an_optional_package() -> None:
    """They can be collected as on a fresh machine."""
    found = run_without(OPTIONAL, COLLECT)
    assert found.returncode == 0, found.stdout[-3000:]


def test_the_package_runs_as_a_module_and_ctrl_c_while_it_is_imported_is_one_line() -> None:
    def run(*arguments: str) -> Any:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    assert run("-m", "oodzoo", "--version") == (0, f"oodzoo {oodzoo.__version__}\n", "")
    code = """
import sys
from oodzoo.__main__ import main

class Interrupts:
    def find_spec(self, name, *rest):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
main()
"""
    assert run("-c", code) == (130, "", "oodzoo: interrupted\n")


def test_the_lowest_versions_are_those_of_the_dependencies() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    tested = [*extras["onnx"], *extras["parquet"], *extras["remote"]]
    dependencies = [*project["dependencies"], *tested]
    listed = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    lowest = [line for line in listed if not line.startswith("#")]
    assert lowest == [dependency.replace(">=", "==") for dependency in dependencies]


def test_the_conda_recipe_has_the_dependencies_and_the_version() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        dependencies = tomllib.load(file)["project"]["dependencies"]
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    listed = [line.removeprefix("    - ").replace(" >=", ">=") for line in run.splitlines()]
    assert listed[0] == "python>=${{ python_min }}"
    assert [name.removeprefix("python-") for name in listed[1:]] == dependencies
    assert f'\n  version: "{oodzoo.__version__}"\n' in recipe


def test_the_citation_has_the_current_version() -> None:
    assert f"\nversion: {oodzoo.__version__}\n" in (ROOT / "CITATION.cff").read_text(
        encoding="utf-8"
    )
