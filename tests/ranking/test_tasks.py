"""Rankings for numbers and for several labels, against literal twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, r2_score
from tests.oracles import bayes
from tests.oracles import unseen as oracle

import oodzoo
from oodzoo.errors import InputError
from oodzoo.moments import Moments, merge
from oodzoo.ranking.folds import Fold, leave_one_domain_out, leave_two_domains_out
from oodzoo.ranking.ridge import RIDGES, RidgePath, Transfer
from oodzoo.task import Kind

Data = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]

KINDS: tuple[Kind, ...] = ("regression", "multilabel")
SIZES = {"n > d": (6, (60, 50, 40)), "n < d": (90, (20, 25, 15))}


def simulate(kind: Kind, d: int, sizes: tuple[int, ...], seed: int = 0) -> Data:
    """Domains that differ in mean; outputs in different units, far from zero."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(d, 3)) / np.sqrt(d)
    data = {}
    for number, n in enumerate(sizes):
        X = rng.normal(size=(n, d)) + 0.3 * rng.normal(size=d)
        Y = X @ W + 0.5 * rng.normal(size=(n, 3))
        Y = Y * [1, 50, 0.01] + [10, -400, 3] if kind == "regression" else (Y > 0.4).astype(float)
        data["abcdef"[number]] = (X, Y)
    return data


def folds_of(data: Data, kind: Kind, device: str | None = None) -> list[Fold]:
    moments = {name: Moments.of(*data[name], 3, device=device) for name in data}
    return leave_one_domain_out(moments, lambda name: [data[name]], kind=kind, device=device)


def stacked(data: Data, names: list[str]) -> tuple[Any, Any]:
    return np.vstack([data[k][0] for k in names]), np.vstack([data[k][1] for k in names])


def skill(training: tuple[Any, Any], target: tuple[Any, Any], kind: Kind, ridge: float) -> float:
    """Share of the variance that is predicted: of each number, or of all labels together."""
    (X, Y), (Z, T) = training, target
    W = oracle.ridge_regression(X - X.mean(0), Y - Y.mean(0), ridge)
    errors = ((T - (Y.mean(0) + (Z - X.mean(0)) @ W)) ** 2).sum(axis=0)
    variances = ((T - T.mean(0)) ** 2).sum(axis=0)
    if kind == "regression":
        return float(np.mean([min(max(1 - e / v, 0), 1) for e, v in zip(errors, variances)]))  # noqa: B905
    return float(min(max(1 - errors.sum() / variances.sum(), 0), 1))


def centre(training: Any, kind: Kind) -> Any:
    return training.mean(axis=0) if kind == "regression" else np.zeros(training.shape[1])


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SIZES)
def test_folds_equal_their_formulas(kind: Kind, shape: str, device: str | None) -> None:
    if device is not None:
        pytest.importorskip("torch")
    data = simulate(kind, *SIZES[shape])
    names = list(data)
    folds = folds_of(data, kind, device)
    means = [
        np.mean(
            [skill(stacked(data, [n for n in names if n != k]), data[k], kind, r) for k in names]
        )
        for r in RIDGES
    ]
    X, Y = stacked(data, names)
    C = Y - centre(Y, kind)
    whole = np.mean([oracle.highest_log_evidence(X, C[:, c]) for c in range(3)]) / len(Y)
    for fold in folds:
        assert fold.ridge == int(np.argmax(means))
        assert fold.evidence == pytest.approx(whole, rel=1e-8)
        X, Y = stacked(data, [name for name in names if name != fold.domain])
        Phi, T = data[fold.domain]
        shift = centre(Y, kind)
        ratios = [
            bayes.ratio(Phi, T[:, c] - shift[c], X, Y[:, c] - shift[c], fold.alpha[c], fold.beta[c])
            for c in range(3)
        ]
        assert fold.discriminability == pytest.approx(np.mean(ratios) / len(T), rel=1e-7)
        W = oracle.ridge_regression(X - X.mean(0), Y - Y.mean(0), RIDGES[fold.ridge])
        predicted = Y.mean(0) + (Phi - X.mean(0)) @ W
        np.testing.assert_allclose(fold.predicted, predicted, rtol=1e-7, atol=1e-9)
        np.testing.assert_array_equal(fold.labels, T)
        if kind == "regression":
            assert fold.metric == pytest.approx(r2_score(T, predicted))
            assert fold.second_metric == pytest.approx(np.abs(T - predicted).mean())
        else:
            assert fold.metric == pytest.approx(average_precision_score(T, predicted))
            right = ((predicted > 0.5) == (T > 0.5)).all(axis=1)
            assert fold.second_metric == pytest.approx(right.mean())
        assert fold.contributions.mean() == pytest.approx(fold.metric)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SIZES)
def test_a_test_domain_is_set_aside(kind: Kind, shape: str) -> None:
    d, _ = SIZES[shape]
    data = simulate(kind, d, (40, 30, 35, 25))
    moments = {name: Moments.of(*data[name], 3) for name in data}
    both = leave_two_domains_out(moments, lambda name: [data[name]], kind=kind)
    for test, folds in both.items():
        rest = {name: data[name] for name in data if name != test}
        for fold, expected in zip(folds, folds_of(rest, kind), strict=True):
            assert fold.evidence == pytest.approx(expected.evidence, rel=1e-9)
            assert fold.discriminability == pytest.approx(expected.discriminability, rel=1e-8)
            assert fold.metric == pytest.approx(expected.metric)


@pytest.mark.parametrize("kind", KINDS)
def test_transfer_between_domains(kind: Kind) -> None:
    data = simulate(kind, *SIZES["n > d"])
    moments = {name: Moments.of(*data[name], 3) for name in data}
    found = Transfer.of(moments, by_output=kind == "regression").skills
    for row, source in enumerate(data):
        for column, target in enumerate(data):
            for at, ridge in enumerate(RIDGES):
                if row != column:
                    expected = skill(data[source], data[target], kind, ridge)
                    assert found[row, column, at] == pytest.approx(expected, abs=1e-9)


def models(kind: Kind, seed: int = 0, d: int = 6) -> tuple[dict[str, Any], Any, Any]:
    data = simulate(kind, d, (40, 40, 40), seed)
    X, Y = stacked(data, list(data))
    rng = np.random.default_rng(seed)
    features = {
        "good": X,
        "fair": X + 1.5 * rng.normal(size=X.shape),
        "noise": rng.normal(size=X.shape),
    }
    return features, Y, np.repeat(list(data), 40)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [6, 150])
def test_models_are_ranked_by_the_formula(kind: Kind, d: int) -> None:
    features, Y, domains = models(kind, d=d)
    ranking = oodzoo.rank(features, Y, domains, task=kind)
    assert [row.model for row in ranking.rows] == ["good", "fair", "noise"]
    assert ranking.task == kind
    evidences, skills = [], []
    for X in features.values():
        data = {k: (X[domains == k], Y[domains == k]) for k in "abc"}
        C = Y - centre(Y, kind)
        evidences.append(
            float(np.mean([oracle.highest_log_evidence(X, C[:, c]) for c in range(3)])) / 120
        )
        tables = [
            [skill(data[e], data[k], kind, ridge) for e in data for k in data if e != k]
            for ridge in RIDGES
        ]
        skills.append(max(tables, key=sum))
    expected = dict(zip(features, oracle.combined(evidences, skills), strict=True))
    for row in ranking.rows:
        assert row.score == pytest.approx(expected[row.model], abs=1e-6)


@given(seed=st.integers(0, 1000), scale=st.floats(0.01, 100), shift=st.floats(-1e6, 1e6))
@settings(max_examples=10, deadline=None)
def test_units_and_zero_of_numbers_do_not_matter(seed: int, scale: float, shift: float) -> None:
    features, Y, domains = models("regression", seed)
    one = oodzoo.rank(features, Y, domains)
    two = oodzoo.rank(features, scale * Y + shift, domains)
    for row, other in zip(one.rows, two.rows, strict=True):
        assert row.model == other.model
        assert row.score == pytest.approx(other.score, abs=1e-5)
        assert row.expected_accuracy == pytest.approx(other.expected_accuracy, abs=1e-4)


def test_labels_far_from_zero_lose_no_digits() -> None:
    X, Y = stacked(simulate("regression", 5, (30, 20, 25)), ["a", "b", "c"])
    parts = [Moments.of(X[:30], Y[:30] + 1e9, 3), Moments.of(X[30:], Y[30:] + 1e9, 3)]
    expected = ((Y - Y.mean(axis=0)) ** 2).sum(axis=0)
    np.testing.assert_allclose(merge(parts).label_scatter, expected, rtol=1e-4)
    path = RidgePath.of(merge(parts))
    assert path.skills(parts[0], by_output=True).max() > 0.3


@pytest.mark.parametrize("kind", KINDS)
def test_documents_name_the_metrics(kind: Kind) -> None:
    ranking = oodzoo.rank(*models(kind), task=kind)
    document = ranking.to_dict()
    first = document["ranking"][0]
    names = {
        "regression": ("explained_variance", "absolute_error"),
        "multilabel": ("average_precision", "exact_match"),
    }[kind]
    assert document["task"] == kind
    assert first[f"expected_{names[0]}"] == ranking.rows[0].expected_accuracy
    low, high = first[f"{names[0]}_interval"]
    assert low < first[f"expected_{names[0]}"] < high <= 100
    assert set(names) <= set(first["folds"][0])
    assert "accuracy" not in str(document)
    assert oodzoo.Ranking.from_dict(document) == ranking


def test_a_promise_below_zero_is_kept() -> None:
    """Numbers that another domain predicts badly have a negative explained variance."""
    rng = np.random.default_rng(0)
    X, domains = rng.normal(size=(120, 4)), np.repeat(["a", "b", "c"], 40)
    y = X[:, 0] + 10 * (domains == "b") - 10 * (domains == "c")
    row = oodzoo.rank({"m": X}, y, domains).rows[0]
    assert row.expected_accuracy < 0
    assert row.accuracy_interval[0] < row.expected_accuracy


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("score", ["logme", "zood", "transfer", "discriminability", "stability"])
def test_other_scores(kind: Kind, score: str) -> None:
    features, Y, domains = models(kind)
    ranking = oodzoo.rank(features, Y, domains, task=kind, score=score)
    if score == "logme":
        value = oodzoo.scores.logme(features["good"], Y)
        assert next(r.score for r in ranking.rows if r.model == "good") == pytest.approx(value)
    if score != "stability":
        assert ranking.best == "good"


def test_a_function_gets_the_labels_as_they_are() -> None:
    features, Y, domains = models("regression")
    order = np.argsort(domains, kind="stable")
    seen: list[Any] = []

    def own(X: Any, y: Any) -> float:
        seen.append(y)
        return float(X.std())

    oodzoo.rank(features, Y, domains, score=own)
    np.testing.assert_array_equal(seen[0], Y[order])


@pytest.mark.parametrize(
    ("kind", "score", "advice"),
    [
        ("regression", "accuracy", "explained_variance, logme"),
        ("regression", "knn", "is not for labels of the kind regression; use one of unseen"),
        ("multilabel", "h_score", "average_precision, exact_match, logme"),
        ("multilabel", "explained_variance", "is not for labels of the kind multilabel"),
    ],
)
def test_scores_that_need_other_labels(kind: Kind, score: str, advice: str) -> None:
    with pytest.raises(InputError, match=advice):
        oodzoo.rank(*models(kind), task=kind, score=score)


def test_images_of_the_target_need_classes() -> None:
    features, Y, domains = models("regression")
    with pytest.raises(InputError, match="images of the target are used for classes only"):
        oodzoo.rank(features, Y, domains, target={m: X[:30] for m, X in features.items()})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda Y: Y * [1, 1, 0] + [0, 0, 5], r"y \('y2'\) is constant: 5 in all 120 samples"),
        (lambda Y: np.where(Y[3, 1] == Y, np.nan, Y), r"y has no value in row 3 \(got nan\)"),
    ],
)
def test_numbers_that_cannot_be_predicted(change: Any, says: str) -> None:
    features, Y, domains = models("regression")
    with pytest.raises(InputError, match=says):
        oodzoo.rank(features, change(Y), domains)


def test_an_output_that_varies_in_one_domain_only() -> None:
    """It says nothing about the models where it is held out; the others still count."""
    features, Y, domains = models("regression")
    Y = np.where((domains == "a")[:, None] | np.array([True, True, False]), Y, 3.0)
    ranking = oodzoo.rank(features, Y, domains)
    assert np.isfinite([row.score for row in ranking.rows]).all()
    assert ranking.rows[0].folds[0].skipped == ("y2",)
    assert ranking.rows[0].folds[1].skipped == ()


def test_groups_are_not_trained_on() -> None:
    features, Y, domains = models("regression")
    groups = [f"g{i % 40}" if i % 40 < 5 else None for i in range(120)]
    shared = oodzoo.rank(features, Y, domains, groups=groups)
    assert (
        shared.rows[0].folds[0].accuracy
        != oodzoo.rank(features, Y, domains).rows[0].folds[0].accuracy
    )


def test_an_offset_of_the_features_changes_nothing() -> None:
    features, Y, domains = models("regression")
    far = {name: np.hstack([X + 1e7, np.ones((120, 1))]) for name, X in features.items()}
    with pytest.warns(UserWarning, match="mean of the features"):
        ranking = oodzoo.rank(far, Y, domains)
    near = oodzoo.rank(features, Y, domains)
    assert [row.model for row in ranking.rows] == [row.model for row in near.rows]
    for row, other in zip(ranking.rows, near.rows, strict=True):
        assert row.expected_accuracy == pytest.approx(other.expected_accuracy, abs=0.1)


@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1])
def test_an_output_that_is_constant_up_to_rounding_is_skipped(value: float) -> None:
    """The mean of equal numbers differs from them by rounding, differently in each domain."""
    rng = np.random.default_rng(0)
    domains = np.repeat(["a", "b", "c"], [30, 37, 41])
    X = rng.normal(size=(108, 4))
    Y = np.stack([X[:, 0], np.where(domains == "a", X[:, 1], value)], axis=1)
    first, *others = oodzoo.rank({"m": X}, Y, domains).rows[0].folds
    assert first.skipped == ("y1",)
    assert first.discriminability > -10
    assert all(fold.skipped == () for fold in others)


@pytest.mark.parametrize("value", [0.1, 0.5])
def test_numbers_that_vary_in_one_domain_only(value: float) -> None:
    rng = np.random.default_rng(0)
    domains = np.repeat(["a", "b", "c"], [30, 37, 41])
    X = rng.normal(size=(108, 4))
    y = np.where(domains == "a", X[:, 0], value)
    with pytest.raises(InputError, match="do not vary in the domains other than 'a'; add"):
        oodzoo.rank({"m": X}, y, domains)
