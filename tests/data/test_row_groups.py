"""Decoded row groups: decoded once, kept within a bound, for several threads."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oodzoo.data import row_groups
from oodzoo.data.row_groups import GroupCache, _Group, read_cell
from oodzoo.errors import InputError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def group(number: int) -> _Group:
    return _Group(Path("x"), 0, 0, number, "image")


class Cells:
    """Stands for decoded cells."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class Decoder:
    """Counts how often each group is decoded."""

    def __init__(self, cache: GroupCache, nbytes: int = 10) -> None:
        self.cache = cache
        self.nbytes = nbytes
        self.decoded: list[int] = []

    def __call__(self, number: int) -> Cells:
        def decode() -> Cells:
            self.decoded.append(number)
            return Cells(self.nbytes)

        found = self.cache.get(group(number), decode)
        assert isinstance(found, Cells)
        return found


def test_least_recently_used_goes_first() -> None:
    get = Decoder(GroupCache(30))
    for number in (0, 1, 2, 0, 3, 0, 2, 3, 1):
        get(number)
    assert get.decoded == [0, 1, 2, 3, 1]


def test_larger_group_than_the_bound_is_kept_alone() -> None:
    get = Decoder(GroupCache(30))
    get(0)
    get.nbytes = 40
    assert get(1) is get(1)
    get.nbytes = 10
    get(0)
    get(1)
    assert get.decoded == [0, 1, 0, 1]


def test_threads_wait_for_one_of_them() -> None:
    cache = GroupCache(30)
    decoded = []
    started, finish = threading.Event(), threading.Event()

    def decode() -> Cells:
        decoded.append(threading.get_ident())
        started.set()
        finish.wait(60)
        return Cells(10)

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(cache.get, group(0), decode) for _ in range(8)]
        assert started.wait(60)
        finish.set()
        results = [future.result(60) for future in futures]
    assert len(decoded) == 1
    assert all(result is results[0] for result in results)


def test_group_that_failed_is_tried_again() -> None:
    cache = GroupCache(30)

    def fail() -> Cells:
        raise InputError("damaged")

    with pytest.raises(InputError, match="damaged"):
        cache.get(group(0), fail)
    assert isinstance(cache.get(group(0), lambda: Cells(1)), Cells)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.parquet"
    cells = [bytes([n]) * 1000 for n in range(100)]
    pq.write_table(pa.table({"image": cells, "x": range(100)}), path, row_group_size=10)
    return path


@pytest.mark.parametrize(("kept", "decoded"), [(100_000, 10), (30_000, None)])
def test_shuffled_rows(
    file: Path, monkeypatch: pytest.MonkeyPatch, kept: int, decoded: int | None
) -> None:
    cache = GroupCache(kept + 10_000)
    monkeypatch.setattr(row_groups, "_KEPT", cache)
    calls: list[int] = []
    decode = row_groups._decode

    def counted(group: _Group) -> Any:
        calls.append(group.number)
        return decode(group)

    monkeypatch.setattr(row_groups, "_decode", counted)
    order = random.Random(0).sample(range(100), 100)
    with ThreadPoolExecutor(4) as pool:
        cells = list(pool.map(lambda n: read_cell(file, n // 10, n % 10, "image"), order))
    assert cells == [bytes([n]) * 1000 for n in order]
    assert sum(cache._sizes.values()) <= kept + 10_000
    assert decoded is None or len(calls) == decoded


def test_file_that_changes(file: Path) -> None:
    assert read_cell(file, 0, 9, "image") == bytes([9]) * 1000
    pq.write_table(pa.table({"image": [b"new"]}), file)
    assert read_cell(file, 0, 0, "image") == b"new"
    with pytest.raises(InputError, match="changed while it was read"):
        read_cell(file, 0, 9, "image")
    with pytest.raises(InputError, match=r"row group 3 of .* cannot be decoded"):
        read_cell(file, 3, 0, "image")


def test_damaged_pages(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4:400] = bytes(396)
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"row group 0 of .*x.parquet' cannot be decoded: "):
        read_cell(file, 0, 0, "image")


def test_names_with_dots(tmp_path: Path) -> None:
    """A name of a column may look like the field of another one."""
    structs = [{"bytes": b"struct", "path": "1.png"}]
    columns = {"a.b.size": [1], "a.b": [b"flat"], "c.d": structs}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert read_cell(tmp_path / "x.parquet", 0, 0, "a.b") == b"flat"
    assert read_cell(tmp_path / "x.parquet", 0, 0, "c.d.bytes") == b"struct"
