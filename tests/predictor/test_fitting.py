"""Fitting a predictor: what is chosen, what was decided before, and what is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.combination.data import Costly
from tests.evaluation.data import zoo as zoo_of_arrays
from tests.events.heard import Heard
from tests.fixtures import draw_digits

import oodzoo
from oodzoo import Evaluation, InputError
from oodzoo.combining.selection import SelectionSummary
from oodzoo.extraction.importing import import_features
from oodzoo.extraction.source import ArraySource, StoreSource
from oodzoo.linear.heads.kinds import fit_head_of
from oodzoo.zoo import ModelSpec

TIMES = {"poor": 1.0, "best": 9.0, "fair": 2.0, "good": 4.0}
Data = tuple[Any, Any, Any]


@pytest.fixture(scope="module")
def data() -> Data:
    return zoo_of_arrays(n=18)


@pytest.fixture(scope="module")
def evaluation(data: Data) -> Evaluation:
    return oodzoo.evaluate(*data, baselines=False)


def names(predictor: oodzoo.Predictor) -> list[str]:
    return [model.name for model in predictor.models]


def texts(columns: Any) -> dict[str, str]:
    return {model: text for model, text in columns.to_dict().items() if text}


# --- what is fitted ------------------------------------------------------------------------------


def test_training_images_give_the_features_of_the_store(
    predictor: oodzoo.Predictor, store: oodzoo.FeatureStore, digits: Path
) -> None:
    source = StoreSource(store, predictor.columns.models)
    samples = predictor.columns.samples(source, store.domains)
    paths = [digits / path for domain in store.domains for path in store.paths(domain)]
    expected = fit_head_of("classification", samples, len(store.classes))
    found = predictor.predict_proba(paths)
    np.testing.assert_allclose(found, expected.probabilities(samples.features), atol=1e-5)
    assert names(predictor) == list(predictor.columns.by_model)
    assert all(len(columns) for columns in predictor.columns.by_model.values())


def test_the_events_of_a_fit_and_of_the_stages_within_it(store: oodzoo.FeatureStore) -> None:
    heard = Heard()
    fitted = oodzoo.fit(store, listener=heard)
    stages = ["predictor", "evaluation", "evaluation", "ranking", "ranking", "predictor"]
    steps = ["start", "start", "done", "start", "done", "done"]
    assert heard.outline() == list(zip(stages, steps, strict=True))
    assert heard.of("start")[0][1]["choose"] == "auto"
    facts = fitted.provenance
    assert heard.metrics("predictor") == {"accuracy": facts.accuracy}
    assert facts.accuracy_by_domain.keys() == facts.choice_by_domain.keys() == set(facts.domains)
    assert facts.accuracy == pytest.approx(np.mean(list(facts.accuracy_by_domain.values())))
    assert (facts.name, facts.score) == (store.name, "unseen")
    assert heard.of("end")[-1][1]["result"] is fitted
    named = Heard()
    only = oodzoo.fit(store, models=["mlp_glyphs_augmented"], listener=named)
    assert named.outline() == [("predictor", "start"), ("predictor", "done")]
    assert named.metrics("predictor") == {}
    assert names(only) == ["mlp_glyphs_augmented"]
    assert len(only.columns) == only.provenance.n_features == 48
    assert (only.provenance.scores, only.provenance.threshold) == ({}, None)


def test_the_best_models_by_a_score_or_for_a_target(store: oodzoo.FeatureStore) -> None:
    rng = np.random.default_rng(0)
    target = {model: rng.random((30, store.model(model).feature_dim)) for model in store.models}
    usual = oodzoo.fit(store, top_k=1).provenance.scores
    options: tuple[dict[str, Any], ...] = ({"score": "logme"}, {"target": target})
    for each in options:
        fitted, ranking = oodzoo.fit(store, top_k=1, **each), oodzoo.rank(store, **each)
        assert names(fitted) == [ranking.best]
        assert fitted.provenance.scores == {row.model: row.score for row in ranking.rows} != usual
    with pytest.raises(InputError, match="a target is only used to rank the models and to fit a p"):
        oodzoo.fit(store, target=target, models=[ranking.best])


def test_a_class_with_one_sample(
    digits: Path, zoo: list[ModelSpec], extract: Any, tmp_path: Path
) -> None:
    lonely = shutil.copytree(digits, tmp_path / "data") / "paper" / "nine" / "one.png"
    lonely.parent.mkdir()
    Image.new("RGB", (32, 32), (0, 99, 0)).save(lonely)
    fitted = oodzoo.fit(extract(tmp_path / "data", zoo[:2], tmp_path / "store"), top_k=1)
    assert "nine" in fitted.classes_
    np.testing.assert_allclose(fitted.predict_proba([lonely]).sum(), 1)


def test_one_usable_domain_is_rejected(zoo: list[ModelSpec], extract: Any, tmp_path: Path) -> None:
    data = draw_digits(tmp_path / "data", 4, domains=("paper",))
    for label in ("0", "1"):
        (data / "damaged" / label).mkdir(parents=True)
        (data / "damaged" / label / "1.png").write_text("no image")
    store = extract(data, zoo[:1], tmp_path / "store")
    for models in (None, [zoo[0].name]):
        with pytest.raises(InputError, match=r"1 domain \(paper\); a predictor needs two"):
            oodzoo.fit(store, models=models)


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
    known = store.models[0]
    assert not oodzoo.fit(both, models=[known]).features_only
    alone = oodzoo.fit(both, models=["numbers"])
    assert alone.models[0].fingerprint == both.model("numbers").fingerprint
    assert alone.provenance.data == both.data_fingerprint
    with pytest.warns(UserWarning, match=rf"'numbers': features only, .*\({known}, numbers\)"):
        mixed = oodzoo.fit(both, models=[known, "numbers"])
    assert mixed.features_only
    features = {"numbers": numbers[:3], known: store.features(known, store.domains[0])[:3]}
    assert mixed.predict_proba(features).shape == (3, 3)
    with pytest.raises(InputError, match="have features only; to predict from inputs, load it"):
        mixed.predict(unseen[:2])
    with pytest.raises(InputError, match="can be loaded and needs no encoder"):
        oodzoo.fit(both, encoders={known: len})


def test_numbers_of_models(data: Data) -> None:
    order = [row.model for row in oodzoo.rank(*data).rows]
    for top_k in ((2, 1), "auto"):
        fitted = oodzoo.fit(*data, top_k=top_k)
        assert fitted.provenance.choice == "ensemble"
        assert names(fitted) == order[: len(fitted.models)]
    numbers: tuple[Any, ...] = (1, 2, "auto")
    for k in numbers:
        expected = oodzoo.select_features(ArraySource(*data), top_k=k)
        fitted = oodzoo.fit(*data, choose="selection", top_k=k)
        assert fitted.provenance.n_features == expected.n_features
        assert fitted.columns.to_dict() == texts(expected.columns)
    some = ["poor", "fair", "good"]
    ranked = [row.model for row in oodzoo.rank({m: data[0][m] for m in some}, *data[1:]).rows]
    assert ranked != some
    for choose in (None, "ensemble"):
        assert names(oodzoo.fit(*data, models=some, choose=choose, top_k=1)) == ranked[:1]
        assert names(oodzoo.fit(*data, models=some, choose=choose)) == some
    for choose in ("auto", "ensemble", "selection"):
        with pytest.warns(UserWarning, match="only 4 models available, fewer than 99; using all"):
            oodzoo.fit(*data, choose=choose, top_k=99)


def test_constraints_on_models_that_features_are_selected_from(data: Data) -> None:
    source = Costly(*data, TIMES, {"poor": 7, "best": 7, "fair": 9, "good": 7})
    found = oodzoo.select_features(source, max_parameters=8)
    assert set(found.models) == {"poor", "best", "good"}
    order = [row.model for row in oodzoo.rank(source, max_ms=5).rows]
    assert set(order) == {"poor", "fair", "good"}
    total, expected = 0.0, []
    for model in order:  # a limit is for one model, and for several together
        if total + TIMES[model] <= 5:
            expected.append(model)
            total += TIMES[model]
    assert list(oodzoo.select_features(source, max_ms=5).models) == expected
    assert oodzoo.select_features(source, max_models=1).models == (oodzoo.rank(source).best,)


# --- what was decided before ---------------------------------------------------------------------


def test_what_an_evaluation_recommends_is_fitted(data: Data, evaluation: Evaluation) -> None:
    best = evaluation.recommended
    for given in (evaluation, best):
        fitted = oodzoo.fit(*data, recommended=given)
        assert fitted.provenance.choice == best.choice
        assert set(names(fitted)) == set(best.models)
        assert fitted.provenance.accuracy == best.average
        assert fitted.provenance.accuracy_by_domain == best.domains
    chosen = replace(best, choice="ensemble", models=("poor", "good"))
    assert names(oodzoo.fit(*data, recommended=chosen, score="logme")) == ["poor", "good"]
    alone = replace(best, choice="single", models=("poor",))
    assert names(oodzoo.fit(*data, recommended=alone)) == ["poor"]
    other = replace(best, choice="pool", models=("poor",))
    with pytest.warns(UserWarning, match="recommends poor, but what this machine fits is of"):
        oodzoo.fit(*data, recommended=other)


def test_models_and_limits_are_those_of_the_evaluation(data: Data, evaluation: Evaluation) -> None:
    pool = replace(evaluation.recommended, choice="pool", max_models=1)
    best = names(oodzoo.fit(*data, choose="pool", max_models=1))
    assert names(oodzoo.fit(*data, recommended=replace(pool, models=tuple(best)))) == best
    few = ("fair", "poor")
    only = replace(pool, models=few, candidates=few, max_models=None)
    assert set(names(oodzoo.fit(*data, recommended=only))) <= set(few)


def test_what_was_not_evaluated_states_no_accuracy(data: Data, evaluation: Evaluation) -> None:
    """A pool within narrower limits, or of fewer models, is another one than was measured."""
    features, y, domains = data
    pool = tuple(names(oodzoo.fit(*data, choose="pool")))
    assert len(pool) > 1
    best = replace(evaluation.recommended, choice="pool", models=pool)
    with pytest.warns(UserWarning, match=r"more models or within wider limits.*not measured"):
        limited = oodzoo.fit(*data, recommended=best, max_models=1)
    assert len(limited.models) == 1
    facts = limited.provenance
    assert (facts.accuracy, facts.accuracy_interval, facts.accuracy_by_domain) == (None, None, {})
    few = {name: features[name] for name in features if name != "best"}
    alone = replace(best, models=("good",))
    with pytest.warns(UserWarning, match="was not measured"):
        assert oodzoo.fit(few, y, domains, recommended=alone).provenance.accuracy is None
    wide = oodzoo.fit(*data, recommended=best, max_models=len(pool))  # which changes nothing
    assert wide.provenance.accuracy == best.average


def test_features_that_were_selected_are_fitted(data: Data) -> None:
    source = ArraySource(*data)
    selection = oodzoo.select_features(source, top_k=2)
    document = selection.summary().to_dict()
    for given in (selection, SelectionSummary.from_dict(document)):
        fitted = oodzoo.fit(*data, selection=given)
        assert fitted.provenance.choice == "selection"
        assert fitted.provenance.n_features == selection.n_features
        assert fitted.columns.to_dict() == texts(selection.columns)
    paper = oodzoo.select_features(source, top_k=2, method="paper", threshold=0.3)
    assert oodzoo.fit(*data, selection=paper).provenance.threshold == 0.3
    features, y, domains = data  # its sets are measured with features selected again
    (best,) = names(oodzoo.fit(*data, choose="single"))
    expected = oodzoo.fit({best: features[best]}, y, domains, choose="selection").left_out
    assert oodzoo.fit(*data, choose="selection", max_models=1).left_out == expected
    selected = oodzoo.select_features(source, [best])
    assert oodzoo.fit(*data, selection=selected).left_out == expected
    for columns, words in (
        ({"x": "0"}, "no features of the model 'x'"),
        ({"poor": "0-99999"}, "the columns of the model 'poor' must be ascending numbers"),
        ({}, "the selection has no columns"),
    ):
        with pytest.raises(InputError, match=words):
            oodzoo.fit(*data, selection=replace(selection.summary(), columns=columns))


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "bogus"}, "the method must be one of consistent, paper, got 'bogus'"),
        ({"method": "paper"}, r"add choose='selection' \(--choose selection\)"),
        ({"method": "paper", "choose": "pool"}, "and choose='pool'; add"),
        ({"threshold": 1.0}, "threshold"),
        ({"top_k": 2, "choose": "pool"}, r"limit the models of a pool with max_models"),
        ({"top_k": 2, "choose": "single"}, "and choose='single'; leave it out"),
        ({"top_k": 0}, "top_k must be a positive integer, several"),
        ({"choose": "single", "engine": "spark"}, "unknown engine 'spark'"),
        ({"choose": "ensemble", "max_models": 1}, "uses 3 models, more than max_models or max_ms"),
        ({"models": []}, "each of them once"),
        ({"models": ["poor"] * 2}, "each of them once"),
        ({"models": ["nobody"]}, "there are no features of 'nobody'; there are those of"),
    ],
)
def test_options_that_cannot_be_used(data: Data, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        oodzoo.fit(*data, **options)


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({}, {"choose": "pool"}, "choose='pool' and recommended exclude each other"),
        ({}, {"selection": True}, "recommended and selection both say what to fit"),
        ({}, {"method": "paper"}, "the method 'paper' is of features that are selected"),
        ({"domains": {"d9": 1.0}}, {}, "the evaluation is of the domains d9, the features"),
        ({"models": ("x",)}, {}, "the evaluation recommends 'x', but there are only features of"),
    ],
)
def test_what_was_recommended_and_cannot_be_fitted(
    data: Data, evaluation: Evaluation, changes: Any, options: Any, words: str
) -> None:
    best = evaluation.recommended
    if "domains" in changes:
        changes = changes | {"choices": dict.fromkeys(changes["domains"], "pool")}
    if "selection" in options:
        options = {"selection": oodzoo.select_features(ArraySource(*data))}
    with pytest.raises(InputError, match=words):
        oodzoo.fit(*data, recommended=replace(best, **changes), **options)
