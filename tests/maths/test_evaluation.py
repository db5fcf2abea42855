"""Measures, learning curves and leave-one-domain-out evaluation against their definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, mean_absolute_error, r2_score
from tests.evaluation.data import task_zoo, zoo
from tests.oracles import evaluation as oracle
from tests.oracles import outputs
from tests.oracles.combination import pool
from tests.oracles.ridge import left_out_ridge

import oodzoo
from oodzoo.combining.combination import Training
from oodzoo.combining.evaluation import Evaluation
from oodzoo.combining.evaluation.learning_curve import (
    Part,
    metric_of_all,
    metrics_of,
    places,
    with_fewer_domains,
)
from oodzoo.combining.pool_weights import choose_pool
from oodzoo.combining.predictions import fit_kind, predict_with_heads
from oodzoo.combining.selection import select_features
from oodzoo.combining.ways import decide
from oodzoo.extraction.columns import Columns, Samples
from oodzoo.extraction.features import ArraySource
from oodzoo.linear.heads.domainbed import sweep
from oodzoo.linear.heads.kinds import folds_within
from oodzoo.linear.heads.paths import C_GRID
from oodzoo.linear.heads.ridge import RIDGES, SETTINGS
from oodzoo.tasks import CLASSIFICATION, Kind
from oodzoo.tasks.classification import BINS, calibration_error
from oodzoo.tasks.multilabel import Multilabel
from oodzoo.tasks.regression import Regression


def test_every_row_equals_the_protocol_written_out() -> None:
    features, y, domains = zoo()
    result = oodzoo.evaluate(features, y, domains, top_k=2, baselines=["logme"])
    assert result.domains == ("d0", "d1", "d2", "d3")
    for test in ("d0", "d2"):
        train = domains != test
        own = {name: array[train] for name, array in features.items()}
        training = ArraySource(own, y[train], domains[train])
        order = [row.model for row in oodzoo.rank(own, y[train], domains[train]).rows]
        concatenated = np.concatenate([features[m] for m in order[:2]], axis=1).astype(np.float32)
        mask = oodzoo.SpikeSlabSelector().fit(concatenated[train], y[train]).get_support()
        selection = select_features(training).columns
        selected = np.concatenate(
            [features[m][:, columns] for m, columns in selection.by_model.items()], axis=1
        ).astype(np.float32)
        logme = {name: oodzoo.scores.logme(array, y[train]) for name, array in own.items()}
        alone = {name: _reached(array, y, domains, test) for name, array in features.items()}
        expected = {
            "single": alone[order[0]],
            "ensemble": _reached(concatenated, y, domains, test),
            "selection": _reached(selected, y, domains, test),
            "paper_selection": _reached(concatenated[:, mask], y, domains, test),
            "pool": _figures(_pool(features, training, test, domains), y[~train]),
        }
        for name, figures in expected.items():
            row = result.rows[name]
            found = [row.measure(m)[test] for m in ("accuracy", "balanced", "calibration_error")]
            assert found[:2] == pytest.approx(figures[:2])
            assert found[2] == pytest.approx(figures[2], abs=1e-3)
        assert result.single.cells[test].models == (order[0],)
        assert result.ensemble.cells[test].models == tuple(order[:2])
        assert result.ensemble.cells[test].n_features == 12
        assert result.selection.cells[test].n_features == len(selection)
        assert result.selection.cells[test].models == selection.models
        assert result.baselines["paper_selection"].cells[test].n_features == mask.sum()
        assert result.feature_ratio[test] == len(selection) / 24
        oracle_row = result.baselines["oracle"]
        highest = max(figures[0] for figures in alone.values())
        assert oracle_row.measure("accuracy")[test] == pytest.approx(highest)
        best = max(logme, key=lambda name: logme[name])
        assert result.baselines["best_by_logme"].cells[test].models == (best,)
        decision = decide(Training(training, order, top_k=2))
        assert result.recommended.choices[test] == decision.recommended
        assert result.pool.cells[test].models == decision.chosen["pool"].models
    averages = [result.selection.measure("accuracy")[test] for test in result.domains]
    assert result.selection.average == pytest.approx(np.mean(averages))


def _pool(features: Any, training: ArraySource, test: str, domains: Any) -> Any:
    """Heads chosen and fitted on the training domains, and their weighted geometric mean."""
    heads = predict_with_heads(training)[None]
    found = choose_pool(heads)
    logs = []
    for member in found.members:
        samples = Columns.all_of(training, [member.model]).samples(training, training.domains)
        setting = heads.candidates[member].setting
        head = fit_kind(CLASSIFICATION, member.kind, samples, 3, setting)
        logs.append(np.log(head.probabilities(features[member.model][domains == test])))
    return np.exp(pool(logs, found.weights))


def _reached(array: Any, y: Any, domains: Any, test: str) -> list[float]:
    """A head of some columns, with the setting that the training domains choose."""
    X, numbers = array.astype(np.float32), np.unique(domains, return_inverse=True)[1]
    train, folds = domains != test, np.full(len(y), -1)
    folds[train] = folds_within(CLASSIFICATION, y[train], numbers[train])
    logs = oracle.chosen_head(X, y, np.where(train, numbers, -1), folds, 3)
    return _figures(np.exp(logs), y[~train])


def _figures(probabilities: Any, labels: Any) -> list[float]:
    return [
        100 * oracle.accuracy(probabilities, labels),
        100 * oracle.balanced_accuracy(probabilities, labels),
        100 * oracle.calibration_error(probabilities, labels, 15),
    ]


# --- numbers, and several labels per sample -------------------------------------------------------

OTHERS = ["regression", "multilabel"]


@pytest.mark.parametrize("kind", OTHERS)
def test_other_tasks_equal_scikit_learn(kind: Kind) -> None:
    """A held-out domain: its single model and the best two, with the regularisation by hand."""
    features, y, domains = task_zoo(kind, n=18, d=60 if kind == "regression" else 5)
    result = oodzoo.evaluate(features, y, domains, task=kind, top_k=2)
    assert (result.task, result.metric) == (kind, result.single.metric)
    main, second = result.single.measures
    test = "d1"
    train = domains != test
    own = {name: array[train] for name, array in features.items()}
    order = [row.model for row in oodzoo.rank(own, y[train], domains[train], task=kind).rows]
    assert order[0] == "good"
    for row, models in ((result.single, order[:1]), (result.ensemble, order[:2])):
        X = np.concatenate([features[model] for model in models], axis=1).astype(np.float32)
        predicted = _by_hand(kind, X, y, domains, test)
        if kind == "regression":
            expected = 100 * r2_score(y[~train], predicted)
            other = np.abs(y[~train] - predicted).mean()
        else:
            expected = 100 * average_precision_score(y[~train], predicted)
            other = 100 * np.mean(((predicted > 0) == y[~train]).all(axis=1))
        assert row.measure(main)[test] == pytest.approx(expected, abs=0.5)
        assert row.measure(second)[test] == pytest.approx(other, rel=1e-3)
        assert row.cells[test].models == tuple(models)


def _by_hand(kind: Kind, X: Any, y: Any, domains: Any, test: str) -> Any:
    """Predictions of a held-out domain with the best setting on held-out training domains."""
    fit = outputs.regression if kind == "regression" else outputs.log_odds
    train = domains != test
    values = []
    grid = RIDGES if kind == "regression" else C_GRID
    for setting in grid:
        quality = []
        for domain in sorted(set(domains[train].tolist())):
            rest, here = train & (domains != domain), domains == domain
            predicted = fit(X[rest], y[rest], X[here], setting)
            quality.append(
                outputs.squared_error(predicted, y[here], y[train])
                if kind == "regression"
                else outputs.likelihood(predicted, y[here])
            )
        values.append(np.mean(quality))
    return fit(X[train], y[train], X[~train], grid[int(np.argmax(values))])


@pytest.mark.parametrize("groups", [None, [f"g{row // 3}" for row in range(48)]])
def test_the_variance_of_a_metric_is_that_of_its_contributions(groups: list[str] | None) -> None:
    features, y, domains = task_zoo("regression", n=12)
    found = oodzoo.evaluate(features, y, domains, groups=groups, top_k=1, baselines=False)
    source = ArraySource(features, y, domains, groups, "regression")
    heads = predict_with_heads(source)
    for test in source.domains:
        cell = found.single.cells[test]
        predicted = heads[test].alone[cell.models[0]].test
        assert predicted is not None
        values = 100 * source.task.contributions(predicted, source.labels(test))
        assert values.mean() == pytest.approx(cell.accuracy)
        parts = np.split(values - values.mean(), 12 if groups is None else 4)
        n = len(parts)
        expected = sum(part.sum() ** 2 for part in parts) * n / (n - 1) / 12**2
        assert cell.variance == pytest.approx(expected)


def grouped(data: Any) -> list[str | None]:
    """Four groups of each domain, four that occur in all, and a sample without one."""
    numbers = np.random.default_rng(0).integers(0, 8, len(data[1])).tolist()
    groups = [f"{d} {n}" if n < 4 else str(n) for n, d in zip(numbers, data[2], strict=True)]
    return [None, *groups[1:]]


@pytest.mark.parametrize("with_groups", [False, True])
def test_domainbed_scores_the_in_split_of_the_test_domain(with_groups: bool) -> None:
    features, y, domains = zoo()
    groups = grouped(zoo()) if with_groups else None
    result = oodzoo.evaluate(
        features, y, domains, groups=groups, top_k=1, protocol="domainbed", trials=2, draws=2,
        steps=60, baselines=False, seed=5, search_space="DomainNet",
    )  # fmt: skip
    assert result.to_dict()["protocol"] == "domainbed"
    for number, test in enumerate(result.domains):
        array = features[result.single.cells[test].models[0]].astype(np.float32)
        samples = Samples(array, y, np.unique(domains, return_inverse=True)[1])
        found = sweep(
            samples, 3, groups=groups, test_domains=[number], trials=2, draws=2, steps=60, seed=5,
            search_space="DomainNet",
        )  # fmt: skip
        expected = found.accuracies()[number]
        mine = [each[0] / 100 for each in result.single.cells[test].measures]
        assert mine == pytest.approx(expected)
        for rule, rows in result.by_rule.items():
            mine = [each[0] / 100 for each in rows["single"].cells[test].measures]
            assert mine == pytest.approx(found.accuracies(rule)[number])
    assert list(result.by_rule) == ["training-domain", "leave-one-domain-out", "oracle"]
    assert result.by_rule["leave-one-domain-out"]["selection"] == result.selection
    assert Evaluation.from_dict(result.to_dict()) == result


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(2, 5), st.floats(0.1, 20))
def test_measures_equal_their_definitions(
    seed: int, n: int, n_classes: int, sharpness: float
) -> None:
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.normal(size=(n, n_classes))
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    labels = rng.integers(0, n_classes, n)
    expected = oracle.accuracy(probabilities, labels)
    assert CLASSIFICATION.score(probabilities, labels) == pytest.approx(expected)
    expected = oracle.balanced_accuracy(probabilities, labels)
    assert CLASSIFICATION.second_score(probabilities, labels) == pytest.approx(expected)
    expected = oracle.calibration_error(probabilities, labels, BINS)
    assert calibration_error(probabilities, labels) == pytest.approx(expected)


def test_the_edge_of_a_bin_belongs_to_the_bin_below() -> None:
    # 0.6 = 9/15 and 0.59 share the ninth bin, where their errors cancel; 0.61 does not.
    wrong, right = [0.6, 0.4], [0.59, 0.41]
    labels = np.array([1, 0])
    together = calibration_error(np.array([wrong, right]), labels)
    assert together == pytest.approx(abs((0 - 0.6) + (1 - 0.59)) / 2)
    apart = calibration_error(np.array([[0.61, 0.39], right]), labels)
    assert apart == pytest.approx((0.61 + 0.41) / 2)


@given(st.integers(0, 2**32 - 1), st.integers(3, 30), st.integers(2, 4))
def test_measures_of_each_output_equal_scikit_learn(seed: int, n: int, n_outputs: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"y{column}" for column in range(n_outputs)]
    y = rng.normal(size=(n, n_outputs)) * 10.0 ** np.arange(n_outputs)
    predicted = y + rng.normal(size=y.shape)
    found = Regression().measured_outputs(predicted, y, names)
    assert list(found) == names
    for column, name in enumerate(names):
        pair = y[:, column], predicted[:, column]
        assert found[name] == pytest.approx(
            {
                "explained_variance": 100 * r2_score(*pair),
                "absolute_error": mean_absolute_error(*pair),
            }
        )
    together = Regression().measured(predicted, y)
    for at, measure in enumerate(together._fields):
        assert together[at] == pytest.approx(np.mean([each[measure] for each in found.values()]))
    labels = (rng.random((n, n_outputs)) < 0.3).astype(float)
    found = Multilabel().measured_outputs(predicted, labels, names)
    present = np.flatnonzero(labels.any(axis=0)).tolist()
    assert list(found) == [names[column] for column in present]
    for column in present:
        expected = 100 * average_precision_score(labels[:, column], predicted[:, column])
        assert found[names[column]] == pytest.approx({"average_precision": expected})


@pytest.mark.parametrize("test", ["d0", "d2"])
def test_a_part_equals_the_protocol_written_out(test: str) -> None:
    features, y, domains = zoo(n=24)
    source = ArraySource(features, y, domains)
    found = metrics_of(source, Part("fair", (test,), 0.25, 1))
    X, numbers = features["fair"].astype(np.float32), np.repeat(np.arange(4), 24)
    kept = np.concatenate([places(source, f"d{n}", 1) < 0.25 for n in range(4)])
    assert kept.sum() == 24  # two of each of three classes in four domains
    tested = numbers == int(test[1:])
    some, train = kept | tested, kept & ~tested
    by_domain, folds = np.where(train, numbers, -1), np.full(len(y), -1)
    folds[train] = folds_within(CLASSIFICATION, y[train], numbers[train])
    final = oracle.chosen_head(X[some], y[some], by_domain[some], folds[some], 3)
    right = [int(np.argmax(row)) == c for row, c in zip(final, y[tested], strict=True)]
    assert found == {test: pytest.approx(100 * sum(right) / len(right))}


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=2, max_size=40),
    share=st.floats(0.05, 1),
    grouped=st.booleans(),
)
def test_parts_are_stratified_and_nested(labels: list[int], share: float, grouped: bool) -> None:
    y = np.array([*labels, *labels])
    domains = np.repeat(["a", "b"], len(labels))
    groups = [f"g{row // 3}" for row in range(len(y))] if grouped else None
    source = ArraySource({"m": np.zeros((len(y), 1))}, y, domains, groups)
    first, second = places(source, "a", 0), places(source, "a", 1)
    for label in set(labels):
        mine = np.array(labels) == label
        assert (first[mine] < share).sum() == math.ceil(round(share * mine.sum(), 9))
        if groups is None:  # the second draw begins with what the first one ends with
            assert first[mine].argmax() == second[mine].argmin()
    assert set(np.flatnonzero(first < share / 2)) <= set(np.flatnonzero(first < share))


# --- one training domain fewer


def test_it_equals_heads_trained_without_each_other_domain() -> None:
    features, y, domains = zoo(n=18)
    source = ArraySource(features, y, domains)
    heads = predict_with_heads(source)
    models = {"d0": "fair", "d1": "good", "d2": "fair", "d3": "good"}
    found = with_fewer_domains(source, models, heads)
    assert found.training == 3
    numbers = np.repeat(np.arange(4), 18)
    for at in (0, 3):
        test = f"d{at}"
        model, inside = models[test], numbers == at
        setting = SETTINGS[heads[test].alone[model].setting]
        shares = []
        for other in set(range(4)) - {at}:
            X = features[model].astype(np.float32)
            (path,) = left_out_ridge(X, y, numbers, {at, other}, [setting], 3)
            predicted = path.argmax(axis=1)[inside[np.isin(numbers, [at, other])]]
            shares.append(100 * np.mean(predicted == y[inside]))
        assert found.fewer[test] == pytest.approx(np.mean(shares))
        assert found.all[test] == metric_of_all(source, heads[test], test, model)
