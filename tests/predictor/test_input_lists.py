"""Lists of images: lines as they come, files, folders and lines that name nothing."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from tests.conftest import WriteImage

from oodzoo.predictor.input_lists import BadLine, ImageFinder, Line, ListedImage, read_lines


def _texts(content: bytes, **options: bool) -> list[tuple[int, str]]:
    groups = read_lines(io.BytesIO(content), **options)
    return [(line.number, line.text) for group in groups for line in group]


def test_lines() -> None:
    assert _texts(b"a.png\r\n\n  \nb c.png") == [(1, "a.png"), (4, "b c.png")]
    assert _texts("\ufeffä.png\n".encode()) == [(1, "ä.png")]
    assert _texts(b"") == []
    assert [os.fsencode(text) for _, text in _texts(b"a\xff.png\n")] == [b"a\xff.png"]
    name = "x" * 100_000  # across many reads
    assert _texts(f"{name}\n{name}\n".encode()) == [(1, name), (2, name)]


def test_lines_that_end_with_nul_may_have_newlines() -> None:
    assert _texts(b"a\nb.png\0\0 \0", null=True) == [(1, "a\nb.png"), (3, " ")]


def test_a_group_is_what_is_there_to_read() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", 0) as pipe:
        groups = read_lines(stream)
        pipe.write(b"a.png\nb.png\nc.p")
        assert [line.text for line in next(groups)] == ["a.png", "b.png"]
        pipe.write(b"ng\n")
        assert next(groups) == [Line(3, "c.png")]
        pipe.write(b"d.png")
        pipe.close()
        assert next(groups) == [Line(4, "d.png")]
        assert list(groups) == []


def test_files_folders_and_lines_that_name_nothing(tmp_path: Path, write_image: WriteImage) -> None:
    one = write_image(tmp_path / "one.png")
    inside = [write_image(tmp_path / "folder" / name) for name in ("a.png", "b.png")]
    (tmp_path / "empty").mkdir()
    texts = [
        str(one),
        str(tmp_path / "none.png"),
        str(tmp_path / "folder"),
        str(tmp_path / "empty"),
    ]
    texts += ["s3:///x", "file://" + str(one)]
    lines = [Line(number, text) for number, text in enumerate(texts, start=1)]
    found = list(ImageFinder().find(lines))
    images = [(each.line.number, str(each.file)) for each in found if isinstance(each, ListedImage)]
    assert images == [(1, str(one)), (3, str(inside[0])), (3, str(inside[1])), (6, str(one))]
    bad = {each.line.number: each.reason for each in found if isinstance(each, BadLine)}
    assert set(bad) == {2, 4, 5}
    assert bad[2] == f"no such file or folder: {texts[1]!r}"
    assert "has no images" in bad[4]
    assert "names no bucket" in bad[5]


def test_what_is_in_a_folder_of_an_earlier_line_is_found_once(
    tmp_path: Path, write_image: WriteImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_image(tmp_path / "photos" / "deep" / "a.png")
    write_image(tmp_path / "photos2" / "b.png")
    monkeypatch.chdir(tmp_path)
    written = ["./photos", "./photos/deep", "photos/deep/a.png", "photos2/b.png"]
    finder, found = ImageFinder(), []
    for number, text in enumerate(written, start=1):  # a group each
        found += list(finder.find([Line(number, text)]))
    assert [each.line.number for each in found] == [1, 4]
