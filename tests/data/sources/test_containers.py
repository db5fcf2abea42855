"""Files that contain many images: which files a path, a URL or a pattern means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.data.sources.containers import expand_braces, find_containers, read_each
from oodzoo.errors import InputError
from oodzoo.remote.location import Url

TARS = (".tar",)
NAMES = ("a-0.tar", "a-1.tar", "a-2.TAR", "b.tar", ".hidden.tar", "notes.txt", "deep/c.tar")


@pytest.fixture(params=["local", "remote"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | Url]:
    """A folder with some files, local or in memory."""
    if request.param == "local":
        for name in NAMES:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(b"x")
        yield tmp_path
        return
    fsspec = pytest.importorskip("fsspec")
    filesystem = fsspec.filesystem("memory")
    for name in NAMES:
        filesystem.pipe_file(f"memory://containers/tars/{name}", b"x")
    yield Url("memory://containers/tars")
    filesystem.store.clear()


def found(location: Path | Url) -> list[str]:
    return [str(file).rpartition("/")[2] for file in find_containers(location, TARS)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("b.tar", ["b.tar"]),
        ("a-?.tar", ["a-0.tar", "a-1.tar"]),
        ("*.tar", ["a-0.tar", "a-1.tar", "b.tar"]),
        ("a-[1-9].tar", ["a-1.tar"]),
        ("a-{0..1}.tar", ["a-0.tar", "a-1.tar"]),
        ("{b,a-1}.tar", ["b.tar", "a-1.tar"]),
        ("{b,a-?,a-1}.tar", ["b.tar", "a-0.tar", "a-1.tar"]),
        ("d*/c.tar", ["c.tar"]),
    ],
)
def test_patterns(folder: Path | Url, given: str, expected: list[str]) -> None:
    assert found(folder / given) == expected


def test_folder(folder: Path | Url) -> None:
    assert found(folder) == ["a-0.tar", "a-1.tar", "a-2.TAR", "b.tar"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("c.tar", "no such file: '.*c.tar'$"),
        ("c-*.tar", "no file matches '.*c-[*].tar'$"),
        ("a-{0..3}.tar", r"no such file: '.*a-2.tar', which '.*a-\{0..3\}.tar' means$"),
        ("a-{3..0}.tar", "mean no file$"),
        ("a-{0..99999999}.tar", "mean more than 100,000 files$"),
    ],
)
def test_no_such_file(folder: Path | Url, given: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        find_containers(folder / given, TARS)


def test_folder_without_any(folder: Path | Url) -> None:
    with pytest.raises(InputError, match=r"^no .parquet file in '.*'$"):
        find_containers(folder, (".parquet",))


def test_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    for name in ("a[1].tar", "a1.tar", "{x,y}.tar"):
        (tmp_path / name).touch()
    assert found(tmp_path / "a[1].tar") == ["a[1].tar"]
    assert found(tmp_path / "{x,y}.tar") == ["{x,y}.tar"]


def test_results_are_in_order(folder: Path | Url) -> None:
    files = find_containers(folder, TARS)
    assert list(read_each(str, files)) == [str(file) for file in files]


@given(st.integers(0, 3), st.integers(0, 1000), st.integers(0, 20))
def test_ranges_keep_their_width(zeros: int, first: int, more: int) -> None:
    start = "0" * zeros + str(first)
    names = expand_braces(f"x{{{start}..{first + more}}}y")
    assert names == [f"x{str(n).zfill(len(start))}y" for n in range(first, first + more + 1)]


@pytest.mark.parametrize("text", ["x", "{x}", "{}", "x{1.3}", "}{", "{a..b}"])
def test_other_braces_are_part_of_the_name(text: str) -> None:
    assert expand_braces(text) == [text]
