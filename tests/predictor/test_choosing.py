"""What a predictor is made of: what was asked for, or what was decided before."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.combination.data import Costly
from tests.evaluation.data import zoo

import oodzoo
from oodzoo import Evaluation, InputError
from oodzoo.features.source import ArraySource, with_models
from oodzoo.ranking.ranker import rank_for_test_domains
from oodzoo.selection.select import SelectionSummary

TIMES = {"poor": 1.0, "best": 9.0, "fair": 2.0, "good": 4.0}


Data = tuple[Any, Any, Any]


@pytest.fixture(scope="module")
def data() -> Data:
    return zoo(n=18)


@pytest.fixture(scope="module")
def evaluation(data: Data) -> Evaluation:
    return oodzoo.evaluate(*data, baselines=False)


def test_what_an_evaluation_recommends_is_fitted(data: Data, evaluation: Evaluation) -> None:
    best = evaluation.recommended
    for given in (evaluation, best):
        fitted = oodzoo.fit(*data, recommended=given)
        assert fitted.provenance.choice == best.choice
        assert {model.name for model in fitted.models} == set(best.models)
        assert fitted.provenance.accuracy == best.average
        assert fitted.provenance.accuracy_by_domain == best.domains


def test_the_models_of_an_ensemble_are_those_recommended(
    data: Data, evaluation: Evaluation
) -> None:
    chosen = dataclasses.replace(evaluation.recommended, choice="ensemble", models=("poor", "good"))
    fitted = oodzoo.fit(*data, recommended=chosen, score="logme")
    assert [model.name for model in fitted.models] == ["poor", "good"]
    alone = dataclasses.replace(chosen, choice="single", models=("poor",))
    assert [m.name for m in oodzoo.fit(*data, recommended=alone).models] == ["poor"]


def test_a_pool_of_other_models_is_reported(data: Data, evaluation: Evaluation) -> None:
    other = dataclasses.replace(evaluation.recommended, choice="pool", models=("poor",))
    with pytest.warns(UserWarning, match="recommends poor, but what this machine fits is of"):
        oodzoo.fit(*data, recommended=other)


def test_what_is_fitted_is_chosen_from_the_models_and_within_the_limits_of_the_evaluation(
    data: Data, evaluation: Evaluation
) -> None:
    pool = dataclasses.replace(evaluation.recommended, choice="pool", max_models=1)
    best = oodzoo.fit(*data, choose="pool", max_models=1).models[0].name
    fitted = oodzoo.fit(*data, recommended=dataclasses.replace(pool, models=(best,)))
    assert [model.name for model in fitted.models] == [best]
    only = dataclasses.replace(
        pool, models=("fair", "poor"), candidates=("fair", "poor"), max_models=None
    )
    assert {m.name for m in oodzoo.fit(*data, recommended=only).models} <= {"fair", "poor"}
    read = Evaluation.from_dict(evaluation.to_dict()).recommended
    assert read.candidates == tuple(data[0])
    document = evaluation.to_dict()
    for added in ("candidates", "max_models", "max_ms"):  # of earlier versions
        del document["recommended"][added]
    assert Evaluation.from_dict(document).recommended.candidates == ()


def test_what_was_not_evaluated_states_no_accuracy(data: Data, evaluation: Evaluation) -> None:
    """A pool within narrower limits, or of fewer models, is another one than was measured."""
    features, y, domains = data
    pool = oodzoo.fit(*data, choose="pool")
    names = tuple(model.name for model in pool.models)
    assert len(names) > 1
    best = dataclasses.replace(evaluation.recommended, choice="pool", models=names)
    with pytest.warns(UserWarning, match=r"more models or within wider limits.*not measured"):
        limited = oodzoo.fit(*data, recommended=best, max_models=1)
    assert len(limited.models) == 1
    assert limited.provenance.accuracy is None
    assert limited.provenance.accuracy_interval is None
    assert limited.provenance.accuracy_by_domain == {}
    few = {name: features[name] for name in features if name != "best"}
    alone = dataclasses.replace(best, models=("good",))
    with pytest.warns(UserWarning, match="was not measured"):
        assert oodzoo.fit(few, y, domains, recommended=alone).provenance.accuracy is None
    wide = oodzoo.fit(*data, recommended=best, max_models=len(names))  # which changes nothing
    assert wide.provenance.accuracy == best.average


def test_features_that_were_selected_are_fitted(data: Data) -> None:
    source = ArraySource(*data)
    selection = oodzoo.select_features(source, top_k=2)
    document = selection.summary().to_dict()
    for given in (selection, SelectionSummary.from_dict(document)):
        fitted = oodzoo.fit(*data, selection=given)
        assert fitted.provenance.choice == "selection"
        assert fitted.provenance.n_features == selection.n_features
        assert fitted.columns.to_dict() == {
            model: text for model, text in selection.columns.to_dict().items() if text
        }
    paper = oodzoo.select_features(source, top_k=2, method="paper", threshold=0.3)
    assert oodzoo.fit(*data, selection=paper).provenance.threshold == 0.3


def test_sets_of_a_selection_are_measured_with_features_selected_again_from_the_same_models(
    data: Data,
) -> None:
    features, y, domains = data
    (best,) = {m.name for m in oodzoo.fit(*data, choose="single").models}
    expected = oodzoo.fit({best: features[best]}, y, domains, choose="selection").left_out
    assert oodzoo.fit(*data, choose="selection", max_models=1).left_out == expected
    selected = oodzoo.select_features(ArraySource(*data), [best])
    assert oodzoo.fit(*data, selection=selected).left_out == expected


def test_one_of_several_numbers_of_models(data: Data) -> None:
    ranking = oodzoo.rank(*data)
    for top_k in ((2, 1), "auto"):
        fitted = oodzoo.fit(*data, top_k=top_k)
        assert fitted.provenance.choice == "ensemble"
        used = [model.name for model in fitted.models]
        assert used == [row.model for row in ranking.rows[: len(used)]]


def test_features_are_selected_from_the_best_models(data: Data) -> None:
    for top_k in (1, 2, "auto"):
        expected = oodzoo.select_features(ArraySource(*data), top_k=top_k)
        fitted = oodzoo.fit(*data, choose="selection", top_k=top_k)
        assert fitted.provenance.n_features == expected.n_features
        assert fitted.columns.to_dict() == {
            model: text for model, text in expected.columns.to_dict().items() if text
        }


def test_the_best_of_named_models(data: Data) -> None:
    names = ["poor", "fair", "good"]
    ranked = [row.model for row in oodzoo.rank({m: data[0][m] for m in names}, *data[1:]).rows]
    assert ranked != names
    for choose in (None, "ensemble"):
        fitted = oodzoo.fit(*data, models=names, choose=choose, top_k=1)
        assert [model.name for model in fitted.models] == ranked[:1]
        everything = oodzoo.fit(*data, models=names, choose=choose)
        assert [model.name for model in everything.models] == names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "bogus"}, "the method must be one of consistent, paper, got 'bogus'"),
        ({"method": "paper"}, r"add choose='selection' \(--choose selection\)"),
        ({"method": "paper", "choose": "pool"}, "and choose='pool'; add"),
        ({"top_k": 2, "choose": "pool"}, r"limit the models of a pool with max_models"),
        ({"top_k": 2, "choose": "single"}, "and choose='single'; leave it out"),
    ],
)
def test_options_that_nothing_would_use(data: Data, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        oodzoo.fit(*data, **options)


@pytest.mark.parametrize("choose", ["auto", "ensemble", "selection"])
def test_more_models_than_there_are(data: Data, choose: str) -> None:
    with pytest.warns(UserWarning, match="only 4 models available, fewer than 99; using all"):
        oodzoo.fit(*data, choose=choose, top_k=99)


def test_constraints_on_models(data: Data) -> None:
    source = Costly(*data, TIMES, {"poor": 7, "best": 7, "fair": 9, "good": 7})
    allowed = {"poor", "best", "good"}
    assert {row.model for row in oodzoo.rank(source, max_parameters=8).rows} == allowed
    assert set(oodzoo.select_features(source, max_parameters=8).models) == allowed
    result = oodzoo.evaluate(source, max_parameters=8, baselines=False)
    assert {cell.models for cell in result.ensemble.cells.values()} <= {
        tuple(row.model for row in ranking.rows)
        for ranking in rank_for_test_domains(with_models(source, sorted(allowed))).values()
    }


def test_a_limit_of_time_is_for_one_model_and_for_several_together(data: Data) -> None:
    source = Costly(*data, TIMES)
    order = [row.model for row in oodzoo.rank(source, max_ms=5).rows]
    assert set(order) == {"poor", "fair", "good"}
    total, expected = 0.0, []
    for model in order:
        if total + TIMES[model] <= 5:
            expected.append(model)
            total += TIMES[model]
    assert list(oodzoo.select_features(source, max_ms=5).models) == expected
    assert oodzoo.select_features(source, max_models=1).models == (oodzoo.rank(source).best,)
    result = oodzoo.evaluate(source, max_ms=5, baselines=False)
    assert sum(TIMES[model] for model in result.recommended.models) <= 5
    used = {m for row in result.rows.values() for cell in row.cells.values() for m in cell.models}
    assert used <= set(order)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"choose": "pool"}, "choose='pool' and recommended exclude each other"),
        ({"selection": True}, "recommended and selection both say what to fit"),
        ({"method": "paper"}, "the method 'paper' is of features that are selected"),
        ({"other": "domains"}, "the evaluation is of the domains d0, d1, d2, e, the features"),
        ({"other": "models"}, "the evaluation recommends 'x', but there are only features of"),
    ],
)
def test_what_cannot_be_fitted(
    data: Data, evaluation: Evaluation, options: dict[str, Any], words: str
) -> None:
    best = evaluation.recommended
    if options.get("selection"):
        options = {"selection": oodzoo.select_features(ArraySource(*data))}
    if options.get("other") == "models":
        best = dataclasses.replace(best, models=("x",))
    if options.get("other") == "domains":
        names = dict(zip(best.domains, ("d0", "d1", "d2", "e"), strict=True))
        best = dataclasses.replace(
            best,
            domains={names[name]: value for name, value in best.domains.items()},
            choices={names[name]: value for name, value in best.choices.items()},
        )
    given = {name: value for name, value in options.items() if name != "other"}
    with pytest.raises(InputError, match=words):
        oodzoo.fit(*data, recommended=best, **given)


def test_the_accuracy_of_a_selection_is_not_promised_for_another_method(data: Data) -> None:
    with pytest.raises(InputError, match="add choose='selection'"):
        oodzoo.fit(*data, method="paper")


def test_a_selection_of_other_features_is_refused(data: Data) -> None:
    summary = oodzoo.select_features(ArraySource(*data)).summary()
    for columns, words in (
        ({"x": "0"}, "no features of the model 'x'"),
        ({"poor": "0-99999"}, "the columns of the model 'poor' must be ascending numbers"),
        ({}, "the selection has no columns"),
    ):
        changed = dataclasses.replace(summary, columns=columns)
        with pytest.raises(InputError, match=words):
            oodzoo.fit(*data, selection=changed)
