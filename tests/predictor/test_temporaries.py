"""Writing next to what exists: complete at any moment, and nothing of killed runs is left."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.killing import Children, children, needs_fork

import oodzoo
from oodzoo.cli import main
from oodzoo.cli.predict import _replacing
from oodzoo.core.io import remove_stale, temporary_name
from oodzoo.predictor.temporaries import new_folder

Process = Callable[..., subprocess.Popen[str]]

SAVE = "tests.predictor.test_temporaries:save"
COMMAND = "tests.predictor.test_temporaries:command"


@pytest.fixture(scope="module")
def kill() -> Iterator[Children]:
    with children(
        "tests.predictor.test_temporaries", "onnxruntime", "safetensors.numpy", "sklearn"
    ) as started:
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


def models(folder: Path) -> list[str]:
    """The models of a saved predictor, whose files all have the right checksum."""
    return [model.name for model in oodzoo.load(folder).models]


@needs_fork
def test_a_new_predictor_is_complete_or_missing(
    saved: Path, kill: Children, tmp_path: Path
) -> None:
    moment = 1
    while kill.killed(moment, SAVE, saved, folder := tmp_path / f"{moment}" / "model"):
        assert not folder.exists(), moment
        oodzoo.load(saved).save(folder)
        assert content(folder) == content(saved), moment
        assert [path.name for path in folder.parent.iterdir()] == ["model"], moment
        moment += 1
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
            if not kill.killed(moment, SAVE, source, folder):
                break
            seen.append(models(folder))
            oodzoo.load(source).save(folder)
            assert models(folder) == new, moment
            assert len(content(folder)) == len(content(source) | {".lock"}), moment
            assert [path.name for path in folder.parent.iterdir()] == ["model"], moment
            moment += 1
        assert models(folder) == new
        before = seen.index(new)
        assert seen == [old] * before + [new] * (len(seen) - before)
        assert before > 8
        assert len(seen) - before > 2
        start, old, new = folder, new, old


@needs_fork
@pytest.mark.parametrize("kind", ["exported", "predicted"])
def test_a_file_is_the_old_or_the_new_one(
    saved: Path, unseen: list[Path], kill: Children, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "out" / ("model.onnx" if kind == "exported" else "labels.csv")
    file.parent.mkdir()
    arguments: list[str | Path] = ["predict", saved, *unseen[:3], "--out", file]
    if kind == "exported":
        pytest.importorskip("onnx", reason='merging graphs needs onnx: pip install "oodzoo[onnx]"')
        arguments = ["export", saved, file]
    moment = 1
    while True:
        file.write_bytes(b"old")
        if not kill.killed(moment, COMMAND, *arguments):
            break
        assert file.read_bytes() == b"old", moment
        moment += 1
    if kind == "exported":
        expected = oodzoo.load(saved).export(tmp_path / "expected.onnx")
        assert file.read_bytes() == expected.read_bytes()
    else:
        assert len(file.read_text().splitlines()) == 4
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert moment > 2


def test_two_writers_of_one_file(tmp_path: Path) -> None:
    with _replacing(tmp_path / "file") as first:
        first.write("first, ")
        with _replacing(tmp_path / "file") as second:
            second.write("second")
        assert (tmp_path / "file").read_text() == "second"
        first.write("complete")
    assert (tmp_path / "file").read_text() == "first, complete"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_error_leaves_the_old_file_and_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(KeyboardInterrupt), _replacing(tmp_path / "file"):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "folder"):
        raise KeyboardInterrupt
    assert (tmp_path / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    with pytest.raises(OSError, match="not empty"), new_folder(tmp_path / "folder"):
        (tmp_path / "folder" / "mine").mkdir(parents=True)
    assert {path.name for path in tmp_path.rglob("*")} == {"file", "folder", "mine"}


def test_only_what_killed_runs_left_is_removed(process: Process, tmp_path: Path) -> None:
    ended = process("")
    ended.wait()
    running = process("input()")
    own = temporary_name()
    machine = own.split("-")[1]
    stale = [f".tmp-{machine}-{ended.pid}-{'0' * 15}{number}" for number in range(3)]
    kept = [f".tmp-{machine}-{running.pid}-{'0' * 16}", ".tmp-mine", own, "folder"]
    (tmp_path / "folder" / stale[0]).mkdir(parents=True)
    (tmp_path / stale[0] / "models").mkdir(parents=True)
    (tmp_path / stale[1]).touch()
    (tmp_path / stale[2]).symlink_to(tmp_path / "folder")
    for name in kept[:3]:
        (tmp_path / name).mkdir()
    remove_stale(tmp_path)
    remove_stale(tmp_path / "nowhere")
    assert {path.name for path in tmp_path.iterdir()} == set(kept)
    assert (tmp_path / "folder" / stale[0]).exists()
