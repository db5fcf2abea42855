"""Images sorted into folders, and lists of images; rare names and streams, which commands share."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import WriteImage

from oodzoo.core.errors import InputError
from oodzoo.core.io import require_folder_name
from oodzoo.data.files import LocalFile
from oodzoo.predictor.filing import (
    UNSURE,
    BadLine,
    ImageFinder,
    Line,
    ListedImage,
    Sorter,
    folder_names,
    read_lines,
)


@given(st.lists(st.one_of(st.text(), st.integers()), unique_by=str, max_size=8))
def test_names_of_folders_are_allowed_everywhere_and_differ(classes: list[str | int]) -> None:
    names = folder_names(classes)
    for name in names.values():
        require_folder_name(name, "this test")
    folded = [name.casefold() for name in names.values()]
    assert len({*folded, UNSURE}) == len(classes) + 1
    odd = {"../x": "__x", "a/b\\c": "a_b_c", "CON": "_CON", "é:1": "é_1", "日" * 99: "日" * 53}
    assert {label: folder_names([label])[label] for label in odd} == odd


@pytest.mark.parametrize("link", [None, "hard", "soft"])
def test_clashes_get_a_number_and_a_second_run_changes_nothing(
    write_image: WriteImage, tmp_path: Path, link: str | None
) -> None:
    paths = [tmp_path / "in" / name for name in ("a/x.png", "b/x.png", "b/y.png")]
    images = [LocalFile(str(write_image(path))) for path in paths]
    out, cat = tmp_path / "out", tmp_path / "out" / "cat"
    cat.mkdir(parents=True)
    (cat / "x.png").write_bytes(b"mine")  # no file is replaced
    (cat / "x-2.png").symlink_to(tmp_path / "nowhere")
    for run in range(2):
        sorter = Sorter(out, ["cat", "dog"], link)
        places = [sorter.add(image, "cat") for image in images[:2]]
        places.append(sorter.add(images[2], None))
        expected = [cat / "x-3.png", cat / "x-4.png", out / UNSURE / "y.png"]
        assert (places, sorter.left) == (expected, 3 * run)
        assert sorter.counts == {"cat": 2, UNSURE: 1}
    for place, image in zip(places, images, strict=True):
        assert place.read_bytes() == image.read()
        assert place.is_symlink() == (link == "soft")
        assert place.samefile(image.path) == (link is not None)
    assert (cat / "x.png").read_bytes() == b"mine"
    assert not (tmp_path / "nowhere").exists()
    sorter = Sorter(tmp_path / "in" / "b", ["cat"])
    sorter.require_outside(images[0])
    with pytest.raises(InputError, match="choose a folder outside of the images"):
        sorter.require_outside(images[1])
    with pytest.raises(InputError, match="one of hard, soft, got 'symbolic'"):
        Sorter(tmp_path, [], "symbolic")
    with pytest.raises(InputError, match="is not a folder"):
        Sorter(paths[0], [])


LONG = b"x" * 100_000  # across many reads


@pytest.mark.parametrize(
    ("content", "null", "expected"),
    [
        (b"a.png\r\n\n  \nb c.png", False, [(1, b"a.png"), (4, b"b c.png")]),
        ("\ufeffä.png\n".encode(), False, [(1, "ä.png".encode())]),
        (b"", False, []),
        (b"a\xff.png\n", False, [(1, b"a\xff.png")]),
        (LONG + b"\n" + LONG + b"\n", False, [(1, LONG), (2, LONG)]),
        (b"a\nb.png\0\0 \0", True, [(1, b"a\nb.png"), (3, b" ")]),
    ],
)
def test_lines(content: bytes, null: bool, expected: list[tuple[int, bytes]]) -> None:
    groups = read_lines(io.BytesIO(content), null=null)
    found = [(line.number, os.fsencode(line.text)) for group in groups for line in group]
    assert found == expected


def test_files_folders_and_lines_that_name_nothing(
    tmp_path: Path, write_image: WriteImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one.png", "folder/a.png", "folder/deep/b.png", "folder2/c.png"):
        write_image(tmp_path / name)
    (tmp_path / "empty").mkdir()
    texts = ["one.png", "none.png", "./folder", "empty", "s3:///x", f"file://{tmp_path}/one.png"]
    texts += ["./folder/deep", "folder/a.png", "folder2/c.png"]  # in a folder before: found once
    finder, found = ImageFinder(), []
    for number, text in enumerate(texts, start=1):  # a group each
        found += list(finder.find([Line(number, text)]))
    numbers = [each.line.number for each in found if isinstance(each, ListedImage)]
    assert numbers == [1, 3, 3, 6, 9]
    bad = {each.line.number: each.reason for each in found if isinstance(each, BadLine)}
    assert set(bad) == {2, 4, 5}
    assert bad[2] == "no such file or folder: 'none.png'"
    assert "has no images" in bad[4]
    assert "names no bucket" in bad[5]
