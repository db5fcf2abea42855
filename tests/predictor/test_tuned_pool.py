"""Pools of the models of a predictor and a fine-tuned one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax
from tests.striped import require_tuning, striped_predictor, tiny_network, write_stripes

import oodzoo
from oodzoo.errors import InputError
from oodzoo.features.source import StoreSource
from oodzoo.heads.linear import LinearHead
from oodzoo.predictor.tuned import (
    extract_models,
    fit_tuned_pool,
    left_out_outputs,
    require_left_out,
)
from oodzoo.tuning.choice import CANDIDATES, Choice
from oodzoo.tuning.tuner import Tuned

SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "learning_rates": 3e-2,
    "steps": 20,
    "batch_size": 4,
    "augment": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("striped")


@pytest.fixture(scope="module")
def data(folder: Path) -> Path:
    return write_stripes(folder / "data")


@pytest.fixture(scope="module")
def predictor(folder: Path, data: Path) -> oodzoo.Predictor:
    return striped_predictor(folder, data, {"one": 1, "two": 2}, "ensemble")


@pytest.fixture
def source(predictor: oodzoo.Predictor, data: Path, tmp_path: Path) -> StoreSource:
    """Features of the two models, and of another network that stands for a tuned one."""
    (first, _), images = predictor.loadable_models, oodzoo.ImageDomains(data)
    spec = tiny_network(tmp_path / "zoo", "one-tuned", seed=9)
    models = [*predictor.loadable_models, replace(first, spec=spec)]
    store = extract_models(images, models, tmp_path / "store", "cpu", [])
    return StoreSource(store, ["one", "two", "one-tuned"])


def tuned_with(images: oodzoo.ImageDomains, confidence: float) -> Tuned:
    """A tuned model whose head is as confident, in the right class or the wrong one."""
    left_out: dict[str, Any] = {}
    for sample in images:
        logits = confidence * np.eye(2)[images.classes.index(sample.label)] + 3  # not normalised
        left_out.setdefault(sample.domain, []).append(logits)
    outputs = {domain: np.array(rows) for domain, rows in left_out.items()}
    head = LinearHead(np.array([[1.0, 2], [-1, 0]]), np.array([0.5, 0]), 1.0)
    choice = Choice(1e-3, CANDIDATES[-1], {})
    trainable: Any = None
    return Tuned(choice, {}, {}, outputs, outputs, 1.0, trainable, head)


def test_a_good_one_is_in_the_pool(source: StoreSource, data: Path) -> None:
    images = oodzoo.ImageDomains(data)
    tuned = tuned_with(images, 6)
    final = fit_tuned_pool(source, images, "one-tuned", tuned)
    assert final.weights["one-tuned"] > 0
    assert sum(final.weights.values()) == pytest.approx(1)
    at = list(final.columns.by_model).index("one-tuned")
    np.testing.assert_allclose(
        final.head.weights[:, 2 * at : 2 * at + 2], final.weights["one-tuned"] * tuned.head.weights
    )


def test_a_bad_one_gets_no_weight(source: StoreSource, data: Path) -> None:
    images = oodzoo.ImageDomains(data)
    final = fit_tuned_pool(source, images, "one-tuned", tuned_with(images, -6))
    assert "one-tuned" not in final.weights
    assert "one-tuned" not in final.columns.models


def test_outputs_are_those_of_the_same_images(source: StoreSource, data: Path) -> None:
    """The store may have the images of a domain in another order."""
    images = oodzoo.ImageDomains(data)
    shuffled = images.only(np.random.default_rng(0).permutation(len(images)).tolist())
    rng = np.random.default_rng(1)
    logits = {domain: rng.normal(size=(16, 2)) for domain in images.domains}
    by_path: dict[str, Any] = {}
    for domain, outputs in logits.items():
        paths = [sample.path for sample in shuffled if sample.domain == domain]
        by_path |= dict(zip(paths, log_softmax(outputs, axis=1), strict=True))
    found = left_out_outputs(source, shuffled, logits)
    for domain, outputs in zip(source.domains, found, strict=True):
        expected = [by_path[path] for path in source.store.paths(domain)]
        np.testing.assert_allclose(outputs, expected)


def test_left_out_domains_are_needed() -> None:
    require_left_out("leave-one-domain-out")
    with pytest.raises(InputError, match="choose_by='training-domain' leaves no domain out, but"):
        require_left_out("training-domain")


def test_a_model_that_cannot_be_loaded(
    predictor: oodzoo.Predictor, data: Path, tmp_path: Path
) -> None:
    first, second = predictor.loadable_models
    missing = replace(second, spec=replace(second.spec, folder=tmp_path))
    with pytest.raises(InputError, match=f"model '{second.name}': .*onnx"):
        extract_models(oodzoo.ImageDomains(data), [first, missing], tmp_path / "store", "cpu", [])


def test_a_pool_with_a_tuned_model(predictor: oodzoo.Predictor, data: Path, tmp_path: Path) -> None:
    require_tuning()
    after = oodzoo.tune(predictor, data, model="two", **SETTINGS)
    done = after.provenance.tuning
    assert done is not None
    assert (done["model"], done["tuned"]) == ("two", "two-tuned")
    assert done["weight"] == after.provenance.pool["two-tuned"] > 0
    assert after.provenance.choice == "pool"
    assert set(after.provenance.pool) == {model.name for model in after.models}
    files = sorted(data.rglob("*.png"))
    labels = [file.parent.name for file in files]
    assert after.score(files, labels) > 0.9
    after.save(tmp_path / "model")
    loaded = oodzoo.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(files), after.predict_proba(files))
    with pytest.raises(InputError, match="'two-tuned' of the predictor was fine-tuned on the do"):
        oodzoo.tune(loaded, data, model="one", **SETTINGS)  # its heads have seen all domains


def test_the_choice_of_a_pool_is_made_on_left_out_domains(
    predictor: oodzoo.Predictor, data: Path
) -> None:
    require_tuning()
    with pytest.raises(InputError, match="leaves no domain out"):
        oodzoo.tune(predictor, data, **SETTINGS | {"choose_by": "training-domain"})
