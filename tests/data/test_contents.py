"""Hashing and trying to decode image files: order, progress, reasons."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from oodzoo.data.contents import hashes, inspect
from oodzoo.data.files import LocalFile

WriteImage = Callable[[Path], Path]


def test_order_of_more_files_than_one_call_reads(tmp_path: Path) -> None:
    paths = {f"image {i}": tmp_path / str(i) for i in reversed(range(100))}
    for path in paths.values():
        path.write_text(path.name)
    found = inspect({name: LocalFile(str(path)) for name, path in paths.items()})
    assert [(name, content.digest) for name, content in found.items()] == [
        (name, hashlib.sha256(path.name.encode()).hexdigest()) for name, path in paths.items()
    ]


def test_no_files() -> None:
    assert hashes(inspect({})) == ((), {})


def test_progress_counts_files(tmp_path: Path, write_image: WriteImage) -> None:
    files = {str(i): LocalFile(str(write_image(tmp_path / f"{i}.png"))) for i in range(40)}
    calls: list[tuple[int, int]] = []
    inspect(files, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(16, 40), (32, 40), (40, 40)]


def test_only_files_without_a_digest_are_unreadable(
    tmp_path: Path, write_image: WriteImage
) -> None:
    (tmp_path / "text.png").write_text("no picture")
    files = {
        "good": LocalFile(str(write_image(tmp_path / "good.png"))),
        "missing": LocalFile(str(tmp_path / "missing.png")),
        "text": LocalFile(str(tmp_path / "text.png")),
    }
    assert {path: c.problem for path, c in inspect(files).items()} == {
        "good": None,
        "missing": "No such file or directory",
        "text": None,
    }
    contents = inspect(files, decode=True)
    assert contents["text"].problem == "not an image that Pillow can identify"
    found = hashes(contents)
    assert found.unreadable == {"missing": "No such file or directory"}
    assert [digest is None for digest in found.digests] == [False, True, False]
