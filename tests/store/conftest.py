"""Digits, models and stores as in the tests of extraction, and small stores made without models."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.features.conftest import (
    data,
    digits,
    extract,
    made,
    make_model,
    stamps,
    store,
    tree,
    zoo,
    zoo_file,
)
from tests.store.data import fill, letters

__all__ = [
    "data",
    "digits",
    "extract",
    "made",
    "make_model",
    "stamps",
    "store",
    "tree",
    "zoo",
    "zoo_file",
]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A store of two models, two domains and nine images; see `tests.store.data.value`."""
    return fill(tmp_path / "small", letters(day="abcde", night="fghi"), "m1", "m2")
