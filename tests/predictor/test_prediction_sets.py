"""What is measured on held-out domains when a predictor is fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import evaluated, zoo
from tests.predictor.data import changed

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.predictor.prediction_sets import confidence_curve


def _features(n_domains: int = 3) -> tuple[dict[str, Any], Any, Any]:
    rng = np.random.default_rng(0)
    y, domains = np.tile(["a", "b", "c"], 20 * n_domains), np.repeat(range(n_domains), 60)
    shift = rng.normal(size=(n_domains, 4))[domains]
    signal = np.eye(3)[np.tile([0, 1, 2], 20 * n_domains)]
    good = np.hstack([1.5 * signal, np.zeros((len(y), 1))]) + rng.normal(size=(len(y), 4)) + shift
    return {"good": good, "other": rng.normal(size=(len(y), 2))}, y, domains


def test_the_curve_counts_what_is_kept_and_right() -> None:
    rng = np.random.default_rng(0)
    p = {name: rng.dirichlet(np.ones(3), n) for name, n in (("a", 40), ("b", 25))}
    y = {name: rng.integers(0, 3, len(each)) for name, each in p.items()}
    for point in confidence_curve(p, y):
        kept, right = [], []
        for name, rows in p.items():
            pairs = list(zip(rows.tolist(), y[name].tolist(), strict=True))
            confident = [(row, label) for row, label in pairs if max(row) >= point.confidence]
            kept.append(len(confident) / len(pairs))
            if confident:
                right.append(np.mean([row.index(max(row)) == label for row, label in confident]))
        assert point.kept == pytest.approx(100 * np.mean(kept))
        assert point.accuracy == (pytest.approx(100 * np.mean(right)) if right else None)
        assert point.worst == (pytest.approx(100 * min(right)) if right else None)
    assert confidence_curve(p, y)[-1].accuracy is None or p["a"].max() >= 0.99


def test_the_accuracy_of_a_pool_is_that_of_the_evaluation() -> None:
    """Not even the regularisation of the heads was chosen with the labels of the domain."""
    row = evaluated().pool
    found = oodzoo.fit(*zoo(n=18), choose="pool").left_out
    assert found is not None
    every = found.at_confidence(0)
    assert every.accuracy == pytest.approx(row.average)
    assert every.worst == pytest.approx(min(row.measure("accuracy").values()))


def test_other_tasks_and_no_record(predictor: oodzoo.Predictor, tmp_path: Path) -> None:
    features, y, domains = _features()
    labels = [["x"] if label == "a" else ["x", "y"] for label in y]
    fitted = oodzoo.fit(features, labels, domains, choose="single")
    assert fitted.left_out is None
    with pytest.raises(InputError, match="several labels; leave out coverage"):
        fitted.predict_sets(features)
    age = 10 * features["good"][:, 0]
    fitted = oodzoo.fit(features, age, domains, choose="single", task="regression")
    assert fitted.left_out is not None
    assert fitted.left_out.confidence == ()
    one = {name: x[:1] for name, x in features.items()}
    (interval,) = fitted.predict_sets(one, 0.95)[0]
    predicted, half = fitted.predict(one)[0], fitted.left_out.at_coverage(0.95).thresholds[0]
    assert interval == pytest.approx((predicted - half, predicted + half))
    loaded = oodzoo.load(changed(predictor, left_out=None).save(tmp_path / "model"))
    assert loaded.left_out is None
    with pytest.raises(InputError, match=r"no record of prediction sets .* fit again"):
        loaded.predict_sets([])
