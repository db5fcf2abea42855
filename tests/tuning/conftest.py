"""A folder of images, and a small problem with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tuning import small

from oodzoo.tuning.problem import TuningData


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    return tmp_path / "images"


@pytest.fixture
def problem(folder: Path) -> Iterator[TuningData]:
    with small.problem(folder) as found:
        yield found
