"""Leave-one-domain-out evaluation against the protocol written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import zoo
from tests.oracles import evaluation as oracle

import oodzoo


def test_every_row_equals_the_protocol_written_out() -> None:
    features, y, domains = zoo()
    result = oodzoo.evaluate(features, y, domains, top_k=2, baselines=["logme"])
    assert result.domains == ("d0", "d1", "d2", "d3")
    for test in result.domains:
        train = domains != test
        own = {name: array[train] for name, array in features.items()}
        order = [row.model for row in oodzoo.rank(own, y[train], domains[train]).rows]
        concatenated = np.concatenate([features[m] for m in order[:2]], axis=1).astype(np.float32)
        mask = oodzoo.SpikeSlabSelector().fit(concatenated[train], y[train]).get_support()
        logme = {name: oodzoo.scores.logme(array, y[train]) for name, array in own.items()}
        accuracies = {}
        for model in features:
            cell = _reached(features[model].astype(np.float32), y, domains, test)
            accuracies[model] = cell[0]
        expected = {
            "single": _reached(features[order[0]].astype(np.float32), y, domains, test),
            "ensemble": _reached(concatenated, y, domains, test),
            "selection": _reached(concatenated[:, mask], y, domains, test),
        }
        for name, figures in expected.items():
            row = result.rows[name]
            found = [row.measure(m)[test] for m in ("accuracy", "balanced", "calibration_error")]
            assert found[:2] == pytest.approx(figures[:2])
            assert found[2] == pytest.approx(figures[2], abs=0.5)  # two solvers, one optimum
        assert result.single.cells[test].models == (order[0],)
        assert result.ensemble.cells[test].models == tuple(order[:2])
        assert result.ensemble.cells[test].n_features == 12
        assert result.selection.cells[test].n_features == mask.sum()
        assert result.feature_ratio[test] == mask.mean()
        oracle_row = result.baselines["oracle"]
        assert oracle_row.measure("accuracy")[test] == pytest.approx(max(accuracies.values()))
        best = max(logme, key=lambda name: logme[name])
        assert result.baselines["best_by_logme"].cells[test].models == (best,)
    averages = [result.selection.measure("accuracy")[test] for test in result.domains]
    assert result.selection.average == pytest.approx(np.mean(averages))


def _reached(features: Any, y: Any, domains: Any, test: str) -> list[float]:
    train = domains != test
    scaler, model = oracle.head(features[train], y[train], domains[train])
    probabilities = model.predict_proba(scaler.transform(features[~train]))
    labels = y[~train]
    return [
        100 * oracle.accuracy(probabilities, labels),
        100 * oracle.balanced_accuracy(probabilities, labels),
        100 * oracle.calibration_error(probabilities, labels, 15),
    ]


def test_several_numbers_of_models() -> None:
    data = zoo()
    result = oodzoo.evaluate(*data, top_k=(1, 3), baselines=False)
    assert list(result.ablation) == [1, 3]
    assert result.top_k == 3
    assert result.ablation[3].ensemble == result.ensemble
    assert result.ablation[1].ensemble == result.single
    alone = oodzoo.evaluate(*data, top_k=1, baselines=False)
    assert alone.selection == result.ablation[1].selection
    assert alone.ablation == {}
    document = result.to_dict()
    assert [each["top_k"] for each in document["ablation"]] == [1, 3]
    assert document["ablation"][1]["selection"] == document["selection"]


def test_more_models_than_there_are() -> None:
    with pytest.warns(UserWarning, match="only 4 models available, fewer than 9; using all"):
        result = oodzoo.evaluate(*zoo(), top_k=9, baselines=False)
    assert len(result.ensemble.cells["d0"].models) == result.top_k == 4


def test_any_score_ranks() -> None:
    features, y, domains = zoo()
    result = oodzoo.evaluate(features, y, domains, score="logme", top_k=1, baselines=False)
    train = domains != "d3"
    totals = {name: oodzoo.scores.logme(array[train], y[train]) for name, array in features.items()}
    assert result.single.cells["d3"].models == (max(totals, key=lambda name: totals[name]),)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k must be a positive integer, .* got 0"),
        ({"top_k": ()}, r"top_k must be .* got \(\)"),
        ({"top_k": "some"}, "top_k must be .* or 'auto', got 'some'"),
        ({"top_k": 2.5}, r"top_k must be .* got 2\.5"),
        ({"protocol": "slow"}, "unknown protocol 'slow'; expected one of fast, domainbed"),
        ({"trials": 0}, "trials must be 1 or more, got 0"),
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
    result = oodzoo.evaluate(features, labels, domains, baselines=False)
    assert result.unseen == {"d0": ("a new one",)}
    assert result.ensemble.measure("accuracy")["d0"] <= 50
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
