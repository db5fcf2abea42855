from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url, is_url, parse_location, url_of_path

NAMES = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1)
URLS = ["s3://b", "gs://b/x", "memory://x", "S3A://b", "git+ssh://h/x"]
PATHS = ["photos", "/a/b", "C:/x", "C://x", "c:\\x", "s3:/b", "a/s3://b", "://x", "", "3d://x"]


def test_urls_and_paths() -> None:
    assert [text for text in URLS + PATHS if is_url(text)] == URLS


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_parts_of_a_url(names: list[str]) -> None:
    url = Url("s3://bucket")
    for name in names:
        child = url / name
        assert (child.name, child.parent) == (name, url)
        assert child.suffix == Path(name).suffix
        url = child
    assert str(url) == "/".join(["s3://bucket", *names])


def test_a_url_has_one_spelling() -> None:
    assert Url("S3://Bucket/x//") == Url("s3://Bucket/x")
    assert str(Url("memory://") / "x") == "memory://x"
    assert str(Url("memory://x").parent) == "memory://"
    assert Url("s3://b/a//b").name == "b"  # a key may have an empty part


def test_locations(tmp_path: Path) -> None:
    assert parse_location("s3://b/x/") == Url("s3://b/x")
    assert parse_location("photos") == Path("photos")
    assert parse_location(tmp_path) == tmp_path
    folder = tmp_path / "a b#?ü"
    assert parse_location(folder.as_uri()) == folder
    assert parse_location("file://localhost/a") == Path("/a")
    assert parse_location("run:/x") == Path("run:/x")  # a folder with a colon
    assert url_of_path("run:/x") is None
    assert url_of_path("s3:\\b\\x") == "s3://b/x"  # as pathlib writes it on Windows


LOST = r"^'s3:/b/x' is not a URL: .*as s3://b/x; .*as text"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("s3://", "'s3://' names no bucket; expected s3://bucket/"),
        ("gs:///x", "'gs:///x' names no bucket"),
        ("file://host/x", "names the host 'host'"),
        ("sftp://me:secret@host/x", "URL of 'host' contains a password"),
        ("s3:/b/x", LOST),
        (Path("s3://b/x"), LOST),
        (Path("s3://b/x/"), LOST),
    ],
)
def test_bad_locations(given: str | Path, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        parse_location(given)
    assert "secret" not in str(error.value)


def test_what_is_not_a_url_is_refused() -> None:
    with pytest.raises(InputError, match="'photos' is not a URL such as"):
        Url("photos")
