from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from tests.killing import needs_fork
from tests.s3 import Bucket

from oodzoo.errors import InputError
from oodzoo.remote import objects, requests
from oodzoo.remote.failures import RemoteError
from oodzoo.remote.location import Url
from oodzoo.remote.objects import (
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


def test_nothing_is_there(place: Url) -> None:
    assert list_files(place) == []
    assert find_file(place) is None
    write_file(place / "x", b"1")
    assert find_file(place) is None  # it has something below it
    assert list_files(place / "x") == []


def test_an_object_is_replaced_and_never_read_as_the_old_one(place: Url) -> None:
    write_file(place / "x", b"old")
    old = found(place / "x")
    write_file(place / "x", b"new")
    assert found(place / "x").version != old.version
    assert read_file(found(place / "x")) == b"new"
    with pytest.raises(RemoteError, match=r"'.*/x' has changed since it was listed: it is another"):
        read_file(old)
    write_file(place / "x", b"longer")
    with pytest.raises(RemoteError, match="has changed since it was listed: it is another"):
        read_file(old)
    remove_files([place / "x"])
    with pytest.raises(RemoteError, match="has changed since it was listed: it no longer exists"):
        read_file(old)


def test_objects_are_removed(place: Url) -> None:
    for name in ("a", "b", "c*"):
        write_file(place / name, b"1")
    remove_files([place / "a", place / "c*", place / "missing"])
    assert [file.url for file in list_files(place)] == [f"{place}/b"]


def test_an_object_is_created_once(place: Url) -> None:
    def create(number: int) -> bool:
        return create_file(place / "lock", str(number).encode())

    assert create(0)
    assert not create(1)
    assert read_file(found(place / "lock")) == b"0"


def test_one_of_many_creates_an_object(s3: Bucket) -> None:
    url = Url(s3.url) / "lock"
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda n: create_file(url, str(n).encode()), range(8)))
    assert sum(created) == 1
    assert s3.get("lock") == str(created.index(True)).encode()


def test_an_object_whose_creation_was_not_confirmed_is_ours(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the server writes it after the deadline; the repeated request finds an object
    assert list_files(Url(s3.url)) == []  # opens a session, which takes time
    monkeypatch.setattr(requests, "FIRST_DEADLINE", 0.5)
    s3.proxy.slow("^PUT", seconds=0.7, times=2)
    assert create_file(Url(s3.url) / "lock", b"ours")
    assert len(s3.proxy.asked("^PUT")) == 2
    assert not create_file(Url(s3.url) / "lock", b"other")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "BLOCK", 1000)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 4000, 9999])
def test_large_objects_are_read_in_blocks(place: Url, size: int) -> None:
    write_file(place / "x", CONTENT[:size])
    assert read_file(found(place / "x")) == CONTENT[:size]


@pytest.mark.usefixtures("small_blocks")
def test_a_large_object_that_changes_while_it_is_read_is_refused(s3: Bucket) -> None:
    s3.put("x", CONTENT[:9000])
    blocks = objects.iter_blocks(found(Url(s3.url) / "x"))
    next(blocks)
    s3.put("x", CONTENT[1:9001])
    with pytest.raises(RemoteError, match="has changed since it was listed: it is another version"):
        list(blocks)


def test_small_objects_are_read_with_one_request(s3: Bucket) -> None:
    for number in range(5):
        s3.put(f"photos/{number}.png", CONTENT)
    files = list_files(Url(s3.url) / "photos")
    assert len(s3.proxy.requests) == 1
    for file in files:
        assert read_file(file) == CONTENT
    assert len(s3.proxy.requests) == 6


def test_many_objects_are_listed_in_pages(s3: Bucket) -> None:
    for number in range(7):
        s3.put(f"photos/{number}", b"")
    s3.put("photos/folder/", b"")  # as consoles make an empty folder
    real = requests.call_s3

    def paged(*args: object, **options: object) -> object:
        return real(*args, MaxKeys=3, **options)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "call_s3", paged)
        s3.proxy.fail("^GET .*continuation-token", times=2)
        files = list_files(Url(s3.url) / "photos")
    assert [file.url[-1] for file in files] == list("0123456")
    # three pages; the one that failed was repeated alone
    assert len(s3.proxy.asked("continuation-token")) == 4
    assert len(s3.proxy.requests) == 5


FAULTS: dict[str, Callable[[Bucket, str, int], None]] = {
    "fail": lambda s3, pattern, times: s3.proxy.fail(pattern, status=500, times=times),
    "slow down": lambda s3, pattern, times: s3.proxy.fail(pattern, times=times),
    "drop": lambda s3, pattern, times: s3.proxy.drop(pattern, times=times),
    "stall": lambda s3, pattern, times: s3.proxy.stall(pattern, seconds=60, times=times),
    "end early": lambda s3, pattern, times: s3.proxy.truncate(pattern, times=times),
}


@pytest.fixture
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "FIRST_DEADLINE", 0.5)


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("fault", FAULTS)
def test_requests_that_fail_are_repeated(s3: Bucket, fault: str) -> None:
    url = Url(s3.url) / "photos"
    assert list_files(url) == []  # opens a session, which takes time
    s3.put("photos/1", CONTENT)
    FAULTS[fault](s3, "^GET .*list-type", 2)
    FAULTS[fault](s3, "^GET .*photos/1", 2)
    (file,) = list_files(url)
    assert read_file(file) == CONTENT
    if fault != "end early":  # an answer to these has no body
        FAULTS[fault](s3, "^(PUT|HEAD|DELETE)", 2)
    write_file(url / "1", b"new")
    assert s3.get("photos/1") == b"new"
    assert found(url / "1").size == 3
    remove_files([url / "1"])
    assert s3.keys() == []


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("fail", "as told"),
        ("drop", "Server disconnected|Connection was closed"),
        ("stall", r"no answer within 4\.1 s; check the network"),
        ("end early", "payload|ended early|IncompleteRead"),
    ],
)
def test_what_fails_again_and_again_is_an_error(s3: Bucket, fault: str, words: str) -> None:
    s3.put("x", CONTENT)
    file = found(Url(s3.url) / "x")
    FAULTS[fault](s3, "^GET", 100)
    with pytest.raises(RemoteError, match=f"^'s3://.*/x': .*({words})") as error:
        read_file(file)
    assert str(error.value).endswith("; check the network, and rerun the command")
    assert "\n" not in str(error.value)
    assert len(s3.proxy.asked("^GET")) >= requests.ATTEMPTS


def test_a_body_of_another_length_is_not_taken(s3: Bucket) -> None:
    # the server says that the short body is complete
    s3.put("x", CONTENT)
    file = found(Url(s3.url) / "x")
    s3.proxy.replace("^GET", CONTENT[:100], times=1)
    assert read_file(file) == CONTENT
    s3.proxy.replace("^GET", CONTENT[:100])
    with pytest.raises(RemoteError, match="a response ended early, after 100 of 10240 bytes"):
        read_file(file)


def test_access_denied(s3: Bucket) -> None:
    s3.put("x", CONTENT)
    file = found(Url(s3.url) / "x")
    s3.proxy.refuse("")
    for action in (
        lambda: list_files(Url(s3.url)),
        lambda: find_file(Url(s3.url) / "x"),
        lambda: read_file(file),
        lambda: write_file(Url(s3.url) / "x", b""),
        lambda: create_file(Url(s3.url) / "x", b""),
        lambda: remove_files([Url(s3.url) / "x"]),
    ):
        s3.proxy.requests.clear()
        with pytest.raises(RemoteError, match=r"^'s3://.*': access is denied .* permissions$"):
            action()
        assert len(s3.proxy.requests) == 1  # not repeated
    assert s3.get("x") == CONTENT


def test_a_bucket_that_does_not_exist(s3: Bucket) -> None:
    url = Url("s3://no-such-bucket/x")
    for action in (
        lambda: list_files(url),
        lambda: find_file(url),
        lambda: read_file(RemoteFile(str(url), 3, "1")),
        lambda: write_file(url, b""),
        lambda: create_file(url, b""),
    ):
        with pytest.raises(RemoteError) as error:
            action()
        assert str(error.value) == f"'{url}': the bucket does not exist; check its name"


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


def test_an_endpoint_that_cannot_be_reached(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(RemoteError, match=r"Could not connect .*127\.0\.0\.1:9.*; check the netw"):
        list_files(Url(s3.url))


def test_a_bad_bucket_name(s3: Bucket) -> None:
    with pytest.raises(InputError, match=r"^'s3://no_\$/x': .*Invalid bucket name") as error:
        list_files(Url("s3://no_$/x"))
    assert "\n" not in str(error.value)


@needs_fork
def test_a_forked_process_opens_its_own_connections(s3: Bucket) -> None:
    s3.put("x", CONTENT)
    file = found(Url(s3.url) / "x")
    assert read_file(file) == CONTENT
    child = os.fork()
    if not child:
        code = 1
        try:
            code = int(read_file(file) != CONTENT)
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert read_file(file) == CONTENT


def test_threads_read_at_the_same_time(s3: Bucket) -> None:
    s3.put("x", CONTENT)
    file = found(Url(s3.url) / "x")
    s3.proxy.slow("^GET", seconds=0.2)
    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(read_file, [file] * 16)) == {CONTENT}
    assert s3.proxy.most_at_once("^GET") > 10
