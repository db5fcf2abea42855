"""Rows that name files: which file is meant, and what its sample is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.s3 import Bucket

from oodzoo.data.files import LocalFile
from oodzoo.data.listing import Listing
from oodzoo.data.sources.rows import Row, common_folder, list_columns, list_rows
from oodzoo.errors import InputError
from oodzoo.remote.location import Url

WriteImage = Callable[[Path], Path]


def listed(
    paths: list[Any], base: Path | Url, root: Path | Url | None = None, **other: list[Any]
) -> Listing:
    columns = {"path": paths, "domain": ["d"] * len(paths), "label": ["c"] * len(paths)} | other
    return list_columns("frame", columns, root, base)


def names(listing: Listing) -> list[str]:
    return [sample.path for sample in listing.samples]


def refusal(*args: Any, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        listed(*args, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("'frame'") or "of 'frame'" in message
    return message


# --- local files ------------------------------------------------------------------------------


def test_paths_inside_the_folder_are_relative_to_it(photos: Path) -> None:
    given = ["day/cat/1.png", photos / "day/cat/2.png", str(photos / "night/dog/1.png")]
    listing = listed(given, photos)
    assert names(listing) == ["day/cat/1.png", "day/cat/2.png", "night/dog/1.png"]
    assert listing.root == photos
    assert [str(file) for file in listing.files] == [str(photos / name) for name in names(listing)]
    assert listed(given, photos.parent, photos).samples == listing.samples


def test_paths_elsewhere_are_relative_to_theircommon_folder(photos: Path) -> None:
    folder = photos / "day/cat/tables"
    folder.mkdir()
    absolute = listed([str(photos / "day/cat/1.png"), str(photos / "night/cat/1.png")], folder)
    above = listed(["../1.png", "../../../night/cat/1.png"], folder)
    for listing in (absolute, above):
        assert names(listing) == ["day/cat/1.png", "night/cat/1.png"]
        assert listing.root == photos
        assert [file.read() for file in listing.files] == [
            (photos / name).read_bytes() for name in names(listing)
        ]


def test_relative_folder_stays_relative(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos.parent)
    listing = listed(["day/cat/1.png", photos / "day/cat/2.png"], Path("photos"))
    assert [str(file) for file in listing.files] == [
        str(Path("photos") / name) for name in names(listing)
    ]


def test_file_urls_are_local(photos: Path) -> None:
    listing = listed([(photos / "day/cat/1.png").as_uri()], photos)
    assert names(listing) == ["day/cat/1.png"]
    assert isinstance(listing.files[0], LocalFile)


@pytest.mark.parametrize(
    ("path", "what"),
    [(None, "is missing"), ("", "is missing"), (" ", "is missing"), (float("nan"), "is missing"),
     (7, "is 7"), (b"x", "is b'x'")],
)  # fmt: skip
def test_no_path(photos: Path, path: Any, what: str) -> None:
    assert f"row 1: the path {what}" in refusal(["day/cat/1.png", path], photos)


@pytest.mark.parametrize("again", ["day/cat/1.png", "day//cat/../cat/1.png", "absolute"])
def test_the_same_file_twice(photos: Path, again: str) -> None:
    again = str(photos / "day/cat/1.png") if again == "absolute" else again
    message = refusal(["day/cat/1.png", "day/cat/2.png", again], photos)
    assert message == "'frame' lists 'day/cat/1.png' twice, in rows 0 and 2"


def test_missing_files(photos: Path) -> None:
    paths = ["day/cat/1.png", "day/cat/9.png"]
    message = f"row 1: no such file in {str(photos)!r}: 'day/cat/9.png'"
    assert refusal(paths, photos.parent, photos).endswith(message)
    advice = "; if paths are relative to another folder, give it as root (--root)"
    assert refusal(paths, photos).endswith(message + advice)
    missing = str(photos / "9.png")
    assert refusal([missing], photos).endswith(f"row 0: no such file: {missing!r}")


def test_path_that_is_not_utf8(photos: Path) -> None:
    message = refusal(["day/cat/\udce9.png"], photos)
    assert "not valid UTF-8" in message
    message.encode()


def test_no_rows(photos: Path) -> None:
    assert refusal([], photos) == "'frame' has no rows"


def test_values_are_names(photos: Path) -> None:
    paths = ["day/cat/1.png", "day/cat/2.png"]
    listing = listed(paths, photos, label=[0, 1], domain=["a", "b"], group=[None, 3.0])
    assert [tuple(s)[1:] for s in listing.samples] == [("a", "0", None), ("b", "1", "3")]
    assert "labels of mixed kinds" in refusal(paths, photos, label=[0, "1"])
    assert "row 1: the domain is missing" in refusal(paths, photos, domain=["a", None])


def test_numbers_of_rows_are_those_given(photos: Path) -> None:
    rows = [Row(7, "none.png", "d", "c")]
    with pytest.raises(InputError, match="'t', line 7: no such file"):
        list_rows("t", rows, None, photos, unit="line")


# --- remote files -----------------------------------------------------------------------------


@pytest.fixture
def memory(photos: Path) -> Iterator[Callable[[str], str]]:
    """Copy the photos to a URL in memory."""
    fsspec = pytest.importorskip("fsspec")
    filesystem = fsspec.filesystem("memory")

    def copy(url: str) -> str:
        for path in photos.rglob("*.png"):
            filesystem.pipe_file(f"{url}/{path.relative_to(photos).as_posix()}", path.read_bytes())
        return url

    yield copy
    filesystem.store.clear()


def test_urls_of_one_folder(photos: Path, memory: Callable[[str], str]) -> None:
    url = memory("memory://rows/photos")
    listing = listed([f"{url}/day/cat/1.png", f"{url}/night/dog/2.png"], photos)
    assert names(listing) == ["day/cat/1.png", "night/dog/2.png"]
    assert listing.root is None
    assert [file.read() for file in listing.files] == [
        (photos / name).read_bytes() for name in names(listing)
    ]
    with_root = listed(["day/cat/1.png", f"{url}/night/dog/2.png"], photos, Url(url))
    assert with_root.samples == listing.samples
    assert with_root.files == listing.files


def test_urls_of_several_servers_and_local_files(
    photos: Path, memory: Callable[[str], str]
) -> None:
    given = [f"{memory(f'memory://{name}')}/day/cat/1.png" for name in ("one", "other")]
    assert names(listed(given, photos)) == given
    listing = listed([*given, "day/cat/2.png"], photos)
    assert names(listing) == [*given, (photos / "day/cat/2.png").as_posix()]
    assert listing.root is None
    contents = [file.read() for file in listing.files]
    assert contents[0] == contents[1] == (photos / "day/cat/1.png").read_bytes()
    assert contents[2] == (photos / "day/cat/2.png").read_bytes()


@pytest.mark.parametrize("path", ["../x.png", "/x.png", "memory://other/x.png", "day/../../x.png"])
def test_path_outside_a_remote_root(photos: Path, memory: Callable[[str], str], path: str) -> None:
    url = Url(memory("memory://rows/photos"))
    assert f"row 0: the path {path!r} is outside {str(url)!r}" in refusal([path], photos, url)


def test_remote_files_that_are_missing(photos: Path, memory: Callable[[str], str]) -> None:
    url = memory("memory://rows/photos")
    message = refusal(["day/cat/1.png", "day/cat/9.png"], photos, Url(url))
    assert message.endswith(f"row 1: no such file in {url!r}: 'day/cat/9.png'")
    assert refusal([f"{url}/9.png"], photos).endswith(f"row 0: no such file: '{url}/9.png'")


def test_each_bucket_is_listed_once(photos: Path, s3: Bucket) -> None:
    url = s3.upload(photos, "a/photos")
    s3.put("b/other.png", b"")
    given = [f"{url}/{path.relative_to(photos).as_posix()}" for path in photos.rglob("*.png")]
    assert len(listed(given, photos).files) == 8
    (request,) = s3.proxy.requests
    assert "prefix=a%2Fphotos%2F" in request.line


# --- common folders ---------------------------------------------------------------------------

parts = st.lists(st.sampled_from(["a", "b", "ab", "é"]), min_size=1, max_size=4)


@pytest.mark.parametrize("start", ["/", "s3://bucket/"])
@given(st.lists(parts, min_size=1, max_size=5))
def test_common_folder_is_the_deepest_one(start: str, given: list[list[str]]) -> None:
    places = [start + "/".join([*folders, "x.png"]) for folders in given]
    shared: list[str] = []
    for level in zip(*given, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    expected = (start + "/".join(shared)).rstrip("/") or "/"
    assert common_folder(places) == expected
    assert all(PurePosixPath(place).is_relative_to(expected) for place in places)


@pytest.mark.parametrize(
    "places", [["s3://a/x.png", "s3://b/x.png"], ["/a/x.png", "s3://b/x.png"], ["C:/x", "D:/x"]]
)
def test_nocommon_folder(places: list[str]) -> None:
    assert common_folder(places) is None
