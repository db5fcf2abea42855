"""Predictions of each kind of task as text, through the command line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]

TASKS = ("classification", "regression", "multilabel")


@pytest.fixture(scope="module", params=TASKS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A predictor of imported features, new features, and the kind of task."""
    import oodzoo

    kind = request.param
    rng = np.random.default_rng(0)
    X, domains = rng.normal(size=(120, 5)), np.repeat(["a", "b", "c"], 40)
    y: Any = X[:, :2] * 10 + 50
    if kind == "multilabel":
        y = [[name for name, v in zip(("sun", "sea"), row[:2], strict=True) if v > 0] for row in X]
    elif kind == "classification":
        y = np.where(X[:, 0] > 0, "yes", "no")
    predictor = oodzoo.fit({"net": X}, y, domains, choose="single", task=kind)
    folder = tmp_path_factory.mktemp(kind)
    predictor.save(folder / "model")
    np.savez(folder / "new.npz", net=X[:4])
    return kind, folder, predictor, X[:4]


def test_json(case: Any, run: Run) -> None:
    kind, folder, predictor, X = case
    result = run("predict", str(folder / "model"), str(folder / "new.npz"), "--json")
    rows = json.loads(result.out)["predictions"]
    expected = predictor.predict({"net": X})
    for row, each in zip(rows, expected, strict=True):
        if kind == "classification":
            assert row["label"] == each
            assert set(row["probabilities"]) == {"yes", "no"}
        elif kind == "regression":
            assert row["values"] == pytest.approx({"y0": each[0], "y1": each[1]}, rel=1e-5)
            assert "probabilities" not in row
        else:
            names = predictor.classes_[each.astype(bool)].tolist()
            assert row["labels"] == names
            assert list(row["probabilities"]) == ["sea", "sun"]


def test_sets_and_intervals(case: Any, run: Run) -> None:
    kind, folder, predictor, X = case
    given = ("predict", str(folder / "model"), str(folder / "new.npz"), "--coverage", "0.9")
    if kind == "multilabel":
        assert "the predictor predicts several labels" in run(*given).complaint
        return
    expected = predictor.predict_sets({"net": X}, 0.9)
    rows = json.loads(run(*given, "--json").out)["predictions"]
    table = run(*given)
    cells = list(csv.DictReader(io.StringIO(run(*given, "--format", "csv").out)))
    if kind == "classification":
        assert [tuple(row["set"]) for row in rows] == expected
        assert [tuple(row["set"].split("|")) for row in cells] == expected
        return
    assert [tuple(map(tuple, row["intervals"].values())) for row in rows] == expected
    first = cells[0]
    assert (float(first["low(y1)"]), float(first["high(y1)"])) == expected[0][1]
    half = predictor.left_out.at_coverage(0.9).thresholds[0]
    assert table.out.splitlines()[1].split()[1] == f"{half:.4g}"
    assert f"intervals (y0 ± {half:.4g}, y1 ± " in table.err


def test_options_of_classes_are_refused_for_others(case: Any, run: Run) -> None:
    kind, folder, _, _ = case
    given = ("predict", str(folder / "model"), str(folder / "new.npz"))
    if kind == "classification":
        return
    confident = run(*given, "--min-confidence", "0.5").complaint
    assert "needs one class per sample" in confident
    top = run(*given, "--top", "1")
    if kind == "regression":
        assert "the predictor predicts numbers, which have no classes" in top.complaint
    else:
        assert top.out.splitlines()[0].split() == ["labels", "#1", "prob.", "dist.", "row"]
