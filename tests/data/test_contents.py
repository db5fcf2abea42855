"""Hashing and trying to decode image files: order, progress, reasons."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oodzoo.data import contents
from oodzoo.data.contents import hashes, inspect, read_contents
from oodzoo.data.files import EmbeddedFile, ImageFile, LocalFile

WriteImage = Callable[[Path], Path]


def test_order_of_more_files_than_one_call_reads(tmp_path: Path) -> None:
    paths = {f"image {i}": tmp_path / str(i) for i in reversed(range(100))}
    for path in paths.values():
        path.write_text(path.name)
    found = inspect({name: LocalFile(str(path)) for name, path in paths.items()})
    assert [(name, content.digest) for name, content in found.items()] == [
        (name, hashlib.sha256(path.name.encode()).hexdigest()) for name, path in paths.items()
    ]


class Slices(list[ImageFile]):
    """Counts how often a part of it was taken."""

    taken = 0

    def __getitem__(self, at: Any) -> Any:
        self.taken += 1
        return super().__getitem__(at)


def test_few_of_many_files_are_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "READ_AHEAD", 3)
    files = Slices(EmbeddedFile(b"%d" % n) for n in range(1000))
    found = read_contents(files)
    digests = [next(found).digest]
    assert files.taken == 4
    digests += [content.digest for content in found]
    assert digests == [hashlib.sha256(b"%d" % n).hexdigest() for n in range(1000)]


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
    decoded = inspect(files, decode=True)
    assert decoded["text"].problem == "not an image that Pillow can identify"
    found = hashes(decoded)
    assert found.unreadable == {"missing": "No such file or directory"}
    assert [digest is None for digest in found.digests] == [False, True, False]
