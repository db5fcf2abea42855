"""`oodzoo.Predictor`: predictions of classes, numbers and labels; scores, sets, distances."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import average_precision_score, r2_score
from tests.predictor import conftest as fixtures
from tests.predictor.data import DOMAINS, Y, changed, problem, rows, truth, used

import oodzoo
from oodzoo import InputError
from oodzoo.predictor import Prediction
from oodzoo.tasks import task_of
from oodzoo.zoo import ModelSpec, load_model

folder = fixtures.folder
KINDS = ("regression", "multilabel")


# --- classes -------------------------------------------------------------------------------------


def test_probabilities_by_hand(
    predictor: oodzoo.Predictor, zoo: list[ModelSpec], unseen: list[Path]
) -> None:
    parts = []
    for name, columns in predictor.columns.by_model.items():
        model = load_model(next(spec for spec in zoo if spec.name == name))
        geometry = model.info.preprocessing.geometry
        pixels = np.stack([geometry.apply(Image.open(p).convert("RGB")) for p in unseen])
        parts.append(model(pixels).features[:, columns])
    features = np.concatenate(parts, axis=1)
    logits = features @ predictor.head.weights.T + predictor.head.bias
    by_hand = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(predictor.predict_proba(unseen), by_hand, atol=1e-6)
    expected = predictor.classes_[by_hand.argmax(axis=1)]
    np.testing.assert_array_equal(predictor.predict(unseen), expected)
    distances = predictor.domain_distance(unseen)
    np.testing.assert_allclose(distances, predictor.gaussian.distances(features), rtol=1e-5)
    assert predictor.score(unseen, truth(unseen)) > 0.9
    assert predictor.predict(unseen).dtype.kind == "U"
    assert np.mean(distances > 1) <= 0.05
    noise = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
    assert all(found.out_of_domain for found in predictor.stream(noise))  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"none of the labels is a known class: got 0 \(int\)"):
        predictor.score(unseen, [0] * len(unseen))
    with pytest.raises(InputError, match="same length, got 2 images and 1 label"):
        predictor.score(unseen[:2], ["0"])


def test_repr(predictor: oodzoo.Predictor) -> None:
    names = ", ".join(model.name for model in predictor.models)
    choice, d = predictor.provenance.choice, len(predictor.columns)
    assert repr(predictor) == f"Predictor({choice}: 3 classes from {d} features of {names})"
    shown = predictor._repr_mimebundle_()
    assert shown == {"text/plain": repr(predictor), "text/html": predictor._repr_html_()}
    measured = oodzoo.fit({"m": rows()}, Y, DOMAINS)
    accuracy = measured.provenance.accuracy
    assert str(measured) == f"{measured!r}: accuracy {accuracy:.1f} % on held-out domains"
    many = np.full(5000, 0.0001)
    many[7] = 0.625
    found = Prediction(3, "photos/a.jpg", "cat", many, 0.5, False)
    assert repr(found) == "Prediction('photos/a.jpg': 'cat', 62 %)"
    unlike = repr(Prediction(3, None, ("label",) * 99, None, 1.5, True))
    assert unlike.startswith("Prediction(3: ('label', ")
    assert unlike.endswith(", unlike the training samples)")
    assert len(unlike) < 200


# --- numbers and labels --------------------------------------------------------------------------


@pytest.mark.parametrize("choose", ["auto", "single", "ensemble", "selection"])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_and_labels(kind: Any, choose: str, tmp_path: Path) -> None:
    """Predicted by the formula, saved, loaded and exported."""
    features, y, domains = problem(kind)
    predictor = oodzoo.fit(features, y, domains, task=kind, choose=choose)
    given = used(predictor, features)
    X = np.hstack([x[:, predictor.columns.by_model[name]] for name, x in given.items()])
    outputs = X @ predictor.head.weights.T + predictor.head.bias
    found = predictor.predict(given)
    labels = [each.label for each in predictor.stream(given) if isinstance(each, Prediction)]
    assert predictor.score(given, y) > 0.85
    assert predictor.domain_distance(given).mean() < 1
    if kind == "regression":
        expected = found
        np.testing.assert_allclose(found, outputs, rtol=1e-5)
        np.testing.assert_array_equal(labels, found)
        assert predictor.score(given, y) == pytest.approx(r2_score(y, found))
        with pytest.raises(InputError, match="numbers, which have no probabilities"):
            predictor.predict_proba(given)
    else:
        expected = predictor.predict_proba(given)
        np.testing.assert_allclose(expected, 1 / (1 + np.exp(-outputs)), atol=1e-5)
        np.testing.assert_array_equal(found, expected > 0.5)
        assert labels == [tuple(np.array(["0", "1"])[row > 0.5]) for row in expected]
        assert predictor.score(given, y) == pytest.approx(average_precision_score(y, expected))
    for call, words in (
        (lambda: next(predictor.stream(given, min_confidence=0.5)), "needs one class per sample"),
        (lambda: predictor.adapted(given), "cannot adapt"),
        (lambda: predictor.score(given, y[:199]), "200 samples and 199 labels"),
    ):
        with pytest.raises(InputError, match=words):
            call()
    if choose != "auto":
        return
    weights = predictor.provenance.pool
    assert weights.get("noise", 0.0) < 0.7 * min(weights.get("one", 1.0), weights.get("two", 1.0))
    again = oodzoo.load(predictor.save(tmp_path / "model"))
    assert again.task == predictor.task
    np.testing.assert_array_equal(again.predict(given), found)
    facts = predictor.to_dict()
    assert json.loads((tmp_path / "model/predictor.json").read_text())["task"] == facts["task"]
    assert (facts["task"], facts["metric"]) == (kind, predictor.task.metric)
    low, high = facts["accuracy_interval"]
    assert low < facts["accuracy"] < high <= 100
    assert facts["accuracy"] > 80
    pytest.importorskip("onnx")
    import onnxruntime

    session = onnxruntime.InferenceSession(str(predictor.export(tmp_path / "head.onnx")))
    name = "numbers" if kind == "regression" else "probabilities"
    exported = session.run([name], {k: v.astype(np.float32) for k, v in given.items()})[0]
    np.testing.assert_allclose(exported, expected, rtol=1e-4, atol=1e-4)
    assert session.get_modelmeta().custom_metadata_map["task"] == kind


def test_forms_of_labels() -> None:
    pandas = pytest.importorskip("pandas")
    features, y, domains = problem("regression", outputs=1)
    one = oodzoo.fit(features, y[:, 0], domains)
    given = used(one, features)
    assert one.predict(given).shape == (200,)
    assert one.score(given, y[:, 0]) == one.score(given, y)
    assert one.classes_.tolist() == ["y"]
    assert "1 number from" in repr(one)
    for kind in KINDS:
        features, y, domains = problem(kind)
        frame = pandas.DataFrame(y, columns=["cat", "dog"])
        predictor = oodzoo.fit(features, frame, domains, task=kind, choose="single")
        given = used(predictor, features)
        right = predictor.score(given, frame)
        assert predictor.score(given, frame[["dog", "cat"]]) == right > 0.85
        with pytest.raises(InputError, match="columns of the labels are 'dog', 'fox'; the predic"):
            predictor.score(given, frame.rename(columns={"cat": "fox"})[["dog", "fox"]])
        if kind == "regression":
            with pytest.raises(InputError, match="predicts 2 numbers per sample, the labels have"):
                predictor.score(given, y[:, :1])
    lists = [np.array(["cat", "dog"])[row.astype(bool)].tolist() for row in y]
    predictor = oodzoo.fit(features, lists, domains, choose="single")
    assert predictor.classes_.tolist() == ["cat", "dog"]
    assert predictor.score(given, lists) == predictor.score(given, y)
    alone = {name: x[y[:, 1] == 0] for name, x in given.items()}  # one of the labels only
    assert predictor.score(alone, [each for each in lists if "dog" not in each]) > 0.8
    with pytest.raises(InputError, match="does not know the label 'fox'; it has 'cat', 'dog'"):
        predictor.score(given, [["fox"], *lists[1:]])
    target = {name: np.ones((30, X.shape[1])) for name, X in features.items()}
    with pytest.raises(InputError, match="images of the target are used for classes only"):
        oodzoo.fit(features, y, domains, target=target, choose="pool")


@pytest.mark.parametrize("kind", ["classification", *KINDS])
def test_an_unreadable_image_of_a_folder_has_no_prediction(
    folder: Path, unseen: list[Path], tmp_path: Path, kind: Any
) -> None:
    predictor: Any = oodzoo.load(folder, device="cpu")
    head = predictor.head
    other = head.__class__(head.weights, head.bias, head.C, task_of(kind))
    predictor = changed(predictor, head=other)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.png").write_bytes(unseen[0].read_bytes())
    (tmp_path / "new" / "b.png").write_text("no image")
    with pytest.warns(UserWarning, match="1 of 2 images cannot be read: .*b.png': not an image"):
        first, second = predictor.predict(tmp_path / "new").tolist()
    assert first == predictor.predict(unseen[:1]).tolist()[0]
    assert second is None if kind == "classification" else np.isnan(second).all()
    with pytest.warns(UserWarning, match="1 of 2 images cannot be read"):
        assert np.isnan(predictor.domain_distance(tmp_path / "new")[1])
    if kind != "regression":
        with pytest.warns(UserWarning, match="cannot be read"):
            assert np.isnan(predictor.predict_proba(tmp_path / "new")[1]).all()
