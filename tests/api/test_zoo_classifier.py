"""Unfitted estimators: they do what `oodzoo.fit` does, wherever scikit-learn fits them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import oodzoo
from oodzoo import InputError, ZooClassifier, ZooRegressor

DOMAINS = np.repeat(["a", "b", "c"], 40)
Y = np.tile(["no", "yes", "maybe"], 40)
WIDTHS = {"poor": 4, "good": 3}


def features(seed: int = 0) -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    codes = np.unique(Y, return_inverse=True)[1][:, None] * np.eye(7)[:1]
    place = {"poor": 5.0, "good": 0.3}
    return {m: rng.normal(codes[:, :d], place[m], (120, d)) for m, d in WIDTHS.items()}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [ZooClassifier(combine="single"), ZooRegressor(combine="single")]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_estimator_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_dicts_and_columns_give_the_predictor_of_fit() -> None:
    X = features()
    named = ZooClassifier(combine="pool").fit(X, Y, DOMAINS)
    expected = oodzoo.fit(X, Y, DOMAINS, choose="pool")
    np.testing.assert_array_equal(named.classes_, ["maybe", "no", "yes"])
    used = {model.name: X[model.name] for model in expected.models}
    np.testing.assert_array_equal(named.predict_proba(X), expected.predict_proba(used))
    table = np.hstack([*X.values()])
    for columns in (
        WIDTHS,
        {"poor": slice(0, 4), "good": slice(4, None)},
        {"good": [4, 5, 6], "poor": [0, 1, 2, 3]},
    ):
        found = ZooClassifier(combine="pool", columns=columns).fit(table, Y, DOMAINS)
        np.testing.assert_allclose(found.predict_proba(table), named.predict_proba(X))
        assert found.n_features_in_ == named.n_features_in_ == 7


def test_cross_validation_over_domains_that_the_choice_has_not_seen() -> None:
    X, folds = features(), LeaveOneGroupOut()
    table = np.hstack([*X.values()])
    estimator = ZooClassifier(combine="single", columns=WIDTHS)
    found = cross_val_score(
        estimator, table, Y, groups=DOMAINS, cv=folds, params={"groups": DOMAINS}
    )
    for accuracy, (train, test) in zip(found, folds.split(table, Y, DOMAINS), strict=True):
        inside = oodzoo.fit(
            {name: array[train] for name, array in X.items()},
            Y[train],
            DOMAINS[train],
            choose="single",
        )
        assert inside.models[0].name == "good"
        assert accuracy == inside.score(X["good"][test], Y[test])


def test_a_search_in_a_pipeline_routes_the_domains() -> None:
    table = np.hstack([*features().values()])
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = ZooClassifier(columns=WIDTHS).set_fit_request(groups=True)
        pipeline = make_pipeline(StandardScaler(), estimator)
        grid = {"zooclassifier__combine": ["single", "pool"], "zooclassifier__rank_by": ["logme"]}
        search = GridSearchCV(pipeline, grid, cv=LeaveOneGroupOut(), error_score="raise")
        search.fit(table, Y, groups=DOMAINS)
    best = search.best_estimator_[-1]
    assert best.predictor_.provenance.domains == ("a", "b", "c")
    assert best.predictor_.provenance.score == "logme"
    assert search.predict(table).shape == (120,)


def test_without_domains_parts_of_the_data_stand_for_them() -> None:
    X = features()
    found = ZooClassifier(combine="single").fit(X, Y)
    assert found.predictor_.provenance.domains == tuple(f"part {k}" for k in range(1, 6))
    numbers = ZooRegressor(combine="single").fit(X, X["good"][:, 0])
    assert [model.name for model in numbers.predictor_.models] == ["good"]
    assert numbers.score(X, X["good"][:, 0]) > 0.99


@pytest.mark.parametrize(
    ("options", "X", "message"),
    [
        ({"columns": {"a": 4, "b": 4}}, np.ones((120, 7)), "columns: 'b' has 4, but X has 7 col"),
        ({"columns": {"a": [9]}}, np.ones((120, 7)), r"columns: 'a' has \[9\], but X has 7 col"),
        ({"columns": {"a": 0}}, np.ones((120, 7)), "columns: 'a' has 0, but X has 7 columns"),
        ({"columns": WIDTHS}, features(), "X is a dict, which names its models; leave columns"),
        ({"combine": "vote"}, features(), "'vote'"),
        ({"rank_by": "luck"}, features(), "'luck'"),
    ],
)
def test_what_cannot_be_used(options: dict[str, Any], X: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ZooClassifier(**options).fit(X, Y, DOMAINS)
