"""Which models and samples are compared, and the noise of their features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.leaks.data import extract_copies, planted
from tests.oracles import leaks as oracle

from oodzoo.leaks import space
from oodzoo.leaks.space import FeatureSpace, choose_models, list_samples
from oodzoo.store.feature_store import FeatureStore


def test_models_are_spread_from_narrow_to_wide(tmp_path: Path) -> None:
    drawn = planted(per_domain=10)
    rng = np.random.default_rng(0)
    drawn.models = {f"m{width:02d}": rng.normal(size=(30, width)) for width in range(2, 13)}
    store = drawn.store(tmp_path)
    assert choose_models(store, 3) == ("m02", "m07", "m12")
    assert len(choose_models(store)) == space.MODELS
    assert choose_models(store, 1) == ("m02",)
    assert choose_models(store, 100) == store.models


def test_noise_is_that_of_pairs_of_different_domains(tmp_path: Path) -> None:
    drawn = planted()
    store = drawn.store(tmp_path)
    samples = list_samples(store, store.models)
    found = FeatureSpace(store, store.models, samples)
    across = [
        abs(value)
        for (i, j), value in oracle.similarities(list(drawn.models.values())).items()
        if drawn.domains[i] != drawn.domains[j]
    ]
    assert found.noise == pytest.approx(1.4826 * np.median(across), abs=1e-4)
    assert found.width == 300
    assert np.linalg.norm(found.rows(np.arange(5)), axis=1) == pytest.approx(1)


def test_noise_of_one_domain_is_that_of_all_pairs(tmp_path: Path) -> None:
    store = planted().store(tmp_path)
    some = set(store.images("ink"))
    samples = list_samples(store, store.models, some)
    assert len(samples) == 40
    assert 0 < FeatureSpace(store, store.models, samples).noise < space.USELESS


def test_samples_have_their_columns(tmp_path: Path) -> None:
    folder = extract_copies(tmp_path)
    store = FeatureStore(folder / "store")
    samples = list_samples(store, store.models)
    assert samples.domain_names == ("chalk", "marker", "paper", "target")
    at = samples.paths.index("other.jpg")
    assert samples.place(at) == ("other.jpg", "target", None)
    at = samples.paths.index("paper/1/exact.png")
    assert samples.place(at) == ("paper/1/exact.png", "paper", "1")
    assert samples.images.count(samples.images[at]) == 2
    assert (samples.groups == -1).all()


def test_groups_are_numbered(tmp_path: Path) -> None:
    drawn = planted(per_domain=10)
    drawn.groups[3] = drawn.groups[4] = "burst"
    drawn.groups[5] = "other"
    store = drawn.store(tmp_path)
    groups = list_samples(store, store.models).groups
    assert groups[3] == groups[4] >= 0
    assert groups[5] not in (-1, groups[3])
    assert (groups[6:] == -1).all()
