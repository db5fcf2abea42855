"""A predictor, and files that are made with it, are complete at any moment.

Processes are killed before each change on disk, or while they upload.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.killing import STEP, Children, children, needs_fork
from tests.predictor import conftest as fixtures
from tests.s3 import Bucket

import oodzoo
from oodzoo import InputError
from oodzoo.cli import main

other = fixtures.other
Process = Callable[..., subprocess.Popen[str]]

HERE = "tests.durability.test_predictor"


@pytest.fixture(scope="module")
def kill() -> Iterator[Children]:
    with children(HERE, "onnxruntime", "safetensors.numpy", "sklearn") as started:
        yield started


def save(source: str, folder: str) -> None:
    oodzoo.load(source).save(folder)


def command(*arguments: str) -> None:
    """Run a command that succeeds, in a process of its own."""
    sys.argv = ["oodzoo", *arguments]
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code


def content(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@needs_fork
def test_a_new_predictor_is_complete_or_missing(
    saved: Path, kill: Children, tmp_path: Path
) -> None:
    moment = 1
    while kill.killed(moment, f"{HERE}:save", saved, folder := tmp_path / f"{moment}" / "model"):
        assert not folder.exists(), moment
        oodzoo.load(saved).save(folder)
        assert content(folder) == content(saved), moment
        assert [path.name for path in folder.parent.iterdir()] == ["model"], moment
        moment += STEP
    assert content(folder) == content(saved)
    assert moment > 8


@needs_fork
def test_a_replaced_predictor_is_the_old_or_the_new_one(
    saved: Path, other: oodzoo.Predictor, kill: Children, tmp_path: Path
) -> None:
    """Twice: the files of the first predictor are in its folder, those of the second below it."""
    start = single = other.save(tmp_path / "other")
    old, new = models(single), models(saved)
    for source in (saved, single):
        moment, seen = 1, []
        while True:
            folder = shutil.copytree(start, tmp_path / f"{source.name}{moment}" / "model")
            if not kill.killed(moment, f"{HERE}:save", source, folder):
                break
            seen.append(models(folder))
            oodzoo.load(source).save(folder)
            assert models(folder) == new, moment
            assert len(content(folder)) == len(content(source) | {".lock"}), moment
            assert [path.name for path in folder.parent.iterdir()] == ["model"], moment
            moment += (STEP + 1) // 2
        assert models(folder) == new
        before = seen.index(new)
        assert seen == [old] * before + [new] * (len(seen) - before)
        assert before > 1
        start, old, new = folder, new, old


def models(folder: Path | str) -> list[str]:
    """The models of a saved predictor, whose files all have the right checksum."""
    return [model.name for model in oodzoo.load(folder).models]


@needs_fork
@pytest.mark.parametrize("name", ["model.onnx", "labels.csv"])
def test_a_file_is_the_old_or_the_new_one(
    saved: Path, unseen: list[Path], kill: Children, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "out" / name
    file.parent.mkdir()
    arguments: list[str | Path] = ["predict", saved, *unseen[:3], "--out", file]
    if name == "model.onnx":
        pytest.importorskip("onnx", reason='merging graphs needs onnx: pip install "oodzoo[onnx]"')
        arguments = ["export", saved, file]
    moment = 1
    while True:
        file.write_bytes(b"old")
        if not kill.killed(moment, f"{HERE}:command", *arguments):
            break
        assert file.read_bytes() == b"old", moment
        moment += (STEP + 1) // 2
    if name == "model.onnx":
        expected = oodzoo.load(saved).export(tmp_path / "expected.onnx")
        assert file.read_bytes() == expected.read_bytes()
    else:
        assert len(file.read_text().splitlines()) == 4
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert moment > 2


SAVE = "import sys, oodzoo; oodzoo.load(sys.argv[1]).save(sys.argv[2])"


@needs_fork
@pytest.mark.parametrize(
    ("moment", "is_killed"),
    [("gaussian", False), ("predictor.json", True)],
)
def test_an_upload_that_fails_or_is_killed_leaves_the_old_predictor(
    predictor: oodzoo.Predictor,
    other: oodzoo.Predictor,
    s3: Bucket,
    process: Process,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    is_killed: bool,
) -> None:
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path / "cache"))
    url, at = f"{s3.url}/model", f"^PUT .*{moment}"
    predictor.save(url)
    before = s3.keys()
    s3.proxy.forget()
    if is_killed:
        s3.proxy.slow(at, seconds=600)
        child = process(SAVE, other.save(tmp_path / "other"), url)
        while not s3.proxy.asked(at):
            assert child.poll() is None, child.communicate()[1]
            time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
        child.wait()
    else:
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        s3.proxy.fail(at, times=None)
        with pytest.raises(InputError, match=rf"^'{url}/.*{moment}.*': .*as told"):
            other.save(url)
    s3.proxy.forget()
    assert models(url) == [model.name for model in predictor.models]
    if not is_killed:
        assert s3.keys() == before
    other.save(url)
    assert models(url) == ["mlp_glyphs_augmented"]
