"""Images sorted into folders: names, clashes, links, resuming. Lists of images."""

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
from oodzoo.predictor.input_lists import BadLine, ImageFinder, Line, ListedImage, read_lines
from oodzoo.predictor.sorting import UNSURE, Sorter, folder_names


@given(st.lists(st.one_of(st.text(), st.integers()), unique_by=str, max_size=8))
def test_names_of_folders_are_allowed_everywhere_and_differ(classes: list[str | int]) -> None:
    names = folder_names(classes)
    for name in names.values():
        require_folder_name(name, "this test")
    folded = [name.casefold() for name in names.values()]
    assert len({*folded, UNSURE}) == len(classes) + 1


@pytest.mark.parametrize(
    ("label", "name"),
    [("../x", "__x"), ("a/b\\c", "a_b_c"), ("CON", "_CON"), ("é:1", "é_1"), ("日" * 99, "日" * 53)],
)
def test_odd_classes(label: str, name: str) -> None:
    assert folder_names([label]) == {label: name}


@pytest.fixture
def images(tmp_path: Path, write_image: WriteImage) -> list[LocalFile]:
    """Three different images, two with the same name."""
    paths = [tmp_path / "in" / name for name in ("a/x.png", "b/x.png", "b/y.png")]
    return [LocalFile(str(write_image(path))) for path in paths]


def _sorted(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(files)}


@pytest.mark.parametrize("link", [None, "hard", "soft"])
def test_clashes_get_a_number_and_a_second_run_changes_nothing(
    images: list[LocalFile], tmp_path: Path, link: str | None
) -> None:
    out = tmp_path / "out"
    for run in range(2):
        sorter = Sorter(out, ["cat", "dog"], link)
        places = [sorter.add(image, "cat") for image in images[:2]]
        places.append(sorter.add(images[2], None))
        assert [place.relative_to(out).as_posix() for place in places] == [
            "cat/x.png",
            "cat/x-2.png",
            f"{UNSURE}/y.png",
        ]
        assert sorter.counts == {"cat": 2, UNSURE: 1}
        assert sorter.left == 3 * run
    assert list(_sorted(out).values()) == [images[2].read(), images[1].read(), images[0].read()]
    assert places[0].is_symlink() == (link == "soft")
    assert places[0].samefile(images[0].path) == (link is not None)


def test_no_file_is_replaced(images: list[LocalFile], tmp_path: Path) -> None:
    (tmp_path / "out" / "cat").mkdir(parents=True)
    (tmp_path / "out" / "cat" / "x.png").write_bytes(b"mine")
    (tmp_path / "out" / "cat" / "x-2.png").symlink_to(tmp_path / "nowhere")
    place = Sorter(tmp_path / "out", ["cat"]).add(images[0], "cat")
    assert place.name == "x-3.png"
    assert (tmp_path / "out" / "cat" / "x.png").read_bytes() == b"mine"
    assert not (tmp_path / "nowhere").exists()


def test_images_among_the_sorted_ones_are_an_error(images: list[LocalFile], tmp_path: Path) -> None:
    sorter = Sorter(tmp_path / "in" / "b", ["cat"])
    sorter.require_outside(images[0])
    with pytest.raises(InputError, match="choose a folder outside of the images"):
        sorter.require_outside(images[1])


def test_wrong_use(images: list[LocalFile], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one of hard, soft, got 'symbolic'"):
        Sorter(tmp_path, [], "symbolic")
    with pytest.raises(InputError, match="is not a folder"):
        Sorter(Path(images[0].path), [])


# --- lists of images -----------------------------------------------------------------------------


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
