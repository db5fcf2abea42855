"""Evaluation from arrays, from a store and from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import zoo
from tests.oracles import evaluation as oracle

import oodzoo
from oodzoo.cli import main
from oodzoo.features.importing import import_features


def stored(folder: Path, *data: Any) -> Path:
    features, y, domains = data
    np.savez(folder / "f.npz", labels=y.astype(str), domains=domains, **features)
    return import_features([folder / "f.npz"], folder / "store").path


def test_protocol_written_out() -> None:
    features, y, domains = zoo()
    result = oodzoo.evaluate(features, y, domains, top_k=2, baselines=["logme"])
    assert result.domains == ("d0", "d1", "d2", "d3")
    for test in result.domains:
        train = domains != test
        own = {name: array[train] for name, array in features.items()}
        order = [row.model for row in oodzoo.rank(own, y[train], domains[train]).rows]
        side_by_side = np.concatenate([features[m] for m in order[:2]], axis=1).astype(np.float32)
        mask = oodzoo.SpikeSlabSelector().fit(side_by_side[train], y[train]).get_support()
        logme = {name: oodzoo.scores.logme(array, y[train]) for name, array in own.items()}
        accuracies = {}
        for model in features:
            cell = _reached(features[model].astype(np.float32), y, domains, test)
            accuracies[model] = cell[0]
        expected = {
            "single": _reached(features[order[0]].astype(np.float32), y, domains, test),
            "ensemble": _reached(side_by_side, y, domains, test),
            "selection": _reached(side_by_side[:, mask], y, domains, test),
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


def test_random_features_are_as_many_and_from_the_same_models() -> None:
    result = oodzoo.evaluate(*zoo(), top_k=2, baselines=[])
    for test, cell in result.baselines["random_features"].cells.items():
        assert cell.n_features == result.selection.cells[test].n_features
        assert set(cell.models) <= set(result.ensemble.cells[test].models)
    assert set(result.baselines) == {
        "random_features", "oracle", "best_by_accuracy", "best_by_discriminability"
    }  # fmt: skip


def test_random_features_are_the_mean_of_five_draws() -> None:
    from oodzoo.evaluation.choice import random_features
    from oodzoo.evaluation.metrics import measures
    from oodzoo.features.columns import Columns
    from oodzoo.features.source import ArraySource
    from oodzoo.heads.linear import fit_head

    features, y, domains = zoo()
    result = oodzoo.evaluate(features, y, domains, top_k=2, baselines=[], seed=3)
    source = ArraySource(features, y, domains)
    columns = Columns.all_of(source, result.ensemble.cells["d0"].models)
    draws = random_features(columns, result.selection.cells["d0"].n_features, 3)
    found = []
    for draw in draws:
        head = fit_head(draw.samples(source, ["d1", "d2", "d3"]), 3)
        test = draw.samples(source, ["d0"])
        found.append(measures(head.probabilities(test.features), test.labels).accuracy)
    assert len({str(draw.by_model) for draw in draws}) > 1
    row = result.baselines["random_features"]
    assert row.measure("accuracy")["d0"] == pytest.approx(np.mean(found))


def test_selection_that_is_no_better_than_random_features_is_called_so() -> None:
    result = oodzoo.evaluate(*zoo(), top_k=2, baselines=[])
    row = result.baselines["random_features"]
    better = any("points better" in line for line in result.findings())
    chance = any("no better than that" in line for line in result.findings())
    assert better == (result.selection.average > row.average)
    assert chance == (not better)


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


def test_training_domains_choose_the_number_of_models() -> None:
    """Where one model says all and the others are misleading, one is enough."""
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 80), np.repeat(["a", "b", "c", "d"], 40)
    good = np.stack([y, 1 - y], 1) + 0.1 * rng.normal(size=(160, 2))
    noise = {f"noise{i}": rng.normal(size=(160, 40)) for i in range(4)}
    alone = oodzoo.evaluate({"good": good} | noise, y, domains, top_k="auto", baselines=False)
    assert alone.top_k == dict.fromkeys("abcd", 1)
    # Where three see a third each, three are better than one.
    parts = np.tile(np.arange(8), 20)
    views = {f"view{bit}": ((parts >> bit) & 1)[:, None] + 0.1 * rng.normal(size=(160, 1))
             for bit in range(3)}  # fmt: skip
    together = oodzoo.evaluate(views, parts, domains, top_k="auto", baselines=False)
    assert together.top_k == dict.fromkeys("abcd", 3)
    assert together.ensemble.average > together.single.average + 20
    assert together.to_dict()["top_k"] == {"a": 3, "b": 3, "c": 3, "d": 3}


def test_more_models_than_there_are() -> None:
    with pytest.warns(UserWarning, match="there are 4 models, fewer than 9"):
        result = oodzoo.evaluate(*zoo(), top_k=9, baselines=False)
    assert len(result.ensemble.cells["d0"].models) == result.top_k == 4


def test_trials_have_a_spread() -> None:
    data = zoo()
    one = oodzoo.evaluate(*data, baselines=False)
    assert one.to_dict()["single"]["error"] is None
    three = oodzoo.evaluate(*data, baselines=False, trials=3)
    error = three.to_dict()["single"]["error"]
    trials = np.array([[m.accuracy for m in c.measures] for c in three.single.cells.values()])
    assert trials.shape == (4, 3)
    assert error["average"] == pytest.approx(trials.mean(axis=0).std() / np.sqrt(3))
    assert error["domains"]["d2"] == pytest.approx(trials[2].std() / np.sqrt(3))
    assert error["average"] > 0
    # what is chosen does not depend on trials
    assert three.selection.cells["d0"].models == one.selection.cells["d0"].models


def test_domainbed_scores_the_in_split_of_the_test_domain() -> None:
    from oodzoo.features.columns import Samples
    from oodzoo.heads.domainbed import sweep

    features, y, domains = zoo()
    result = oodzoo.evaluate(
        features, y, domains, top_k=1, protocol="domainbed", trials=2, draws=2, steps=60,
        baselines=False, seed=5,
    )  # fmt: skip
    assert result.to_dict()["protocol"] == "domainbed"
    for number, test in enumerate(result.domains):
        array = features[result.single.cells[test].models[0]].astype(np.float32)
        samples = Samples(array, y, np.unique(domains, return_inverse=True)[1])
        found = sweep(samples, 3, test_domains=[number], trials=2, draws=2, steps=60, seed=5)
        expected = found.accuracies()[number]
        mine = [each.accuracy / 100 for each in result.single.cells[test].measures]
        assert mine == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k is 0; give whole numbers from 1"),
        ({"top_k": ()}, r"top_k is \(\); give whole numbers"),
        ({"top_k": "some"}, "top_k is 'some'; give numbers"),
        ({"top_k": 2.5}, "top_k is 2.5; give whole numbers"),
        ({"protocol": "slow"}, "protocol is 'slow'; it can be 'fast' or 'domainbed'"),
        ({"trials": 0}, "trials is 0; it must be 1 or more"),
        ({"score": "logmee"}, "unknown score 'logmee'; did you mean logme"),
        ({"baselines": ["zod"]}, "unknown score 'zod'"),
    ],
)
def test_what_cannot_be_done(options: dict[str, Any], message: str) -> None:
    with pytest.raises(oodzoo.InputError, match=message):
        oodzoo.evaluate(*zoo(), **options)


@pytest.mark.parametrize("n_domains", [1, 2])
def test_too_few_domains(n_domains: int) -> None:
    with pytest.raises(oodzoo.InputError, match=r"takes three domains.*usable here: 'd0'"):
        oodzoo.evaluate(*zoo(n_domains=n_domains))


def test_one_class_without_a_domain() -> None:
    features, y, domains = zoo()
    y = np.where(domains == "d2", y, 0)
    with pytest.raises(oodzoo.InputError, match="without domain 'd2' there is the single class 0"):
        oodzoo.evaluate(features, y, domains)


def test_a_domain_too_small_to_split() -> None:
    features, y, domains = zoo()
    keep = np.flatnonzero((domains != "d1") | (np.arange(len(y)) % 30 < 4))
    few = {name: array[keep] for name, array in features.items()}
    with pytest.raises(oodzoo.InputError, match="domain 'd1' has 4 samples; splits of 80 %"):
        oodzoo.evaluate(few, y[keep], domains[keep], trials=2)
    assert oodzoo.evaluate(few, y[keep], domains[keep], baselines=False).trials == 1


def test_a_class_that_only_the_test_domain_has_counts_as_wrong() -> None:
    features, y, domains = zoo()
    labels = np.array(["x", "y", "z"], dtype=object)[y]
    labels[np.flatnonzero(domains == "d0")[:15]] = "a new one"
    result = oodzoo.evaluate(features, labels, domains, baselines=False)
    assert result.unseen == {"d0": ("a new one",)}
    assert result.ensemble.measure("accuracy")["d0"] <= 50
    assert "No domain but 'd0' has a new one" in str(result)


def test_any_score_ranks() -> None:
    features, y, domains = zoo()
    result = oodzoo.evaluate(features, y, domains, score="logme", top_k=1, baselines=False)
    train = domains != "d3"
    totals = {name: oodzoo.scores.logme(array[train], y[train]) for name, array in features.items()}
    assert result.single.cells["d3"].models == (max(totals, key=lambda name: totals[name]),)


def test_frame() -> None:
    pytest.importorskip("pandas", reason="pandas is an extra")
    result = oodzoo.evaluate(*zoo(), top_k=(1, 2), baselines=False)
    frame = result.to_frame()
    assert len(frame) == 4 * (3 + 2 * 2)
    line = frame[(frame.row == "single") & (frame.domain == "d2")].iloc[0]
    assert line.accuracy == result.single.measure("accuracy")["d2"]


def run(monkeypatch: Any, capsys: Any, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["oodzoo", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_document_of_the_command(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    store = stored(tmp_path, *zoo())
    code, out, _ = run(monkeypatch, capsys, "evaluate", str(store), "--top-k", "1,3", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["domains"] == ["d0", "d1", "d2", "d3"]
    assert (document["protocol"], document["score"], document["top_k"]) == ("fast", "zood", 3)
    rows = [document[name] for name in ("single", "ensemble", "selection")]
    for row in [*rows, *document["baselines"].values()]:
        assert set(row) == {
            "average", "domains", "balanced", "calibration_error", "error", "models", "n_features"
        }  # fmt: skip
        for part in (row, row["balanced"], row["calibration_error"]):
            assert part["average"] == pytest.approx(np.mean(list(part["domains"].values())))
            assert 0 <= part["average"] <= 100
    assert 0 < document["feature_ratio"]["average"] <= 1
    assert {"random_features", "oracle", "best_by_logme"} <= set(document["baselines"])
    oracle_row = document["baselines"]["oracle"]["domains"]
    assert all(oracle_row[d] >= document["single"]["domains"][d] for d in oracle_row)
    assert len(document["ablation"]) == 2


def test_table_of_the_command(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    features, y, domains = zoo(n_domains=4)
    named = np.char.add(domains, " has a very long name of its own")
    store = stored(tmp_path, features, y, named)
    options = ("--trials", "2", "--peers", "sfda,knn")
    code, out, err = run(monkeypatch, capsys, "evaluate", str(store), *options)
    assert code == 0
    lines = out.splitlines()
    table = [line for line in lines if "%" not in line or line.startswith("accuracy")]
    assert all(len(line.rstrip()) <= 80 for line in table)
    for name in ("Single", "Ensemble", "F. Selection", "F. Ratio", "random features", "oracle",
                 "best by sfda", "best by knn"):  # fmt: skip
        assert any(line.startswith(name) for line in lines)
    assert "Standard error of its average over 2 trials" in out
    assert "training on random features" in err


def test_wrong_use_of_the_command(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    store = stored(tmp_path, *zoo(n_domains=2))
    code, _, err = run(monkeypatch, capsys, "evaluate", str(store), "--top-k", "three")
    assert code == 2
    assert "--top-k must be an integer, several such as 1,3,5,7, or auto; got 'three'" in err
    code, _, err = run(monkeypatch, capsys, "evaluate", str(store))
    assert code == 2
    assert "takes three domains" in err


def test_a_domain_without_a_readable_image_is_left_out(tmp_path: Path) -> None:
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
    with pytest.warns(UserWarning, match="'broken': no samples, left out"):
        result = oodzoo.evaluate(store, top_k=1, baselines=False)
    assert result.domains == ("a", "b", "c")
