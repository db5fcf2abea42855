"""Cache files: read with the same key, recomputed otherwise."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.store.data import flip

from oodzoo.features import cache
from oodzoo.features.cache import read_cached, write_cached


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A cache file with the key "a"."""
    path = tmp_path / "deep" / "a.npz"
    write_cached(path, "a", {"n": np.array(1), "x": np.arange(3.0)})
    return path


def test_the_same_key_is_read_and_another_is_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read_cached(path, "a")
    assert found is not None
    assert {name: array.tolist() for name, array in found.items()} == {"n": 1, "x": [0, 1, 2]}
    assert read_cached(path, "b") is None
    assert read_cached(path.with_name("b.npz"), "a") is None
    write_cached(path, "b", {})
    assert read_cached(path, "b") == {}
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    assert read_cached(path, "b") is None


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text"])
def test_a_damaged_file_is_not_read(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert read_cached(path, "a") is None


def test_a_member_hidden_by_a_flipped_bit_is_not_left_out(path: Path) -> None:
    """The central directory of a zip file has no checksum; a length in it hides what follows."""
    with zipfile.ZipFile(path) as opened:
        flip(path, 8 * (opened.start_dir + 33) + 6)
    assert read_cached(path, "a") is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    write_cached(tmp_path / "file" / "a.npz", "a", {})
