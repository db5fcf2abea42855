"""Fixtures for all tests: small image folders, commands, processes, small disks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

# Tests multiply small matrices, also in processes that they start: more threads than idle cores
# make them many times slower. It must be set before NumPy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Nothing is downloaded. It is read when huggingface_hub is imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from oodzoo.cli import main

# Every module is imported for its doctests; these need PyTorch.
NEED_TORCH = ["oracles/domainbed_erm.py", "oracles/fine_tuning.py"]
collect_ignore = [] if find_spec("torch") else NEED_TORCH

pytest_plugins = ["tests.chromium", "tests.fixtures", "tests.s3"]

WriteImage = Callable[[Path], Path]


@pytest.fixture(scope="session", autouse=True)
def no_fsync() -> Iterator[None]:
    """It takes most of the time of writing, and only a machine that stops needs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def cache_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache folder that is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OODZOO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def write_image() -> WriteImage:
    """A function that writes a tiny unique image and returns its path."""
    written = 0

    def write(path: Path) -> Path:
        nonlocal written
        written += 1
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (written % 256, written // 256, 7)).save(path)
        return path

    return write


@pytest.fixture
def photos(tmp_path: Path, write_image: WriteImage) -> Path:
    """A valid folder of 2 domains x 2 classes x 2 images."""
    root = tmp_path / "photos"
    for domain in ("day", "night"):
        for label in ("cat", "dog"):
            for name in ("1.png", "2.png"):
                write_image(root / domain / label / name)
    return root


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another disk
        shutil.copy2(source, target)
    return target


def linked(source: Path, target: Path) -> Path:
    """A copy of a folder by hard links: its files must be replaced, not written into."""
    return Path(shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True))


class Outcome(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The error message of bad input: one line, or one JSON object, and no other output."""
        assert (self.code, self.out) == (2, "")
        (line,) = self.err.splitlines()
        if line.startswith("{"):  # --json was given
            error = json.loads(line)
            assert (set(error), error["code"]) == ({"error", "code"}, 2)
            return f"oodzoo: {error['error']}"
        assert line.startswith("oodzoo: ")
        return line


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process, which is faster than starting another one."""
    for name in ("COLUMNS", "FORCE_COLOR"):  # results do not depend on the shell
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["oodzoo", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Outcome(int(ended.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a Python program in another process; it is killed at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def process(program: str, *arguments: str | Path) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(child)
        return child

    yield process
    for child in started:
        child.kill()
        child.communicate()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a file system in memory with some options; skips where that is not allowed."""
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", os.fspath(folder)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("mounting a small disk is not allowed here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", os.fspath(folder)], check=True)
