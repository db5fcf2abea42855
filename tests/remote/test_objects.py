from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.s3 import Bucket

from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.core.remote import objects
from oodzoo.core.remote.location import Url
from oodzoo.core.remote.objects import (
    RemoteError,
    RemoteFile,
    create_file,
    find_file,
    list_files,
    read_file,
    remove_files,
    write_file,
)

CONTENT = bytes(range(256)) * 40


def found(url: Url) -> RemoteFile:
    file = find_file(url)
    assert file is not None
    return file


def test_what_is_written_is_listed_and_read(place: Url) -> None:
    names = ["a", "b/.hidden/c.txt", "ü ?#%20+*[x].bin", "empty", "a.d/e"]
    for name in names:
        write_file(place / name, name.encode() if name != "empty" else b"")
    write_file(Url(f"{place}-other/x"), b"not below")
    files = list_files(place)
    assert [file.url for file in files] == sorted(f"{place}/{name}" for name in names)
    for file in files:
        name = file.url.removeprefix(f"{place}/")
        content = name.encode() if name != "empty" else b""
        assert (file.size, read_file(file)) == (len(content), content)
        assert find_file(Url(file.url)) == file
        assert msgspec.json.decode(msgspec.json.encode(file), type=RemoteFile) == file


def test_an_object_is_replaced_and_never_read_as_the_old_one(place: Url) -> None:
    write_file(place / "x", b"old")
    old = found(place / "x")
    for content in (b"new", b"longer"):
        write_file(place / "x", content)
        assert found(place / "x").version != old.version
        assert read_file(found(place / "x")) == content
        with pytest.raises(RemoteError, match=r"'.*/x' has changed .*: it is another version"):
            read_file(old)
    remove_files([place / "x", place / "missing"])
    assert list_files(place) == []
    with pytest.raises(RemoteError, match="has changed since it was listed: it no longer exists"):
        read_file(old)


def test_an_object_is_created_once(place: Url) -> None:
    assert create_file(place / "lock", b"0")
    assert not create_file(place / "lock", b"1")
    assert create_file(place / "lock", b"0")  # as after an attempt whose answer was lost
    assert read_file(found(place / "lock")) == b"0"


def test_large_objects_are_read_in_blocks(place: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "BLOCK", 1000)
    for size in (0, 1, 1000, 1001, 9999):
        write_file(place / f"{size}", CONTENT[:size])
        assert read_file(found(place / f"{size}")) == CONTENT[:size]


def test_small_objects_are_listed_and_read_with_one_request(s3: Bucket) -> None:
    for number in range(5):
        s3.put(f"photos/{number}.png", CONTENT)
    s3.put("photos/folder/", b"")  # as consoles make an empty folder
    files = list_files(Url(s3.url) / "photos")
    assert len(s3.proxy.requests) == 1
    assert [read_file(file) for file in files] == [CONTENT] * 5
    assert len(s3.proxy.requests) == 6


FAULTS: dict[str, Callable[[Bucket, str, int], None]] = {
    "fail": lambda s3, pattern, times: s3.proxy.fail(pattern, status=500, times=times),
    "drop": lambda s3, pattern, times: s3.proxy.drop(pattern, times=times),
    "stall": lambda s3, pattern, times: s3.proxy.stall(pattern, seconds=60, times=times),
    "end early": lambda s3, pattern, times: s3.proxy.truncate(pattern, times=times),
}


@pytest.mark.usefixtures("short_timeouts")
@pytest.mark.parametrize("fault", FAULTS)
def test_the_client_repeats_requests_that_fail(s3: Bucket, fault: str) -> None:
    url = Url(s3.url) / "photos"
    s3.put("photos/1", CONTENT)
    if fault != "stall":  # for seconds
        FAULTS[fault](s3, "^GET .*list-type", 1)
    FAULTS[fault](s3, "^GET .*photos/1", 1)
    (file,) = list_files(url)
    assert read_file(file) == CONTENT
    if fault == "drop":
        for method in ("PUT", "HEAD", "DELETE"):
            FAULTS[fault](s3, f"^{method}", 1)
    write_file(url / "1", b"new")
    assert s3.get("photos/1") == b"new"
    assert found(url / "1").size == 3
    remove_files([url / "1"])
    assert s3.keys() == []


@pytest.mark.parametrize(
    ("fault", "words"), [("fail", "as told"), ("end early", "payload|IncompleteRead")]
)
def test_what_fails_again_and_again_is_an_error(
    s3: Bucket, fault: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3.put("x", CONTENT)
    file = found(Url(s3.url) / "x")
    FAULTS[fault](s3, "^GET", 100)
    words = f"^'s3://.*/x': .*({words}).*; check the network, and rerun the command$"
    with pytest.raises(RemoteError, match=words):
        read_file(file)


def test_a_body_of_another_length_is_not_taken(s3: Bucket) -> None:
    s3.put("x", CONTENT)
    file = found(Url(s3.url) / "x")
    s3.proxy.replace("^GET", CONTENT[:100])  # the server says that the short body is complete
    with pytest.raises(RemoteError, match="a response ended early, after 100 of 10240 bytes"):
        read_file(file)


def actions(url: Url) -> list[Callable[[], object]]:
    """All that can be done with an object."""
    return [
        lambda: list_files(url.parent),
        lambda: find_file(url),
        lambda: read_file(RemoteFile(str(url), 3, "1")),
        lambda: write_file(url, b""),
        lambda: create_file(url, b""),
        lambda: remove_files([url]),
    ]


def test_access_denied_and_a_bucket_that_does_not_exist(s3: Bucket) -> None:
    s3.put("x", CONTENT)
    s3.proxy.refuse("")
    for number, action in enumerate(actions(Url(s3.url) / "x"), start=1):
        with pytest.raises(RemoteError, match=r"^'s3://.*': access is denied .* permissions$"):
            action()
        assert len(s3.proxy.requests) == number  # not repeated
    assert s3.get("x") == CONTENT
    s3.proxy.forget()
    for action in actions(Url("s3://no-such-bucket/x"))[:5]:
        with pytest.raises(
            RemoteError, match=r"^'s3://no-such-bucket.*': the bucket does not exist"
        ):
            action()


def test_no_credentials(s3: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    with pytest.raises(RemoteError, match=r"no credentials .*AWS_ACCESS_KEY_ID.*FSSPEC_S3_ANON"):
        list_files(Url(s3.url))
    assert s3.proxy.requests == []
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "now")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "given")
    assert list_files(Url(s3.url)) == []


@pytest.mark.parametrize(
    ("settings", "url", "words"),
    [
        (
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"},
            "s3://bucket",
            r"Could not connect .*127\.0\.0\.1:9.*; check the network, and the address",
        ),
        ({"AWS_PROFILE": "none"}, "s3://bucket", "no credentials .*none.*or AWS_PROFILE"),
        ({"AWS_MAX_ATTEMPTS": "1"}, "s3://no_$/x", "Invalid bucket name"),
        ({}, "s4://b/x", "unknown protocol 's4'; did you mean s3"),
        ({}, "xyzzyxyzzy://b/x", "expected one such as s3, gs or https"),
        ({}, "oodzootest://x", "a package is missing: Install it to use it"),
        ({}, "zip://x", "'zip://x' cannot be opened: "),
        ({}, "https://host/folder", "a web server gives no list of files"),
        ({"AWS_MAX_ATTEMPTS": "1"}, "http://127.0.0.1:9/x", "check the network, and the address"),
    ],
)
def test_bad_urls(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], url: str, words: str
) -> None:
    registry = pytest.importorskip("fsspec.registry")
    registry.register_implementation(
        "oodzootest",
        "oodzoo_no_such_package.Filesystem",
        errtxt="Install it to use it",
        clobber=True,
    )
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    action = find_file if url.startswith("http:") else list_files
    with pytest.raises(InputError, match=words) as error:
        action(Url(url))
    assert repr(url) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("memory://x", "fsspec", "remote"),
        ("s3://b/x", "s3fs", "s3"),
        ("s3://b/x", "fsspec", "s3"),
        ("gs://b/x", "gcsfs", "gs"),
    ],
)
def test_a_missing_package(
    monkeypatch: pytest.MonkeyPatch, url: str, package: str, extra: str
) -> None:
    if package != "fsspec":
        pytest.importorskip("fsspec")
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError) as error:
        list_files(Url(url))
    assert str(error.value).startswith(f"'{url}': ")
    assert f"needs the package {package}; " in str(error.value)
    assert f'"oodzoo[{extra}]"' in str(error.value)


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        ([404] * 2, None),  # to HEAD and GET
        ([403] * 2, "access is denied"),
        ([400] * 2, "400"),
        ([503] * 2, "503.*; check the network, and rerun the command"),
    ],
)
def test_answers_of_a_web_server(web_server: Any, statuses: list[int], words: str | None) -> None:
    url = Url(f"http://127.0.0.1:{web_server.server_port}/table.csv")
    file = found(url)
    assert read_file(file) == b"the content"
    web_server.statuses = list(statuses)
    if words is None:
        assert find_file(url) is None
    else:
        with pytest.raises(RemoteError, match=words):
            find_file(url)
    assert not web_server.statuses
    web_server.statuses = statuses[:1]
    with pytest.raises(RemoteError, match=words or "it no longer exists"):
        read_file(file)
    with pytest.raises(RemoteError, match="501"):
        write_file(url, b"new")
