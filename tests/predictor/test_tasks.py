"""Predictors of numbers and of several labels: fit, save, load, score, export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import average_precision_score, r2_score

import oodzoo
from oodzoo.errors import InputError
from oodzoo.task import Kind, Task

KINDS: tuple[Kind, ...] = ("regression", "multilabel")


def problem(kind: Kind, outputs: int = 2, seed: int = 0) -> tuple[dict[str, Any], Any, Any]:
    """Two useful models and noise, in four domains."""
    rng = np.random.default_rng(seed)
    domains = np.repeat(["a", "b", "c", "d"], 50)
    latent = rng.normal(size=(200, 4)) + 0.3 * rng.normal(size=(4, 4))[np.arange(200) // 50]
    Y = latent[:, :outputs] + 0.2 * rng.normal(size=(200, outputs))
    Y = Y * 30 + 100 if kind == "regression" else (Y > 0).astype(int)
    features = {
        "one": latent @ rng.normal(size=(4, 8)) + 0.1 * rng.normal(size=(200, 8)),
        "two": latent @ rng.normal(size=(4, 6)) + 0.3 * rng.normal(size=(200, 6)),
        "noise": rng.normal(size=(200, 5)),
    }
    return features, Y, domains


@pytest.fixture(scope="module", params=KINDS)
def fitted(request: pytest.FixtureRequest) -> tuple[Kind, oodzoo.Predictor]:
    kind: Kind = request.param
    return kind, oodzoo.fit(*problem(kind), task=kind)


def test_new_samples_are_predicted(fitted: tuple[Kind, oodzoo.Predictor]) -> None:
    kind, predictor = fitted
    features, Y, _ = problem(kind)
    assert predictor.task.kind == kind
    weights = predictor.provenance.pool
    assert weights.get("noise", 0.0) < 0.7 * min(weights.get("one", 1.0), weights.get("two", 1.0))
    given = {model.name: features[model.name] for model in predictor.models}
    found = predictor.predict(given)
    assert found.shape == (200, 2)
    if kind == "regression":
        assert r2_score(Y, found) > 0.9
        assert predictor.score(given, Y) == pytest.approx(r2_score(Y, found))
        with pytest.raises(InputError, match="numbers, which have no probabilities"):
            predictor.predict_proba(given)
    else:
        probabilities = predictor.predict_proba(given)
        np.testing.assert_array_equal(found, probabilities > 0.5)
        assert predictor.score(given, Y) == pytest.approx(average_precision_score(Y, probabilities))
        assert (found == Y).mean() > 0.9


def test_the_head_is_that_of_the_formula(fitted: tuple[Kind, oodzoo.Predictor]) -> None:
    kind, predictor = fitted
    features, _, _ = problem(kind)
    X = np.hstack(
        [features[m.name][:, predictor.columns.by_model[m.name]] for m in predictor.models]
    )
    outputs = X @ predictor.head.weights.T + predictor.head.bias
    expected = outputs if kind == "regression" else 1 / (1 + np.exp(-outputs))
    given = {model.name: features[model.name] for model in predictor.models}
    for prediction, row in zip(predictor.stream(given), expected, strict=True):
        assert isinstance(prediction, oodzoo.predictor.Prediction)
        if kind == "regression":
            assert prediction.probabilities is None
            assert prediction.label == pytest.approx(tuple(row), rel=1e-5)
        else:
            assert prediction.probabilities == pytest.approx(row, abs=1e-5)
            assert prediction.label == tuple(np.array(["0", "1"])[row > 0.5].tolist())


def test_saved_and_loaded(fitted: tuple[Kind, oodzoo.Predictor], tmp_path: Path) -> None:
    kind, predictor = fitted
    features, _, _ = problem(kind)
    given = {model.name: features[model.name] for model in predictor.models}
    predictor.save(tmp_path / "model")
    again = oodzoo.load(tmp_path / "model")
    assert again.task == predictor.task
    np.testing.assert_array_equal(again.predict(given), predictor.predict(given))
    document = json.loads((tmp_path / "model/predictor.json").read_text())
    assert document["task"] == kind


def test_promised_metric(fitted: tuple[Kind, oodzoo.Predictor]) -> None:
    kind, predictor = fitted
    facts = predictor.to_dict()
    assert facts["task"] == kind
    assert facts["metric"] == Task(kind).metric
    assert facts["accuracy"] > 80
    low, high = facts["accuracy_interval"]
    assert low < facts["accuracy"] < high <= 100


def test_exported_head(fitted: tuple[Kind, oodzoo.Predictor], tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    import onnxruntime

    kind, predictor = fitted
    features, _, _ = problem(kind)
    file = predictor.export(tmp_path / "head.onnx")
    session = onnxruntime.InferenceSession(str(file))
    given = {model.name: features[model.name] for model in predictor.models}
    name = "numbers" if kind == "regression" else "probabilities"
    found = session.run([name], {k: v.astype(np.float32) for k, v in given.items()})[0]
    expected = predictor.predict(given) if kind == "regression" else predictor.predict_proba(given)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert session.get_modelmeta().custom_metadata_map["task"] == kind


def test_for_scikit_learn(fitted: tuple[Kind, oodzoo.Predictor]) -> None:
    kind, predictor = fitted
    assert is_regressor(predictor) == (kind == "regression")
    assert is_classifier(predictor) == (kind == "multilabel")


@pytest.mark.parametrize("choose", ["single", "pool", "ensemble", "selection"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_way_to_combine(kind: Kind, choose: str) -> None:
    features, Y, domains = problem(kind)
    predictor = oodzoo.fit(features, Y, domains, task=kind, choose=choose)
    given = {model.name: features[model.name] for model in predictor.models}
    assert predictor.score(given, Y) > 0.85
    assert predictor.domain_distance(given).mean() < 1


def test_one_number_is_a_vector() -> None:
    features, Y, domains = problem("regression", outputs=1)
    predictor = oodzoo.fit(features, Y[:, 0], domains)
    given = {model.name: features[model.name] for model in predictor.models}
    assert predictor.predict(given).shape == (200,)
    assert predictor.score(given, Y[:, 0]) == predictor.score(given, Y)
    assert predictor.classes_.tolist() == ["y"]
    assert "1 number from" in repr(predictor)


def test_labels_as_lists() -> None:
    features, Y, domains = problem("multilabel")
    names = np.array(["cat", "dog"])
    lists = [names[row.astype(bool)].tolist() for row in Y]
    predictor = oodzoo.fit(features, lists, domains)
    given = {model.name: features[model.name] for model in predictor.models}
    assert predictor.classes_.tolist() == ["cat", "dog"]
    assert predictor.score(given, lists) == predictor.score(given, Y)
    with pytest.raises(InputError, match="does not know the label 'fox'; it has 'cat', 'dog'"):
        predictor.score(given, [["fox"], *lists[1:]])


def test_numbers_do_not_adapt_and_need_no_target() -> None:
    features, Y, domains = problem("regression")
    rng = np.random.default_rng(5)
    target = {name: rng.normal(size=(30, X.shape[1])) for name, X in features.items()}
    with pytest.raises(InputError, match="images of the target are used for classes only"):
        oodzoo.fit(features, Y, domains, target=target, choose="pool")
    predictor = oodzoo.fit(features, Y, domains, choose="pool")
    with pytest.raises(InputError, match="cannot adapt"):
        predictor.adapted({m.name: features[m.name] for m in predictor.models})


@pytest.mark.parametrize(
    ("y", "says"),
    [
        (np.full(200, 2.5), "y is constant: 2.5"),
        (np.r_[np.nan, np.arange(199) + 0.5], "y has no value in row 0"),
        (["a", *range(199)], "y mixes strings and numbers"),
        (np.arange(200), "could be classes or numbers to predict; say which with --task"),
    ],
)
def test_bad_targets(y: Any, says: str) -> None:
    features, _, domains = problem("regression")
    with pytest.raises(InputError, match=says):
        oodzoo.fit(features, y, domains, task="regression" if "constant" in says else None)


def test_length_and_width_of_labels() -> None:
    features, Y, domains = problem("regression")
    predictor = oodzoo.fit(features, Y, domains, choose="single")
    given = {model.name: features[model.name] for model in predictor.models}
    with pytest.raises(InputError, match="200 samples and 199 labels"):
        predictor.score(given, Y[:199])
    with pytest.raises(InputError, match="predicts 2 numbers per sample, the labels have 1"):
        predictor.score(given, Y[:, :1])


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_a_data_frame_are_taken_by_name(kind: Kind) -> None:
    pandas = pytest.importorskip("pandas")
    features, Y, domains = problem(kind)
    frame = pandas.DataFrame(Y, columns=["cat", "dog"])
    predictor = oodzoo.fit(features, frame, domains, task=kind, choose="single")
    given = {model.name: features[model.name] for model in predictor.models}
    right = predictor.score(given, frame)
    assert predictor.score(given, frame[["dog", "cat"]]) == right > 0.85
    with pytest.raises(InputError, match="columns of the labels are 'dog', 'fox'; the predictor"):
        predictor.score(given, frame.rename(columns={"cat": "fox"})[["dog", "fox"]])


def test_large_numbers_are_exported_exactly(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    import onnxruntime

    features, Y, domains = problem("regression")
    predictor = oodzoo.fit(features, Y + 1.7e9, domains, choose="single")
    (model,) = predictor.models
    X = features[model.name][:5]
    session = onnxruntime.InferenceSession(str(predictor.export(tmp_path / "head.onnx")))
    found = session.run(["numbers"], {model.name: X.astype(np.float32)})[0]
    np.testing.assert_allclose(found - 1.7e9, predictor.predict({model.name: X}) - 1.7e9, atol=0.01)
