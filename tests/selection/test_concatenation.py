"""Moments and samples of concatenated models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.selection.data import arrays, store

from oodzoo.errors import InputError
from oodzoo.features.source import ArraySource, StoreSource
from oodzoo.moments import Moments
from oodzoo.selection.concatenation import concatenated_moments, concatenated_samples


@pytest.mark.parametrize("kind", ["arrays", "store"])
@pytest.mark.parametrize("models", [["good", "fair", "noise"], ["noise", "good"], ["fair"]])
@pytest.mark.parametrize("domains", [None, ["c", "a"]])
def test_moments_are_those_of_the_concatenated_features(
    kind: str, models: list[str], domains: list[str] | None, tmp_path: Path
) -> None:
    features, y, domain_of = arrays()
    source = (
        ArraySource(features, y, domain_of) if kind == "arrays" else StoreSource(store(tmp_path))
    )
    rows = np.isin(domain_of, domains or ["a", "b", "c"])
    concatenated = np.hstack([features[model] for model in models])[rows]
    expected = Moments.of(concatenated, y[rows], 3)
    for _ in range(2):  # computed, then from the cache
        found = concatenated_moments(source, models, domains)
        for name, array in expected.to_dict().items():
            np.testing.assert_allclose(found.to_dict()[name], array, rtol=1e-10, atol=1e-10)


def test_samples_are_concatenated_in_the_order_of_models_and_domains() -> None:
    features, y, domain_of = arrays()
    X, labels = concatenated_samples(
        ArraySource(features, y, domain_of), ["fair", "good"], ["c", "a"]
    )
    rows = np.concatenate([np.flatnonzero(domain_of == domain) for domain in "ca"])
    np.testing.assert_array_equal(X, np.hstack([features["fair"], features["good"]])[rows])
    np.testing.assert_array_equal(labels, y[rows])


def test_a_pair_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = store(tmp_path)
    source = StoreSource(opened)
    first = concatenated_moments(source, ["good", "fair"])
    assert len(list((opened.path / "cache" / "cross").glob("*.npz"))) == 3, "one for each domain"

    def never(*_: object) -> None:
        raise AssertionError("the pair is cached")

    monkeypatch.setattr("oodzoo.selection.concatenation._compute_cross", never)
    second = concatenated_moments(source, ["fair", "good"])
    np.testing.assert_array_equal(second.gram[:5, 5:], first.gram[7:, :7])


@pytest.mark.parametrize("models", [[], ["good", "good"]])
def test_models_must_be_distinct(models: list[str]) -> None:
    with pytest.raises(InputError, match="models to concatenate must be distinct, got"):
        concatenated_moments(ArraySource(*arrays()), models)
