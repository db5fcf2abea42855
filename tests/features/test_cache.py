"""Cache files: read with the same key, recomputed otherwise."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.store.data import flip

from oodzoo.features import cache
from oodzoo.features.cache import Arrays, cached_arrays


class Computation:
    """Counts its calls and returns their number."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Arrays:
        self.calls += 1
        return {"n": np.array(self.calls), "x": np.arange(3.0)}


def read(path: Path, key: str, compute: Computation, *, keep: bool = True) -> int:
    arrays = cached_arrays(path, key, compute, lambda _: keep)
    assert set(arrays) == {"n", "x"}
    np.testing.assert_array_equal(arrays["x"], np.arange(3.0))
    return int(arrays["n"])


def test_the_same_key_is_read_and_another_computed_again(tmp_path: Path) -> None:
    path, compute = tmp_path / "deep" / "a.npz", Computation()
    assert [read(path, key, compute) for key in ("a", "a", "b", "b", "a")] == [1, 1, 2, 2, 3]


def test_another_version_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compute = Computation()
    read(tmp_path / "a.npz", "a", compute)
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    assert read(tmp_path / "a.npz", "a", compute) == 2


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text"])
def test_a_damaged_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    compute = Computation()
    (tmp_path / "a.npz").write_bytes(content)
    assert [read(tmp_path / "a.npz", "a", compute) for _ in range(2)] == [1, 1]


def test_a_member_hidden_by_a_flipped_bit_is_computed_again(tmp_path: Path) -> None:
    """The central directory of a zip file has no checksum; a length in it hides what follows."""
    path, compute = tmp_path / "a.npz", Computation()
    read(path, "a", compute)
    with zipfile.ZipFile(path) as opened:
        flip(path, 8 * (opened.start_dir + 33) + 6)
    assert read(path, "a", compute) == 2


def test_arrays_that_are_not_kept_are_computed_each_time(tmp_path: Path) -> None:
    compute = Computation()
    assert [read(tmp_path / "a.npz", "a", compute, keep=False) for _ in range(2)] == [1, 2]
    assert not (tmp_path / "a.npz").exists()


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert read(tmp_path / "file" / "a.npz", "a", Computation()) == 1
