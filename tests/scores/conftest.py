"""Inputs that the tests of the scores share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """The matrices are small: more threads than idle cores make the tests many times slower."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def iris() -> tuple[Any, Any]:
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    return X, y


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
