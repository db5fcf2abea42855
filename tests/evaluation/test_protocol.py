"""Leave-one-domain-out evaluation against the protocol written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.combination.data import Costly
from tests.evaluation.data import stored, zoo
from tests.oracles import evaluation as oracle
from tests.oracles.combination import most_accurate, pool
from tests.oracles.paths import left_out_path

import oodzoo
from oodzoo.combination.decision import decide
from oodzoo.combination.heads import Head, choose_pool, predict_with_heads
from oodzoo.combination.predictions import fit_kind
from oodzoo.features.columns import Columns
from oodzoo.features.source import ArraySource, StoreSource
from oodzoo.heads.paths import C_GRID
from oodzoo.selection.select import select_features
from oodzoo.store.local import update_local


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
        alone = {name: _alone(array, y, domains, test) for name, array in features.items()}
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
            assert found[2] == pytest.approx(figures[2], abs=0.5)  # two solvers, one optimum
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


def _alone(array: Any, y: Any, domains: Any, test: str) -> list[float]:
    """A head used alone, with the rule for its C, by scikit-learn."""
    X, numbers = array.astype(np.float32), np.unique(domains, return_inverse=True)[1]
    at = int(test[1:])
    others = [number for number in range(4) if number != at]
    paths, labels = [], []
    for left_out in others:
        path = left_out_path(X, y, numbers, {left_out, at}, C_GRID, 3)
        inside = numbers[np.isin(numbers, [left_out, at])] == left_out
        paths.append(path[:, inside])
        labels.append(y[numbers == left_out])
    setting = most_accurate(paths, labels)
    final = left_out_path(X, y, numbers, {at}, C_GRID, 3)[setting]
    return _figures(np.exp(final), y[numbers == at])


def _pool(features: Any, training: ArraySource, test: str, domains: Any) -> Any:
    """Heads chosen and fitted on the training domains, and their normalised geometric mean."""
    heads = predict_with_heads(training)[None]
    logs = []
    for model, kind in choose_pool(heads).members:
        samples = Columns.all_of(training, [model]).samples(training, training.domains)
        setting = heads.candidates[Head(model, kind)].setting
        head = fit_kind(kind, samples, 3, setting)
        logs.append(np.log(head.probabilities(features[model][domains == test])))
    return np.exp(pool(logs))


def _reached(features: Any, y: Any, domains: Any, test: str) -> list[float]:
    train = domains != test
    scaler, model = oracle.head(features[train], y[train], domains[train])
    return _figures(model.predict_proba(scaler.transform(features[~train])), y[~train])


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


def test_more_models_than_there_are() -> None:
    with pytest.warns(UserWarning, match="only 4 models available, fewer than 9; using all"):
        result = oodzoo.evaluate(*zoo(n=9, n_domains=3), top_k=9, baselines=False)
    assert len(result.ensemble.cells["d0"].models) == result.top_k == 4


def test_any_score_ranks() -> None:
    features, y, domains = zoo(n_domains=3)
    result = oodzoo.evaluate(features, y, domains, score="logme", top_k=1, baselines=False)
    train = domains != "d2"
    totals = {name: oodzoo.scores.logme(array[train], y[train]) for name, array in features.items()}
    assert result.single.cells["d2"].models == (max(totals, key=lambda name: totals[name]),)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k must be a positive integer, .* got 0"),
        ({"top_k": ()}, r"top_k must be .* got \(\)"),
        ({"top_k": "some"}, "top_k must be .* or 'auto', got 'some'"),
        ({"top_k": 2.5}, r"top_k must be .* got 2\.5"),
        ({"protocol": "slow"}, "unknown protocol 'slow'; expected one of fast, domainbed"),
        ({"trials": 0}, "trials must be 1 or more, got 0"),
        ({"max_models": 0}, "max_models must be 1 or more, got 0"),
        ({"max_ms": -1}, "max_ms must be a positive number of milliseconds, got -1"),
        ({"search_space": "domainnet"}, "unknown search space 'domainnet'; expected one of"),
        ({"score": "logmee"}, "unknown score 'logmee'; did you mean logme"),
        ({"baselines": ["zod"]}, "unknown score 'zod'"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(oodzoo.InputError, match=message):
        oodzoo.evaluate(*zoo(), **options)


@pytest.mark.parametrize("n_domains", [1, 2])
def test_too_few_domains(n_domains: int) -> None:
    with pytest.raises(oodzoo.InputError, match=r"needs at least three domains.* got 'd0'"):
        oodzoo.evaluate(*zoo(n_domains=n_domains))


@pytest.mark.parametrize("protocol", ["fast", "domainbed"])
def test_one_class_only(protocol: Any) -> None:
    features, y, domains = zoo()
    with pytest.raises(oodzoo.InputError, match=r"one class, 7 \(120 samples\); at least two"):
        oodzoo.evaluate(features, np.full(len(y), 7), domains, protocol=protocol)


def test_a_domain_of_one_group_cannot_be_split() -> None:
    features, y, domains = zoo()
    groups = [
        None if d == "d0" else f"{d}-{i % 3 if d != 'd2' else 0}" for i, d in enumerate(domains)
    ]
    with pytest.raises(oodzoo.InputError, match="all samples of domain 'd2' are of the group 'd2-"):
        oodzoo.evaluate(features, y, domains, groups=groups, trials=2)
    assert oodzoo.evaluate(features, y, domains, groups=groups, baselines=False).trials == 1


def test_one_class_without_a_domain() -> None:
    features, y, domains = zoo()
    y = np.where(domains == "d2", y, 0)
    with pytest.raises(
        oodzoo.InputError, match="the domains other than 'd2' have only the class 0"
    ):
        oodzoo.evaluate(features, y, domains)


def test_a_domain_too_small_to_split() -> None:
    features, y, domains = zoo()
    keep = np.flatnonzero((domains != "d1") | (np.arange(len(y)) % 30 < 4))
    few = {name: array[keep] for name, array in features.items()}
    with pytest.raises(oodzoo.InputError, match="domain 'd1' has 4 samples; splits of 80 %"):
        oodzoo.evaluate(few, y[keep], domains[keep], trials=2)
    assert oodzoo.evaluate(few, y[keep], domains[keep], baselines=False).trials == 1


def test_a_class_of_the_test_domain_only_is_misclassified() -> None:
    features, y, domains = zoo()
    labels = np.array(["x", "y", "z"], dtype=object)[y]
    labels[np.flatnonzero(domains == "d0")[:15]] = "a new one"
    result = oodzoo.evaluate(features, labels, domains, baselines=False, with_target=True)
    assert result.unseen == {"d0": ("a new one",)}
    for row in result.rows.values():
        assert row.measure("accuracy")["d0"] <= 50
        assert row.measure("accuracy")["d1"] > 60
    line = "The class 'a new one' occurs only in domain 'd0' and is always misclassified there."
    assert line in str(result)


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


@pytest.mark.parametrize("seed", [0, 1])
def test_the_accuracy_of_the_recommendation_is_that_of_what_is_recommended_for_each_domain(
    seed: int,
) -> None:
    result = oodzoo.evaluate(*zoo(n=18, seed=seed), top_k=2, baselines=False)
    best = result.recommended
    assert set(best.choices) == set(best.domains) == set(result.domains)
    for test, choice in best.choices.items():
        assert best.domains[test] == result.rows[choice].measure("accuracy")[test]
    assert best.average == pytest.approx(np.mean(list(best.domains.values())))
    assert best.interval is not None
    low, high = best.interval
    assert 0 <= low <= best.average <= high <= 100


def test_the_recommendation_is_decided_on_all_domains() -> None:
    features, y, domains = zoo(n=18)
    source = ArraySource(features, y, domains)
    best = oodzoo.evaluate(features, y, domains, top_k=2, baselines=False).recommended
    order = [row.model for row in oodzoo.rank(features, y, domains).rows]
    decision = decide(source, order, predict_with_heads(source)[None], top_k=2)
    assert best.choice == decision.recommended
    assert best.models == decision.models(decision.recommended)
    assert best.estimates == {name: each.accuracy for name, each in decision.estimates.items()}


def test_three_domains_recommend_pools() -> None:
    """Two training domains are too few to compare on, and all three are treated alike."""
    result = oodzoo.evaluate(*zoo(n=18, n_domains=3), top_k=2, baselines=False)
    assert result.with_target == {}
    assert result.recommended.choices == dict.fromkeys(("d0", "d1", "d2"), "pool")
    assert result.recommended.average == pytest.approx(result.pool.average)
    assert (result.recommended.choice, result.recommended.estimates) == ("pool", {})


def test_limits_of_what_is_recommended() -> None:
    data = zoo(n=18)
    one = oodzoo.evaluate(*data, top_k=2, baselines=False, max_models=1)
    assert len(one.recommended.models) == 1
    assert set(one.recommended.choices.values()) <= {"single", "pool"}
    assert {len(cell.models) for cell in one.pool.cells.values()} == {1}
    assert {len(cell.models) for cell in one.ensemble.cells.values()} == {2}  # still a row
    times = {"poor": 1.0, "best": 9.0, "fair": 2.0, "good": 9.0}
    source = Costly(*data, times, dict.fromkeys(times, 7))
    fast = oodzoo.evaluate(source, top_k=2, baselines=False, max_ms=3)
    assert set(fast.recommended.models) <= {"fair", "poor"}
    for cell in fast.pool.cells.values():
        assert cell.milliseconds == sum(times[model] for model in cell.models) <= 3
        assert cell.parameters == 7 * len(cell.models)
    with pytest.raises(oodzoo.InputError, match=r"none of the 4 .* \(the fastest takes 1 ms\)"):
        oodzoo.evaluate(source, baselines=False, max_ms=0.1)
    with pytest.raises(oodzoo.InputError, match=r"none of the 4 models .* \(no time is known\)"):
        oodzoo.evaluate(*data, baselines=False, max_ms=100)


# --- checkpoints and progress -------------------------------------------------------------------


def test_an_evaluation_that_was_stopped_continues(tmp_path: Path) -> None:
    data = zoo(n=21, n_domains=3)
    source = stored(tmp_path, *data)
    options: dict[str, Any] = {"top_k": 2, "baselines": False, "with_target": True}
    lines: list[str] = []

    def stop(line: str) -> None:
        if line.startswith("test domain 'd1': training"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        oodzoo.evaluate(source, **options, log=stop)

    def tests(changed: StoreSource = source, **more: Any) -> list[str]:
        """The test domains that are evaluated, not read."""
        lines.clear()
        oodzoo.evaluate(changed, **options | more, log=lines.append)
        return sorted({line.split("'")[1] for line in lines if line.startswith("test domain")})

    assert tests() == ["d1", "d2"]
    assert tests() == []
    again = oodzoo.evaluate(source, **options)
    assert again == oodzoo.evaluate(stored(tmp_path / "fresh", *data), **options)
    every = ["d0", "d1", "d2"]
    assert tests(max_models=1) == every
    update_local(source.store.path, "best", {"milliseconds_per_image": 2.0})
    assert tests() == every  # the cost matters
    features, y, domains = data
    changed = features | {"poor": features["poor"] + 1 / 3}
    other = stored(tmp_path / "other", changed, y, domains)
    (source.store.path / "cache").rename(other.store.path / "cache")
    assert tests(other) == every


def test_progress_ends_at_the_total() -> None:
    calls: list[tuple[int, int]] = []
    oodzoo.evaluate(
        *zoo(n=9, n_domains=3), top_k=1, baselines=False,
        progress=lambda done, total: calls.append((done, total)),
    )  # fmt: skip
    done, totals = zip(*calls, strict=True)
    assert len(set(totals)) == 1
    assert list(done) == sorted(set(done))
    assert done[-1] == totals[0]


def test_images_of_the_test_domain_help_where_domains_are_shifted() -> None:
    features, y, domains = zoo(n=24)
    rng = np.random.default_rng(5)
    for name, array in features.items():
        features[name] = array + np.repeat(4 * rng.normal(size=(4, array.shape[1])), 24, axis=0)
    result = oodzoo.evaluate(features, y, domains, top_k=2, baselines=False, with_target=True)
    assert list(result.with_target) == ["pool"]
    assert result.with_target["pool"].average > result.pool.average + 10
