"""`oodzoo.evaluate`: rows, what is recommended, options, documents, events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import evaluated, stored, task_zoo, zoo
from tests.events.heard import Heard
from tests.joint_space import joint_space, stored_space
from tests.maths.combinations import Costly
from tests.oracles import zero_shot as zero_shot_oracle

import oodzoo


def again(result: oodzoo.Evaluation) -> oodzoo.Evaluation:
    """Restored from JSON."""
    return oodzoo.Evaluation.from_dict(json.loads(json.dumps(result.to_dict())))


# --- rows ----------------------------------------------------------------------------------------


def test_what_is_recommended_for_each_domain_has_its_accuracy_there() -> None:
    for result in (evaluated(), oodzoo.evaluate(*zoo(n=18, seed=1), top_k=2, baselines=False)):
        best = result.recommended
        assert set(best.choices) == set(best.domains) == set(result.domains)
        for test, choice in best.choices.items():
            assert best.domains[test] == result.rows[choice].measure("accuracy")[test]
        assert best.average == pytest.approx(np.mean(list(best.domains.values())))
        low, high = best.interval or (-1, -1)
        assert 0 <= low <= best.average <= high <= 100
    result = evaluated()
    values = np.array(list(result.recommended.domains.values()))
    tied = {}
    for name in ("single", "pool", "ensemble", "selection"):
        gains = values - np.array(list(result.rows[name].measure("accuracy").values()))
        error = gains.std(ddof=1) / np.sqrt(len(gains))
        if name != result.recommended.choice and abs(gains.mean()) <= error + 1e-9:
            tied[name] = result.rows[name].average
    assert result.tied == tuple(sorted(tied, key=lambda name: -tied[name]))


def test_several_numbers_of_models() -> None:
    data = zoo(n_domains=3)
    result = oodzoo.evaluate(*data, top_k=(1, 3), baselines=False)
    assert (list(result.ablation), result.top_k) == ([1, 3], 3)
    assert result.ablation[3].ensemble == result.ensemble
    for test, cell in result.ablation[1].ensemble.cells.items():
        assert cell.models == result.single.cells[test].models
    paper = oodzoo.evaluate(*data, top_k=1, baselines=[])
    assert paper.baselines["paper_selection"] == result.ablation[1].selection
    assert paper.ensemble == result.ablation[1].ensemble
    assert (paper.selection, paper.ablation) == (result.selection, {})
    assert again(result) == result
    with pytest.warns(UserWarning, match="only 4 models available, fewer than 9; using all"):
        many = oodzoo.evaluate(*zoo(n=3), top_k=9, baselines=False)
    assert len(many.ensemble.cells["d0"].models) == many.top_k == 4
    assert many.learning_curve is None  # there are too few samples
    pytest.importorskip("pandas")
    frame = result.to_frame()
    assert len(frame) == 3 * (4 + 2 * 2)
    line = frame[(frame.row == "single") & (frame.domain == "d2")].iloc[0]
    assert line.accuracy == result.single.measure("accuracy")["d2"]


def test_a_class_of_the_test_domain_only_is_misclassified() -> None:
    features, y, domains = zoo()
    labels = np.array(["x", "y", "z"], dtype=object)[y]
    labels[np.flatnonzero(domains == "d0")[:15]] = "a new one"
    result = oodzoo.evaluate(
        features, labels, domains, top_k=2, baselines=["logme"], with_target=True
    )
    assert result.unseen == {"d0": ("a new one",)}
    for row in result.rows.values():
        assert row.measure("accuracy")["d0"] <= 50
        assert row.measure("accuracy")["d1"] > 60
    line = "The class 'a new one' occurs only in domain 'd0' and is always misclassified there."
    assert line in str(result)
    assert result.diagnosis["d0"].per_class["a new one"].recall == 0
    assert again(result) == result


def test_limits_of_what_is_recommended() -> None:
    one = evaluated(max_models=1)
    assert len(one.recommended.models) == 1
    assert set(one.recommended.choices.values()) <= {"single", "pool"}
    assert {len(cell.models) for cell in one.pool.cells.values()} == {1}
    assert {len(cell.models) for cell in one.ensemble.cells.values()} == {2}  # still a row
    assert one.beyond_limits == ("ensemble", "selection")
    assert one.to_dict()["beyond_limits"] == ["ensemble", "selection"]
    expected = "Ensemble and Selection exceed --max-models 1: shown for comparison"
    assert any(line.startswith(expected) for line in one.findings())
    times = {"poor": 1.0, "best": 9.0, "fair": 2.0, "good": 9.0}
    source = Costly(*zoo(n=18), times, dict.fromkeys(times, 7))
    fast = oodzoo.evaluate(source, top_k=2, baselines=False, max_ms=3)
    assert {cell.models for cell in fast.single.cells.values()} == {("fair",)}
    assert set(fast.recommended.models) <= {"fair", "poor"}
    for cell in fast.pool.cells.values():
        assert cell.milliseconds == sum(times[model] for model in cell.models) <= 3
        assert cell.parameters == 7 * len(cell.models)
    longest = max(cell.milliseconds or 0 for cell in fast.pool.cells.values())
    assert (fast.pool.exceeds(None, longest), fast.pool.exceeds(None, longest - 0.5)) == (
        False,
        True,
    )
    with pytest.raises(oodzoo.InputError, match=r"--max-ms 0.1: the fastest, 'poor', takes 1 ms"):
        oodzoo.evaluate(source, baselines=False, max_ms=0.1)


def test_images_of_the_test_domain_help_where_domains_are_shifted() -> None:
    features, y, domains = zoo(n=24)
    rng = np.random.default_rng(5)
    for name, array in features.items():
        features[name] = array + np.repeat(4 * rng.normal(size=(4, array.shape[1])), 24, axis=0)
    result = oodzoo.evaluate(features, y, domains, top_k=2, baselines=False, with_target=True)
    assert list(result.with_target) == ["pool"]
    gain = result.with_target["pool"].average - result.pool.average
    assert gain > 10
    (advice,) = (each for each in result.advice if each.kind == "target_images")
    expected = result.with_target["pool"].average - result.recommended.average
    assert advice.gain == pytest.approx(expected)


def test_the_zero_shot_row_is_the_accuracy_of_the_texts(tmp_path: Path) -> None:
    space = joint_space()
    store = stored_space(tmp_path, space)
    result = oodzoo.evaluate(store, top_k=1, baselines=False, with_target=True)
    row, codes = result.baselines["zero_shot"], np.unique(space.y, return_inverse=True)[1]
    for domain, cell in row.cells.items():
        at = space.domains == domain
        expected = zero_shot_oracle.accuracy(space.features["clip"][at], space.texts, codes[at])
        assert cell.accuracy == pytest.approx(100 * expected)
        assert (cell.models, cell.n_features) == (("clip",), 32)
    for each in (row, result.pool, result.with_target["pool"]):
        assert each.average > result.single.average + 5
    assert again(result) == result


# --- protocols and trials ------------------------------------------------------------------------


def test_standard_error_over_trials() -> None:
    one, three = (evaluated(trials=trials) for trials in (1, 3))
    assert one.to_dict()["single"]["error"] is None
    error = three.to_dict()["single"]["error"]
    trials = np.array([[m[0] for m in c.measures] for c in three.single.cells.values()])
    assert trials.shape == (4, 3)
    assert error["average"] == pytest.approx(trials.mean(axis=0).std() / np.sqrt(3))
    assert error["average"] > 0
    assert error["domains"]["d2"] == pytest.approx(trials[2].std() / np.sqrt(3))
    # the choice does not depend on the trials
    assert three.selection.cells["d0"].models == one.selection.cells["d0"].models
    kinds = [each.kind for each in three.advice]
    assert ("budget" in kinds, "more_images" in kinds) == (False, True)
    for test, found in three.diagnosis.items():
        assert found.accuracy == pytest.approx(three.recommended_row.cells[test].measures[0][0])


def test_the_rule_of_domainbed_can_be_chosen() -> None:
    options: dict[str, Any] = {"protocol": "domainbed", "trials": 2, "draws": 3, "steps": 20}
    data = zoo(n=25, n_domains=3)
    options |= {"top_k": 1, "baselines": False}
    one = oodzoo.evaluate(*data, **options, selection="training-domain", with_target=True)
    other = oodzoo.evaluate(*data, **options, selection="oracle")
    assert one.by_rule == other.by_rule
    assert one.ensemble == one.by_rule["training-domain"]["ensemble"]
    assert other.ensemble == other.by_rule["oracle"]["ensemble"]
    for row in (one.pool, one.with_target["pool"]):  # of the same rows
        for cell in row.cells.values():
            assert len(cell.measures) == 2
            for each in cell.measures:
                assert each[0] / 5 == pytest.approx(round(each[0] / 5))  # of 20 of 25 samples
    warning = "the heads of Single, Ensemble and Selection by labels of the held-out domain"
    assert (warning in str(other), warning in str(one)) == (True, False)
    assert again(other) == other
    with pytest.raises(oodzoo.InputError, match="oracle, with labels of the held-out domains"):
        oodzoo.fit(*data, recommended=other)


# --- numbers, and several labels per sample ------------------------------------------------------


def test_labels_of_one_domain_only() -> None:
    features, y, domains = task_zoo("multilabel", n=12)
    y[:, 1] = (domains == "d1") & (y[:, 0] > 0)
    found = oodzoo.evaluate(features, y, domains, task="multilabel", top_k="auto", baselines=False)
    assert found.top_k.keys() == set(found.domains)  # type: ignore[union-attr]
    assert found.unseen == {"d1": ("1",)}
    line = "The label '1' occurs only in domain 'd1' and cannot be learned without it."
    assert line in found.findings()
    assert [len(cell.outputs) for cell in found.single.cells.values()] == [1, 2, 1, 1]
    assert again(found) == found
    assert found.diagnosis == {}
    main, second = found.single.measures
    document = found.to_dict()
    assert (document["task"], document["metric"]) == ("multilabel", main)
    assert document["single"][second]["domains"] == found.single.measure(second)
    pytest.importorskip("pandas")
    assert {main, second} <= set(found.to_frame().columns)


# --- events and processes ------------------------------------------------------------------------


def test_the_events_of_an_evaluation() -> None:
    features, y, domains = zoo(n=12)
    heard = Heard()
    result = oodzoo.evaluate(features, y, domains, top_k=2, listener=[heard])
    [(stage, start)] = heard.of("start")
    assert (stage, start["models"], start["top_k"]) == ("evaluation", list(features), 2)
    assert (start["domains"], start["images"]) == (["d0", "d1", "d2", "d3"], len(y))
    assert any(line.startswith("held-out domain 'd2': ") for line in heard.messages())
    done, totals = zip(*heard.steps(), strict=True)
    assert len(set(totals)) == 1
    assert (list(done), done[-1]) == (sorted(set(done)), totals[0])
    shares = heard.shares()  # within a domain, too
    assert (shares, len(set(shares)) > len(done)) == (sorted(shares), True)
    assert shares[-1] == pytest.approx(1.0)
    expected: dict[str, float] = {}
    rows = {name: (row.average, row.measure("accuracy")) for name, row in result.rows.items()}
    rows["recommended"] = (result.recommended.average, result.recommended.domains)
    for name, (average, by_domain) in rows.items():
        expected[f"{name}/accuracy"] = average
        expected |= {f"{name}/accuracy_by_domain/{d}": value for d, value in by_domain.items()}
    assert heard.metrics("evaluation") == pytest.approx(expected)
    assert {"random_features", "best_by_logme", "best_by_h_score"} <= set(result.rows)
    assert heard.outline() == [("evaluation", "start"), ("evaluation", "done")]
    assert heard.of("end")[0][1]["result"] == result


def test_an_evaluation_in_processes_is_that_of_one(tmp_path: Path) -> None:
    data = zoo(n=20, n_domains=3)
    options: dict[str, Any] = {"top_k": 1, "with_target": True, "baselines": ["logme"]}
    here = oodzoo.evaluate(stored(tmp_path / "here", *data), **options)
    heard, source = Heard(), stored(tmp_path / "elsewhere", *data)
    there = oodzoo.evaluate(source, **options, device="cpu,cpu", listener=heard)
    assert there == here
    # This process judged nothing itself, and progress never went back.
    assert not any(line.startswith("held-out domain") for line in heard.messages())
    assert any("on 2 workers (processes)" in line for line in heard.messages())
    done = [facts["done"] for _, facts in heard.of("progress")]
    assert done == sorted(done)
    assert done[-1] == heard.of("progress")[-1][1]["total"]
