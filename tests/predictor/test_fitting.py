"""Fitting a predictor to a store."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.events.heard import Heard
from tests.fixtures import draw_digits

import oodzoo
from oodzoo import InputError
from oodzoo.features.importing import import_features
from oodzoo.features.source import StoreSource
from oodzoo.heads.kinds import fit_head_of
from oodzoo.zoo import ModelSpec


def test_training_images_give_the_features_of_the_store(
    predictor: oodzoo.Predictor, store: oodzoo.FeatureStore, digits: Path
) -> None:
    source = StoreSource(store, predictor.columns.models)
    samples = predictor.columns.samples(source, store.domains)
    paths = [digits / path for domain in store.domains for path in store.paths(domain)]
    head = fit_head_of("classification", samples, len(store.classes))
    expected = head.probabilities(samples.features)
    np.testing.assert_allclose(predictor.predict_proba(paths), expected, atol=1e-5)


def test_only_models_with_a_selected_feature_are_kept(predictor: oodzoo.Predictor) -> None:
    assert [model.name for model in predictor.models] == list(predictor.columns.by_model)
    assert all(len(columns) for columns in predictor.columns.by_model.values())


def test_the_events_of_a_fit_and_of_the_stages_within_it(store: oodzoo.FeatureStore) -> None:
    heard = Heard()
    fitted = oodzoo.fit(store, listener=heard)
    assert heard.outline() == [
        ("predictor", "start"),
        ("evaluation", "start"),
        ("evaluation", "done"),
        ("ranking", "start"),
        ("ranking", "done"),
        ("predictor", "done"),
    ]
    assert heard.of("start")[0][1]["choose"] == "auto"
    facts = fitted.provenance
    assert heard.metrics("predictor") == {"accuracy": facts.accuracy}
    assert facts.accuracy_by_domain.keys() == facts.choice_by_domain.keys() == set(facts.domains)
    assert facts.accuracy == pytest.approx(np.mean(list(facts.accuracy_by_domain.values())))
    assert (facts.name, facts.score) == (store.name, "unseen")
    assert heard.of("end")[-1][1]["result"] is fitted
    named = Heard()
    oodzoo.fit(store, models=["mlp_glyphs_augmented"], listener=named)
    assert named.outline() == [("predictor", "start"), ("predictor", "done")]
    assert named.metrics("predictor") == {}


def test_an_unknown_engine_is_rejected_even_if_it_has_nothing_to_do(
    store: oodzoo.FeatureStore,
) -> None:
    with pytest.raises(InputError, match="unknown engine 'spark'"):
        oodzoo.fit(store, choose="single", engine="spark")


def test_named_models_and_all_features(store: oodzoo.FeatureStore) -> None:
    fitted = oodzoo.fit(store, models=["mlp_glyphs_augmented"])
    assert [model.name for model in fitted.models] == ["mlp_glyphs_augmented"]
    assert len(fitted.columns) == fitted.provenance.n_features == 48
    assert fitted.provenance.scores == {}
    assert fitted.provenance.threshold is None


def test_the_best_models_for_a_target(store: oodzoo.FeatureStore) -> None:
    rng = np.random.default_rng(0)
    target = {model: rng.random((30, store.model(model).feature_dim)) for model in store.models}
    fitted = oodzoo.fit(store, target=target, top_k=1)
    ranking = oodzoo.rank(store, target=target)
    assert [model.name for model in fitted.models] == [ranking.best]
    assert fitted.provenance.scores == {row.model: row.score for row in ranking.rows}
    assert fitted.provenance.scores != oodzoo.fit(store, top_k=1).provenance.scores
    with pytest.raises(
        InputError, match="a target is only used to rank the models and to fit a pool"
    ):
        oodzoo.fit(store, target=target, models=[ranking.best])


def test_a_class_with_one_sample(
    digits: Path, zoo: list[ModelSpec], extract: Any, tmp_path: Path
) -> None:
    data = shutil.copytree(digits, tmp_path / "data")
    lonely = data / "paper" / "nine" / "one.png"
    lonely.parent.mkdir()
    Image.new("RGB", (32, 32), (0, 99, 0)).save(lonely)
    fitted = oodzoo.fit(extract(data, zoo[:2], tmp_path / "store"), top_k=1)
    assert "nine" in fitted.classes_
    probabilities = fitted.predict_proba([lonely])
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(), 1)


def test_one_usable_domain_is_rejected(zoo: list[ModelSpec], extract: Any, tmp_path: Path) -> None:
    data = draw_digits(tmp_path / "data", 4, domains=("paper",))
    for label in ("0", "1"):
        (data / "damaged" / label).mkdir(parents=True)
        (data / "damaged" / label / "1.png").write_text("no image")
    store = extract(data, zoo[:1], tmp_path / "store")
    for models in (None, [zoo[0].name]):
        with pytest.raises(
            InputError, match=r"images of 1 domain \(paper\); a predictor needs two"
        ):
            oodzoo.fit(store, models=models)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k must be a positive integer, several"),
        ({"models": []}, "each of them once"),
        ({"models": ["mlp_glyphs_augmented"] * 2}, "each of them once"),
        ({"models": ["nobody"]}, "the store has no model 'nobody'"),
        ({"threshold": 1.0}, "threshold"),
    ],
)
def test_invalid_options(store: oodzoo.FeatureStore, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        oodzoo.fit(store, **options)


def test_imported_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    archive = tmp_path / "features.npz"
    np.savez(
        archive,
        labels=np.tile(["a", "b"], 20),
        domains=np.repeat(["one", "two"], 20),
        numbers=rng.normal(size=(40, 5)),
    )
    imported = import_features([archive], tmp_path / "store")
    fitted = oodzoo.fit(imported)
    assert fitted.features_only
    (model,) = fitted.models
    assert (model.name, model.feature_dim) == ("numbers", 5)
    assert model.fingerprint == imported.model("numbers").fingerprint
    assert fitted.provenance.data == imported.data_fingerprint


def test_imported_features_beside_models_of_a_zoo(
    store: oodzoo.FeatureStore, unseen: list[Path], tmp_path: Path
) -> None:
    """The predictor takes images if all of its models do, otherwise features of all of them."""
    copy = oodzoo.FeatureStore(shutil.copytree(store.path, tmp_path / "store"))
    columns: dict[str, Any] = {key: [] for key in ("paths", "labels", "domains")}
    for domain in copy.domains:
        columns["paths"] += copy.paths(domain)
        columns["labels"] += [copy.classes[label] for label in copy.labels(domain)]
        columns["domains"] += [domain] * len(copy.labels(domain))
    numbers = np.random.default_rng(0).normal(size=(len(columns["paths"]), 4))
    np.savez(tmp_path / "more.npz", numbers=numbers, **columns)
    both = import_features([tmp_path / "more.npz"], copy.path)
    zoo_model = store.models[0]
    assert not oodzoo.fit(both, models=[zoo_model]).features_only
    with pytest.warns(UserWarning, match=rf"'numbers': features only, .*\({zoo_model}, numbers\)"):
        mixed = oodzoo.fit(both, models=[zoo_model, "numbers"])
    assert mixed.features_only
    domain = store.domains[0]
    features = {"numbers": numbers[:3], zoo_model: store.features(zoo_model, domain)[:3]}
    assert mixed.predict_proba(features).shape == (3, 3)
    with pytest.raises(InputError, match="have features only; to predict from inputs, load it"):
        mixed.predict(unseen[:2])
    with pytest.raises(InputError, match="can be loaded and needs no encoder"):
        oodzoo.fit(both, encoders={zoo_model: len})


def test_the_score_that_models_are_ranked_by(store: oodzoo.FeatureStore) -> None:
    ranking = oodzoo.rank(store, score="logme")
    fitted = oodzoo.fit(store, top_k=1, score="logme")
    assert [model.name for model in fitted.models] == [ranking.best]
    assert fitted.provenance.scores == {row.model: row.score for row in ranking.rows}
