"""Leave-one-domain-out evaluation against the protocol written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, r2_score
from tests.evaluation.data import task_zoo, zoo
from tests.events.heard import Heard
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
from oodzoo.extraction.importing import import_features
from oodzoo.extraction.source import ArraySource
from oodzoo.linear.heads import kinds
from oodzoo.linear.heads.kinds import folds_within
from oodzoo.linear.heads.paths import C_GRID
from oodzoo.linear.heads.ridge import RIDGES
from oodzoo.tasks import Kind


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


def test_several_numbers_of_models() -> None:
    data = zoo(n_domains=3)
    result = oodzoo.evaluate(*data, top_k=(1, 3), baselines=False)
    assert list(result.ablation) == [1, 3]
    assert result.top_k == 3
    assert result.ablation[3].ensemble == result.ensemble
    for test, cell in result.ablation[1].ensemble.cells.items():
        assert cell.models == result.single.cells[test].models
        assert cell.accuracy == pytest.approx(result.single.cells[test].accuracy, abs=6)
    paper = oodzoo.evaluate(*data, top_k=1, baselines=[])
    assert paper.baselines["paper_selection"] == result.ablation[1].selection
    assert paper.ensemble == result.ablation[1].ensemble
    assert paper.selection == result.selection  # from all models
    assert paper.ablation == {}
    document = result.to_dict()
    assert [each["top_k"] for each in document["ablation"]] == [1, 3]
    assert document["ablation"][1]["ensemble"] == document["ensemble"]


def test_any_score_ranks() -> None:
    features, y, domains = zoo(n_domains=3)
    result = oodzoo.evaluate(features, y, domains, score="logme", top_k=1, baselines=False)
    train = domains != "d2"
    totals = {name: oodzoo.scores.logme(array[train], y[train]) for name, array in features.items()}
    assert result.single.cells["d2"].models == (max(totals, key=lambda name: totals[name]),)


def test_a_domain_without_a_readable_image_is_skipped(tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for domain in ("a", "b", "broken", "c"):
        for label, grey in (("dark", 40), ("light", 200)):
            for number in range(4):
                path = tmp_path / "photos" / domain / label / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = np.clip(rng.normal(grey, 20, (32, 32, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(path)
                if domain == "broken":
                    path.write_bytes(b"no image")
    models = [spec for spec in oodzoo.load_zoo("demo") if spec.name == "mixer_random"]
    store = oodzoo.extract(tmp_path / "photos", models, tmp_path / "store")
    with pytest.warns(UserWarning, match="'broken': no samples; skipped"):
        result = oodzoo.evaluate(store, top_k=1, baselines=False)
    assert result.domains == ("a", "b", "c")


# --- recommendation -----------------------------------------------------------------------------


@pytest.mark.parametrize("n_domains", [3, 4])
def test_the_recommendation_is_decided_on_all_domains(n_domains: int) -> None:
    features, y, domains = zoo(n=18, n_domains=n_domains)
    source = ArraySource(features, y, domains)
    best = oodzoo.evaluate(features, y, domains, top_k=2, baselines=False).recommended
    order = [row.model for row in oodzoo.rank(features, y, domains).rows]
    decision = decide(source, order, predict_with_heads(source)[None], top_k=2)
    assert best.choice == decision.recommended
    assert best.models == decision.models(decision.recommended)
    assert list(best.estimates) == ["single", "pool", "ensemble", "selection"]
    for name, each in decision.estimates.items():
        assert best.estimates[name] == each.accuracy
        assert best.within.get(name) == each.accuracy_within
    assert list(best.within) == ["single", "pool", "ensemble"]  # a selection has seen all labels


# --- checkpoints and progress -------------------------------------------------------------------


def test_progress_ends_at_the_total() -> None:
    heard = Heard()
    oodzoo.evaluate(*zoo(n=9, n_domains=3), top_k=1, baselines=False, listener=heard)
    done, totals = zip(*heard.steps(), strict=True)
    assert len(set(totals)) == 1
    assert list(done) == sorted(set(done))
    assert done[-1] == totals[0]


def test_the_events_of_an_evaluation() -> None:
    features, y, domains = zoo(n=12, n_domains=4)
    heard = Heard()
    result = oodzoo.evaluate(features, y, domains, top_k=2, listener=[heard])
    [(stage, start)] = heard.of("start")
    assert (stage, start["models"], start["top_k"]) == ("evaluation", list(features), 2)
    assert (start["domains"], start["images"]) == (["d0", "d1", "d2", "d3"], len(y))
    assert any(line.startswith("test domain 'd2': ") for line in heard.messages())
    found = heard.metrics("evaluation")
    assert result.oracle is not None
    for name, row in result.rows.items():
        assert found.pop(f"{name}/accuracy") == pytest.approx(row.average)
        for domain, accuracy in row.measure("accuracy").items():
            assert found.pop(f"{name}/accuracy_by_domain/{domain}") == accuracy
    assert found.pop("recommended/accuracy") == pytest.approx(result.recommended.average)
    assert found == {
        f"recommended/accuracy_by_domain/{domain}": accuracy
        for domain, accuracy in result.recommended.domains.items()
    }
    assert heard.outline() == [("evaluation", "start"), ("evaluation", "done")]
    assert heard.of("end")[0][1]["result"] == result


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


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize(("n", "d", "seed"), [(30, 5, 0), (12, 60, 1)])
@pytest.mark.filterwarnings("ignore:no feature of noise helps")
def test_other_tasks_end_to_end(kind: Kind, n: int, d: int, seed: int) -> None:
    features, y, domains = task_zoo(kind, n=n, d=d, seed=seed)
    result = oodzoo.evaluate(features, y, domains, task=kind, top_k=2)
    least = 70 if kind == "regression" else 85
    for row in (result.single, result.ensemble, result.selection, result.pool):
        assert row.average > least
    assert all(cell.models == ("good",) for cell in result.single.cells.values())
    alone = {name: features[name] for name in ("noise",)}
    noise = oodzoo.evaluate(alone, y, domains, task=kind, top_k=1, baselines=False)
    assert noise.recommended.average < result.recommended.average - 30
    assert {"random_features", "oracle", "best_by_logme", "paper_selection"} <= set(
        result.baselines
    )
    assert result.oracle is not None
    assert result.oracle.average >= result.single.average
    assert result.selection.average - result.baselines["random_features"].average > 0
    assert result.recommended.choice in ("single", "pool", "ensemble", "selection")


@pytest.mark.parametrize("kind", TASKS)
def test_trials_and_the_number_of_models_of_other_tasks(kind: Kind) -> None:
    data = task_zoo(kind, n_domains=3)
    result = oodzoo.evaluate(*data, task=kind, top_k="auto", trials=2, baselines=False)
    assert all(k in (1, 3) for k in result.top_k.values())  # type: ignore[union-attr]
    assert all(len(cell.measures) == 2 for cell in result.single.cells.values())
    assert result.single.error is not None


def test_units_and_order_of_numbers_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    features, y, domains = task_zoo("regression", n=18)

    def require_same(one: Any, two: Any) -> None:
        first, second = (oodzoo.evaluate(features, each, domains, top_k=2) for each in (one, two))
        for name, row in first.rows.items():
            assert second.rows[name].average == pytest.approx(row.average, abs=1e-2)
        assert second.recommended.choices == first.recommended.choices
        assert second.recommended.interval == pytest.approx(first.recommended.interval, abs=1e-2)

    require_same(y, y * [0.2, 1000] + [1, -5])
    # folds have equal shares of the ranges of the first number: other numbers make other folds
    monkeypatch.setattr(kinds, "strata", lambda kind, labels: np.zeros(len(labels), np.int64))
    require_same(y, y[:, ::-1] * [-0.2, 1000] + [1, -5])


def test_a_store_of_numbers_and_its_cache(tmp_path: Path) -> None:
    features, y, domains = task_zoo("regression", n=15)
    arrays: Any = {"labels": y[:, 1], "domains": domains} | features
    np.savez(tmp_path / "f.npz", **arrays)
    store = import_features([tmp_path / "f.npz"], tmp_path / "store", task="regression")
    expected = oodzoo.evaluate(features, y[:, 1], domains, task="regression", baselines=False)
    for _ in range(2):  # computed, then read
        found = oodzoo.evaluate(store, baselines=False)
        assert found.task == "regression"
        for name, row in found.rows.items():
            assert row.average == pytest.approx(expected.rows[name].average, abs=1e-3)
    assert found.recommended.interval == pytest.approx(expected.recommended.interval, abs=1e-2)


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
