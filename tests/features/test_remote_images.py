"""Extraction from an object store: the same features as from local files, whatever fails."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.s3 import Bucket

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.core.remote.cache import cached_file
from oodzoo.core.remote.location import Url
from oodzoo.core.remote.objects import RemoteFile, list_files
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.listing import Sample
from oodzoo.extraction.loop import AHEAD, Fetching
from oodzoo.zoo import ModelSpec

# --- remote images -----------------------------------------------------------------------------


MakeZoo = Callable[..., list[ModelSpec]]


def content_of(store: oodzoo.FeatureStore) -> str:
    """SHA-256 of all features, labels and paths."""
    total = hashlib.sha256()
    for model in store.models:
        for domain in (*store.domains, *store.unlabelled):
            total.update(store.features(model, domain).tobytes())
            total.update(repr((store.paths(domain), store.images(domain))).encode())
    return total.hexdigest()


@pytest.fixture
def local(digits: Path, zoo: MakeZoo, tmp_path: Path) -> str:
    return content_of(oodzoo.extract(digits, zoo(), tmp_path / "local", device="cpu"))


def test_equal_to_local_files(
    s3: Bucket, digits: Path, zoo: MakeZoo, tmp_path: Path, local: str
) -> None:
    url = s3.upload(digits, "digits")
    data = ImageDomains(url)
    assert data.fingerprint == ImageDomains(digits).fingerprint
    store = oodzoo.extract(data, zoo(), tmp_path / "store", device="cpu")
    assert content_of(store) == local
    n_requests = len(s3.proxy.asked(r"^GET .*\.png"))
    assert n_requests == len(data)  # hashing and decoding share what was fetched


def test_nothing_is_computed_again_from_another_source(
    s3: Bucket, digits: Path, zoo: MakeZoo, tmp_path: Path, local: str
) -> None:
    url = s3.upload(digits, "digits")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "local").rglob("*.npy")}
    store = oodzoo.extract(url, zoo(), tmp_path / "local", device="cpu")
    assert content_of(store) == local
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "local").rglob("*.npy")} == before


@pytest.mark.usefixtures("short_timeouts")
def test_requests_that_fail_stall_and_end_early(
    s3: Bucket, digits: Path, zoo: MakeZoo, tmp_path: Path, local: str
) -> None:
    url = s3.upload(digits, "digits")
    every = s3.keys()
    keys = [key for key in every if key.endswith(".png")]
    s3.proxy.fail(f"^GET .*/{keys[0]}", times=2)
    s3.proxy.stall(f"^GET .*/{keys[7]}", seconds=60)
    s3.proxy.truncate(f"^GET .*/{keys[19]}")
    s3.proxy.drop(f"^GET .*/{keys[30]}")
    assert content_of(oodzoo.extract(url, zoo(), tmp_path / "store", device="cpu")) == local


@pytest.mark.parametrize("change", ["replaced", "removed", "denied"])
def test_an_image_that_cannot_be_fetched_is_not_left_out(
    s3: Bucket, digits: Path, zoo: MakeZoo, tmp_path: Path, local: str, change: str
) -> None:
    """Rankings of fewer images would differ."""
    url = s3.upload(digits, "digits")
    data = ImageDomains(url)
    key = [key for key in s3.keys() if key.endswith(".png")][11]  # noqa: SIM118
    content = s3.get(key)
    if change == "replaced":
        s3.put(key, content[:-20] + bytes(40))
    elif change == "removed":
        s3.delete(key)
    else:
        s3.proxy.fail(f"^GET .*/{key}", status=403)
    name = key.partition("/")[2]
    with pytest.raises(InputError, match=f"^cannot fetch '{name}': '{s3.url}/{key}'") as caught:
        oodzoo.extract(data, zoo(), tmp_path / "store", device="cpu")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "store").exists()
    s3.put(key, content)
    assert content_of(oodzoo.extract(url, zoo(), tmp_path / "store", device="cpu")) == local


def test_an_image_that_was_not_fetched_for_a_summary_is_not_left_out(
    s3: Bucket, digits: Path, zoo: MakeZoo, tmp_path: Path
) -> None:
    url = s3.upload(digits, "digits")
    key = next(key for key in sorted(s3.keys()) if key.endswith(".png"))
    s3.proxy.refuse(f"^GET .*/{key}")
    data = ImageDomains(url)
    assert data.summary().total.unreadable == 1
    with pytest.raises(InputError, match="cannot fetch"):
        oodzoo.extract(data, zoo(), tmp_path / "store", device="cpu")
    assert not (tmp_path / "store").exists()


def test_processes_read_the_images_themselves(
    s3: Bucket, digits: Path, zoo: MakeZoo, tmp_path: Path, local: str
) -> None:
    url = s3.upload(digits, "digits")
    store = oodzoo.extract(url, zoo(), tmp_path / "store", device="cpu,cpu")
    assert content_of(store) == local


def test_images_in_memory_cannot_be_sent_to_processes(zoo: MakeZoo, tmp_path: Path) -> None:
    class Squares:
        samples = [  # noqa: RUF012
            Sample(f"{n}.ppm", f"d{n % 2}", f"c{n // 2 % 2}") for n in range(8)
        ]

        def open(self, i: int) -> bytes:
            return b"P6 1 1 255 " + bytes([i, i, i])

    with pytest.raises(InputError, match="'Squares' are Python objects, which the engine"):
        oodzoo.extract(ImageDomains(Squares()), zoo(), tmp_path / "store", device="cpu,cpu")
    store = oodzoo.extract(ImageDomains(Squares()), zoo(), tmp_path / "store", device="cpu")
    assert store.n_images == 8


# --- fetching ----------------------------------------------------------------------------------


Group = tuple[str, list[RemoteFile]]


def files_of(group: Group) -> list[RemoteFile]:
    return group[1]


def taken(fetching: Fetching[Group]) -> list[str]:
    names = []
    while (group := fetching.take()) is not None:
        names.append(group[0])
        for file in group[1]:
            assert cached_file(file).read_bytes()  # no request any more
    return names


@pytest.fixture
def groups(s3: Bucket) -> list[Group]:
    """Twelve groups of three small files."""
    for i in range(12):
        for part in "abc":
            s3.put(f"{i:02d}/{part}", f"{i}{part}".encode())
    found = list_files(Url(s3.url))
    return [(f"{i:02d}", [f for f in found if f"/{i:02d}/" in f.url]) for i in range(12)]


def test_groups_are_taken_from_the_iterator_one_by_one_if_nothing_is_remote() -> None:
    """Thousands of local shards are not kept in memory."""
    seen: list[str] = []

    def given() -> object:
        for name in "abc":
            seen.append(name)
            yield name, []

    fetching: Fetching[Group] = Fetching(given(), files_of)  # type: ignore[arg-type]
    fetching.take()
    assert seen == ["a"]


def test_every_file_is_here_and_fetched_once(s3: Bucket, groups: list[Group]) -> None:
    twice = [*groups, ("again", groups[0][1])]
    assert sorted(taken(Fetching(twice, files_of))) == sorted(name for name, _ in twice)
    assert len(s3.proxy.asked("^GET .*/0[0-9]/[abc]")) == 30
    assert s3.proxy.most_at_once("^GET .*/[abc]") > 3


def test_a_slow_file_does_not_hold_up_the_others(s3: Bucket, groups: list[Group]) -> None:
    s3.proxy.slow(r"^GET .*/00/b", seconds=2)
    names = taken(Fetching(groups, files_of))
    assert names[-1] == "00"
    assert sorted(names) == [name for name, _ in groups]


def test_what_cannot_be_fetched_is_named(s3: Bucket, groups: list[Group]) -> None:
    s3.delete("05/c")
    fetching = Fetching(groups, files_of)
    names = []
    while (group := fetching.take()) is not None:
        names.append(group[0])
    assert sorted(names) == [name for name, _ in groups]
    ((file, error),) = fetching.failed.items()
    assert file.url == f"{s3.url}/05/c"
    assert file.url in str(error)


def test_what_could_not_be_fetched_may_be_later(s3: Bucket, groups: list[Group]) -> None:
    """Several groups may need the same archive."""
    ((_, (file, *_)), *_) = groups
    s3.delete("00/a")

    def one_by_one() -> Iterator[Group]:
        yield "before", [file]
        while not fetching.failed:
            time.sleep(0.01)
        s3.put("00/a", b"0a")
        yield "after", [file]

    fetching = Fetching(one_by_one(), files_of)
    assert [group[0] for group in iter(fetching.take, None)] == ["before", "after"]
    assert not fetching.failed


def test_the_number_of_groups_under_way_is_limited(s3: Bucket, groups: list[Group]) -> None:
    s3.proxy.slow("^GET .*/[abc]", seconds=0.2)
    started: list[str] = []

    def noted(group: Group) -> list[RemoteFile]:
        started.append(group[0])
        return group[1]

    fetching = Fetching(groups, noted)
    fetching.take()
    assert len(started) == AHEAD
    fetching.close()
