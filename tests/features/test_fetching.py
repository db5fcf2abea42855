"""Fetching ahead: groups come when they are here, and a slow one does not hold up the others."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.s3 import Bucket

from oodzoo.features.loop import AHEAD, Fetching
from oodzoo.remote.cache import cached_file
from oodzoo.remote.location import Url
from oodzoo.remote.objects import RemoteFile, list_files

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
