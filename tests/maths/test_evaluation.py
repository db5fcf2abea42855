"""Leave-one-domain-out evaluation against the protocol written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, r2_score
from tests.evaluation.data import task_zoo, zoo
from tests.oracles import evaluation as oracle
from tests.oracles import outputs
from tests.oracles.combination import pool

import oodzoo
from oodzoo.combining.decision import decide
from oodzoo.combining.evaluation.protocol import few_samples
from oodzoo.combining.heads import choose_pool, predict_with_heads
from oodzoo.combining.predictions import fit_kind
from oodzoo.combining.selection import select_features
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.source import ArraySource
from oodzoo.linear.heads.kinds import folds_within
from oodzoo.linear.heads.paths import C_GRID
from oodzoo.linear.heads.ridge import RIDGES
from oodzoo.tasks import Kind
from oodzoo.tasks.metrics import contributions


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
        decision = decide(training, order, predict_with_heads(training)[None], top_k=2)
        assert result.recommended.choices[test] == decision.recommended
        assert result.pool.cells[test].models == decision.pool.models
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
        head = fit_kind("classification", member.kind, samples, 3, setting)
        logs.append(np.log(head.probabilities(features[member.model][domains == test])))
    return np.exp(pool(logs, found.weights))


def _reached(array: Any, y: Any, domains: Any, test: str) -> list[float]:
    """A head of some columns, with the setting that the training domains choose."""
    X, numbers = array.astype(np.float32), np.unique(domains, return_inverse=True)[1]
    train, folds = domains != test, np.full(len(y), -1)
    folds[train] = folds_within("classification", y[train], numbers[train])
    logs = oracle.chosen_head(X, y, np.where(train, numbers, -1), folds, 3)
    return _figures(np.exp(logs), y[~train])


def _figures(probabilities: Any, labels: Any) -> list[float]:
    return [
        100 * oracle.accuracy(probabilities, labels),
        100 * oracle.balanced_accuracy(probabilities, labels),
        100 * oracle.calibration_error(probabilities, labels, 15),
    ]


# --- recommendation -----------------------------------------------------------------------------


# --- checkpoints and progress -------------------------------------------------------------------


# --- numbers, and several labels per sample -------------------------------------------------------

TASKS = ["regression", "multilabel"]


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("d", [5, 60])
def test_other_tasks_equal_scikit_learn(kind: Kind, d: int) -> None:
    """A test domain: its single model and the best two, with the regularisation by hand."""
    features, y, domains = task_zoo(kind, n=18, d=d)
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
    """Predictions of a test domain with the setting that is best on left-out training domains."""
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


def test_a_class_with_few_samples_in_a_domain_is_said_in_one_line() -> None:
    features, y, domains = zoo(n=18)
    labels, places = np.asarray(y), np.asarray(domains)
    rare = np.flatnonzero((places == places[0]) & (labels == labels[0]))
    kept = np.delete(np.arange(len(labels)), rare[2:])
    some = ArraySource({m: x[kept] for m, x in features.items()}, labels[kept], places[kept])
    assert "has 2 samples in domain" in few_samples(some)
    assert few_samples(ArraySource(features, y, domains)) == ""


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
        values = 100 * contributions("regression", predicted, source.labels(test))
        assert values.mean() == pytest.approx(cell.accuracy)
        parts = np.split(values - values.mean(), 12 if groups is None else 4)
        n = len(parts)
        expected = sum(part.sum() ** 2 for part in parts) * n / (n - 1) / 12**2
        assert cell.variance == pytest.approx(expected)
