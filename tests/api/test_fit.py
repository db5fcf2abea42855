"""`oodzoo.fit`: what is fitted, and what was decided before."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import evaluated
from tests.evaluation.data import zoo as zoo_of_arrays
from tests.events.heard import Heard
from tests.fixtures import draw_digits

import oodzoo
from oodzoo import InputError
from oodzoo.extraction.features import ArraySource
from oodzoo.extraction.importing import import_features

TIMES = {"poor": 1.0, "best": 9.0, "fair": 2.0, "good": 4.0}
DATA = zoo_of_arrays(n=18)


def names(predictor: oodzoo.Predictor) -> list[str]:
    return [model.name for model in predictor.models]


def texts(columns: Any) -> dict[str, str]:
    return {model: text for model, text in columns.to_dict().items() if text}


# --- what is fitted ------------------------------------------------------------------------------


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


def test_one_usable_domain_is_rejected(zoo: list[Any], extract: Any, tmp_path: Path) -> None:
    data = draw_digits(tmp_path / "one", 4, domains=("paper",))
    for label in ("0", "1"):
        (data / "damaged" / label).mkdir(parents=True)
        (data / "damaged" / label / "1.png").write_text("no image")
    store = extract(data, zoo[:1], tmp_path / "other")
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


def test_numbers_of_models() -> None:
    order = [row.model for row in oodzoo.rank(*DATA).rows]
    for top_k in ((2, 1), "auto"):
        fitted = oodzoo.fit(*DATA, top_k=top_k)
        assert fitted.provenance.choice == "ensemble"
        assert names(fitted) == order[: len(fitted.models)]
    numbers: tuple[Any, ...] = (1, 2, "auto")
    for k in numbers:
        expected = oodzoo.select_features(ArraySource(*DATA), top_k=k)
        fitted = oodzoo.fit(*DATA, choose="selection", top_k=k)
        assert fitted.provenance.n_features == expected.n_features
        assert fitted.columns.to_dict() == texts(expected.columns)
    some = ["poor", "fair", "good"]
    ranked = [row.model for row in oodzoo.rank({m: DATA[0][m] for m in some}, *DATA[1:]).rows]
    assert ranked != some
    for choose in (None, "ensemble"):
        assert names(oodzoo.fit(*DATA, models=some, choose=choose, top_k=1)) == ranked[:1]
        assert names(oodzoo.fit(*DATA, models=some, choose=choose)) == some
    for choose in ("auto", "ensemble", "selection"):
        with pytest.warns(UserWarning, match="only 4 models available, fewer than 99; using all"):
            oodzoo.fit(*DATA, choose=choose, top_k=99)


# --- what was decided before ---------------------------------------------------------------------


def test_what_an_evaluation_recommends_is_fitted() -> None:
    best = evaluated().recommended
    for given in (evaluated(), best):
        fitted = oodzoo.fit(*DATA, recommended=given)
        assert fitted.provenance.choice == best.choice
        assert set(names(fitted)) == set(best.models)
        assert fitted.provenance.accuracy == best.average
        assert fitted.provenance.accuracy_by_domain == best.domains
    pool = replace(best, choice="pool", max_models=1)
    one = names(oodzoo.fit(*DATA, choose="pool", max_models=1))
    few = replace(pool, models=("fair",), candidates=("fair", "poor"), max_models=None)
    for changed, expected in (
        (replace(best, choice="ensemble", models=("poor", "good")), ["poor", "good"]),
        (replace(best, choice="single", models=("poor",)), ["poor"]),
        (replace(pool, models=tuple(one)), one),
    ):
        assert names(oodzoo.fit(*DATA, recommended=changed, score="logme")) == expected
    with pytest.warns(UserWarning, match="recommends .*, but what this machine fits is of"):
        fitted = oodzoo.fit(*DATA, recommended=replace(few, models=("poor",)))
    assert set(names(fitted)) <= {"fair", "poor"}


def test_what_was_not_evaluated_states_no_accuracy() -> None:
    """A pool within narrower limits, or of fewer models, is another one than was measured."""
    features, y, domains = DATA
    pool = tuple(names(oodzoo.fit(*DATA, choose="pool")))
    assert len(pool) > 1
    best = replace(evaluated().recommended, choice="pool", models=pool)
    with pytest.warns(UserWarning, match=r"more models or within wider limits.*not measured"):
        limited = oodzoo.fit(*DATA, recommended=best, max_models=1)
    assert len(limited.models) == 1
    facts = limited.provenance
    assert (facts.accuracy, facts.accuracy_interval, facts.accuracy_by_domain) == (None, None, {})
    few = {name: features[name] for name in features if name != "best"}
    alone = replace(best, models=("good",))
    with pytest.warns(UserWarning, match="was not measured"):
        assert oodzoo.fit(few, y, domains, recommended=alone).provenance.accuracy is None
    wide = oodzoo.fit(*DATA, recommended=best, max_models=len(pool))  # which changes nothing
    assert wide.provenance.accuracy == best.average


def test_features_that_were_selected_are_fitted() -> None:
    source = ArraySource(*DATA)
    selection = oodzoo.select_features(source, top_k=2)
    summary = selection.summary()
    for given in (selection, type(summary).from_dict(summary.to_dict())):
        fitted = oodzoo.fit(*DATA, selection=given)
        assert fitted.provenance.choice == "selection"
        assert fitted.provenance.n_features == selection.n_features
        assert fitted.columns.to_dict() == texts(selection.columns)
    paper = oodzoo.select_features(source, top_k=2, method="paper", threshold=0.3)
    assert oodzoo.fit(*DATA, selection=paper).provenance.threshold == 0.3
    features, y, domains = DATA  # its sets are measured with features selected again
    (best,) = names(oodzoo.fit(*DATA, choose="single"))
    expected = oodzoo.fit({best: features[best]}, y, domains, choose="selection").left_out
    assert oodzoo.fit(*DATA, choose="selection", max_models=1).left_out == expected
    selected = oodzoo.select_features(source, [best])
    assert oodzoo.fit(*DATA, selection=selected).left_out == expected
