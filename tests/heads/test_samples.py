"""Moments and standardisation against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oodzoo.heads import samples as module
from oodzoo.heads.samples import mean_and_std, standardised


@pytest.fixture
def features(monkeypatch: pytest.MonkeyPatch) -> NDArray[Any]:
    """Seven rows in blocks of three; the last feature is constant."""
    monkeypatch.setattr(module, "_ROWS", 3)
    rows = np.random.default_rng(0).normal(3, 2, size=(7, 4))
    rows[:, 3] = 0.1
    return rows


def test_mean_and_standard_deviation(features: NDArray[Any]) -> None:
    mean, std = mean_and_std(features)
    np.testing.assert_allclose(mean, features.mean(axis=0))
    np.testing.assert_allclose(std[:3], features[:, :3].std(axis=0))
    mean, std = mean_and_std(features[:3])
    assert mean[3] != 0.1  # rounded
    assert std[3] == 0


def test_standardised_features(features: NDArray[Any]) -> None:
    found = standardised(features, *mean_and_std(features), "float64")
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(found.std(axis=0), [1, 1, 1, 0])
    assert standardised(features, *mean_and_std(features)).dtype == np.float32
