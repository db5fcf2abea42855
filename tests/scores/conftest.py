"""Fixtures shared by the tests of scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


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
