"""Digits, models and stores as in the tests of extraction, and small stores made without models."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.features.conftest import (
    data,
    digits,
    extract,
    made,
    stamps,
    store,
    tree,
    zoo,
)
from tests.store import tiny
from tests.store.data import fill, letters

__all__ = ["data", "digits", "extract", "made", "stamps", "store", "tree", "zoo"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A store of two models, two domains and nine images; see `tests.store.data.value`."""
    return fill(tmp_path / "small", letters(day="abcde", night="fghi"), "m1", "m2")


@pytest.fixture(scope="session")
def _tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny.extract(tiny.write_images(folder / "images"), ["a", "b"], folder / "store")
    return folder


@pytest.fixture
def images(_tiny: Path, tmp_path: Path) -> Path:
    """Images of three classes in two domains, three of each; see `tests.store.tiny`."""
    return shutil.copytree(_tiny / "images", tmp_path / "images")


@pytest.fixture
def tiny_store(_tiny: Path, tmp_path: Path) -> Path:
    """A store of the images with the models a and b."""
    return shutil.copytree(_tiny / "store", tmp_path / "tiny_store")
