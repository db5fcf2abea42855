from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from tests.s3 import Bucket

from oodzoo.core.errors import DiskError, InputError
from oodzoo.core.io import temporary_name
from oodzoo.core.remote.cache import cache_folder, cache_size, cached_file, drop_cached
from oodzoo.core.remote.location import Url
from oodzoo.core.remote.objects import RemoteFile, find_file, write_file


def put(place: Url, name: str, content: bytes) -> RemoteFile:
    write_file(place / name, content)
    file = find_file(place / name)
    assert file is not None
    return file


def age(path: Path, seconds: float) -> Path:
    """Pretend that a file was last used some time ago."""
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_an_object_is_fetched_once(s3: Bucket, cache: Path) -> None:
    file = put(Url(s3.url), "photos/cat.tar", b"content")
    s3.proxy.forget()
    path = cached_file(file)
    assert path.read_bytes() == b"content"
    assert path.is_relative_to(cache)
    assert path.suffix == ".tar"
    assert cached_file(file) == path
    assert len(s3.proxy.requests) == 1
    assert files(cache) == [path]


def test_a_damaged_or_lost_file_is_fetched_again(place: Url) -> None:
    file = put(place, "x", b"content")
    path = cached_file(file)
    path.write_bytes(b"con")
    assert cached_file(file).read_bytes() == b"content"
    path.unlink()
    assert cached_file(file).read_bytes() == b"content"
    path.write_bytes(b"CONTENT")
    drop_cached(file)  # the user has noticed it
    drop_cached(file)
    assert cached_file(file).read_bytes() == b"content"


def test_the_least_recently_used_go_first(
    in_memory: Url, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OODZOO_CACHE_SIZE", "5K")
    objects = [put(in_memory, str(n), bytes(1000)) for n in range(5)]
    paths = [age(cached_file(file), 1000 - n) for n, file in enumerate(objects)]
    assert len(files(cache)) == 5  # exactly full
    cached_file(objects[0])  # used now
    new = cached_file(put(in_memory, "new", bytes(1000)))
    assert files(cache) == sorted([paths[0], *paths[3:], new])  # at most 90 %


def test_what_killed_processes_left_is_removed(
    in_memory: Url, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cached_file(put(in_memory, "x", b"1"))
    stale = path.parent / temporary_name()
    stale.write_bytes(b"half")
    age(stale, 100_000)
    fresh = path.parent / temporary_name()
    fresh.write_bytes(b"half")
    monkeypatch.setenv("OODZOO_CACHE_SIZE", "10")  # it is measured with each new file
    cached_file(put(in_memory, "y", b"2"))
    assert not stale.exists()
    assert fresh.exists()


def test_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == tmp_path / "object-cache"
    monkeypatch.delenv("OODZOO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "xdg"))
    if sys.platform != "darwin":
        assert cache_folder() == tmp_path / "xdg" / "oodzoo"
    monkeypatch.setenv("OODZOO_CACHE", "relative")
    assert cache_folder() == Path.cwd() / "relative"


@pytest.mark.parametrize(
    ("given", "size"),
    [("500M", 5e8), ("20G", 2e10), ("1.5T", 1.5e12), ("7", 7), ("3kb", 3000), ("", 2e10)],
)
def test_the_size(monkeypatch: pytest.MonkeyPatch, given: str, size: float) -> None:
    monkeypatch.setenv("OODZOO_CACHE_SIZE", given)
    assert cache_size() == size


@pytest.mark.parametrize("given", ["-1G", "many", "1X", "1e9", "nan"])
def test_a_bad_size(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("OODZOO_CACHE_SIZE", given)
    with pytest.raises(InputError, match=f"OODZOO_CACHE_SIZE .* 20G, got '{given}'"):
        cache_size()


def test_a_folder_that_cannot_be_written(
    in_memory: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path / "file"))
    with pytest.raises(DiskError, match="not a folder; the variable OODZOO_CACHE sets the folder"):
        cached_file(put(in_memory, "x", b"1"))
