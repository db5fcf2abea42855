"""Races with models of the embedded zoo on handwritten digits."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fixtures import draw_digits
from tests.killing import Children, children, needs_fork

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.outcome import Extraction, ExtractionConfig
from oodzoo.ranking.policy import POOL
from oodzoo.ranking.racing import Race, race
from oodzoo.zoo import ModelSpec

MODELS = (
    "resnet_glyphs_augmented",
    "separable_glyphs_colour",
    "resnet_contrastive",
    "mlp_glyphs_augmented",
    "separable_shapes",
    "cnn_photos",
    "separable_random",
    "mixer_random",
)


def some_models() -> list[ModelSpec]:
    known = {spec.name: spec for spec in oodzoo.load_zoo("demo")}
    return [known[name] for name in MODELS]


def race_in(data: str, store: str) -> None:
    """Race in a child process."""
    race(data, some_models(), store, device="cpu")


def plain(data: Path, store: Path) -> Extraction:
    config = ExtractionConfig(device="cpu")
    return run_extraction(ImageDomains(data), some_models(), store, config)[1]


def choices(result: Race) -> list[Any]:
    """What must not depend on when a race was interrupted."""
    document = result.to_dict()
    document.pop("seconds")
    return [document, result.store.models, result.store.fingerprint]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three domains x three classes x 20 digits. Tests must not change them."""
    return draw_digits(tmp_path_factory.mktemp("images"), 20)


@pytest.fixture(scope="module")
def raced(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Race:
    """A race without a budget. Tests must not change it."""
    store = tmp_path_factory.mktemp("raced") / "store"
    return race(images, some_models(), store, device="cpu")


def test_models_are_kept_or_dropped_with_a_reason(raced: Race) -> None:
    kept = raced.rounds[-1].decision.kept
    assert raced.store.models == tuple(sorted(kept))
    assert len(kept) >= POOL
    assert sorted([*kept, *raced.dropped]) == sorted(MODELS)
    assert raced.dropped
    assert raced.rounds[0].ranking.best in kept
    assert raced.store.n_images == 180
    rows = {(each.number, row.model): row for each in raced.rounds for row in each.ranking.rows}
    for model, dropped in raced.dropped.items():
        row, played = rows[dropped.round, model], raced.rounds[dropped.round - 1]
        assert (dropped.rank, dropped.rank_interval) == (row.rank, row.rank_interval)
        assert dropped.expected_accuracy == row.expected_accuracy
        assert dropped.images == played.images < 180
        assert dropped.reason == played.decision.dropped[model]


def test_what_comes_after_a_race(raced: Race, images: Path, tmp_path: Path) -> None:
    """The same race computes nothing, an extraction what the dropped models lack."""
    store = shutil.copytree(raced.store.path, tmp_path / "store")
    again = race(images, some_models(), store, device="cpu")
    assert again.extraction.timings == {}
    assert choices(again) == choices(raced)
    extraction = plain(images, store)
    assert sorted(oodzoo.FeatureStore(store).models) == sorted(MODELS)
    computed = {model: timing.images for model, timing in extraction.timings.items()}
    assert computed == {model: 180 - each.images for model, each in raced.dropped.items()}


def test_a_large_budget_extracts_everything_without_a_round(
    raced: Race, images: Path, tmp_path: Path
) -> None:
    result = race(images, some_models(), tmp_path / "store", device="cpu", budget="10h")
    assert (result.rounds, result.dropped, result.budget) == ((), {}, 36_000)
    assert sorted(result.store.models) == sorted(MODELS)
    for model in raced.store.models:
        for domain in raced.store.domains:
            assert raced.store.paths(domain) == result.store.paths(domain)
            # other batches: equal up to rounding
            found, expected = (each.store.features(model, domain) for each in (raced, result))
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_budget_too_small_for_a_round_keeps_the_features(images: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with pytest.raises(InputError, match=r"too small for one round: 8 models on 18 images"):
        race(images, some_models(), store, device="cpu", budget=0.001)
    computed = {model: timing.images for model, timing in plain(images, store).timings.items()}
    # the first four models had run
    assert [computed[model] for model in MODELS] == [162] * 4 + [180] * 4


@pytest.fixture(scope="module")
def kill() -> Iterator[Children]:
    modules = ("tests.racing.test_race", "oodzoo.zoo.sources.onnx", "onnxruntime", "scipy.optimize")
    with children(*modules) as started:
        yield started


@needs_fork
@pytest.mark.parametrize("moment", [5, 300])
def test_a_killed_race_is_resumed_with_the_same_drops(
    raced: Race, images: Path, tmp_path: Path, kill: Children, moment: int
) -> None:
    store = tmp_path / "store"
    assert kill.killed(20, "tests.racing.test_race:race_in", images, store)
    # the measured times decide, too
    shutil.copytree(raced.store.path / "cache" / "race", store / "cache" / "race")
    assert kill.killed(moment, "tests.racing.test_race:race_in", images, store)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed = race(images, some_models(), store, device="cpu")
    assert choices(resumed) == choices(raced)
