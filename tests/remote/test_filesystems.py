from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
from tests.s3 import Bucket

from oodzoo.errors import InputError, MissingPackageError
from oodzoo.remote.failures import RemoteError
from oodzoo.remote.filesystems import (
    filesystem_class,
    give_back,
    shared_filesystem,
    take_filesystem,
)
from oodzoo.remote.location import Url


@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        ("s4", "unknown protocol 's4'; did you mean s3"),
        ("htps", "did you mean https"),
        ("xyzzyxyzzy", "expected one such as s3, gs or https"),
    ],
)
def test_an_unknown_protocol(scheme: str, words: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(RemoteError) as error:
        filesystem_class(Url(f"{scheme}://b/x"))
    assert words in str(error.value)
    assert f"'{scheme}://b/x'" in str(error.value)


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
        filesystem_class(Url(url))
    assert str(error.value).startswith(f"'{url}': ")
    assert f"needs the package {package}; " in str(error.value)
    assert f'"oodzoo[{extra}]"' in str(error.value)


def test_another_package_is_named_by_fsspec() -> None:
    registry = pytest.importorskip("fsspec.registry")
    registry.register_implementation(
        "oodzootest", "oodzoo_no_such_package.Filesystem", errtxt="Install it to use it"
    )
    with pytest.raises(RemoteError, match=r"'oodzootest://x': a package .*: Install it to use it"):
        filesystem_class(Url("oodzootest://x"))


def test_a_protocol_that_is_no_place_is_refused() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(InputError, match=r"^'zip://x' cannot be opened: "):
        take_filesystem(Url("zip://x"))


def test_threads_share_a_filesystem(s3: Bucket) -> None:
    url = Url(s3.url)
    found: list[Any] = [shared_filesystem(url)]
    thread = threading.Thread(target=lambda: found.append(shared_filesystem(url / "x")))
    thread.start()
    thread.join()
    assert found[0] is found[1]
    assert not found[0].dircache.use_listings_cache


def test_other_credentials_open_another_filesystem(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shared_filesystem(Url(s3.url))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    assert shared_filesystem(Url(s3.url)) is not first


def test_blocking_requests_do_not_share_a_filesystem(in_memory: Url) -> None:
    assert shared_filesystem(in_memory) is None
    first, second = take_filesystem(in_memory), take_filesystem(in_memory)
    assert first is not second
    give_back(in_memory, first)
    assert take_filesystem(in_memory) is first
