"""Labelling images with a predictor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone, is_classifier
from sklearn.metrics import get_scorer

import oodzoo
from oodzoo import InputError
from oodzoo.predictor import Unreadable
from oodzoo.zoo import ModelSpec, load_model


def _truth(paths: list[Path]) -> list[str]:
    return [path.parent.name for path in paths]


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
    np.testing.assert_allclose(
        predictor.domain_distance(unseen), predictor.gaussian.distances(features), rtol=1e-5
    )


def test_accuracy_on_digits(predictor: oodzoo.Predictor, unseen: list[Path]) -> None:
    assert predictor.score(unseen, _truth(unseen)) > 0.9
    assert predictor.predict(unseen).dtype.kind == "U"


def test_paths_images_and_arrays_are_equivalent(
    predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    expected = predictor.predict_proba(unseen[:5])
    images = [Image.open(path) for path in unseen[:5]]
    arrays = [np.asarray(image) for image in images]
    for given in ([str(p) for p in unseen[:5]], images, arrays, iter(unseen[:5])):
        np.testing.assert_array_equal(predictor.predict_proba(given), expected)


def test_batch_size_does_not_matter(
    saved: Path, predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    many = unseen * 4  # more than one chunk
    expected = predictor.predict_proba(many)
    small = oodzoo.load(saved, device="cpu", batch_size=7)
    np.testing.assert_allclose(small.predict_proba(many), expected, atol=1e-6)
    assert [p.position for p in small.stream(many)] == list(range(len(many)))


def test_images_are_consumed_lazily(predictor: oodzoo.Predictor) -> None:
    asked = 0

    def endless() -> Any:
        nonlocal asked
        while True:
            asked += 1
            yield np.zeros((8, 8, 3), np.uint8)

    stream = predictor.stream(endless())
    for _ in range(10):
        next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert asked <= 64 * 5


def test_print_has_the_measured_accuracy(predictor: oodzoo.Predictor) -> None:
    accuracy = predictor.provenance.accuracy
    end = ")" if accuracy is None else f"): accuracy {accuracy:.1f} % on left-out domains"
    assert str(predictor).endswith(end)


def test_repr(predictor: oodzoo.Predictor) -> None:
    names = ", ".join(model.name for model in predictor.models)
    choice, d = predictor.provenance.choice, len(predictor.columns)
    assert repr(predictor) == f"Predictor({choice}: 3 classes from {d} features of {names})"
    shown = predictor._repr_mimebundle_()
    assert shown == {"text/plain": repr(predictor), "text/html": predictor._repr_html_()}


def test_no_images(predictor: oodzoo.Predictor) -> None:
    assert predictor.predict([]).tolist() == []
    assert predictor.predict_proba([]).shape == (0, 3)


def test_unreadable_images_are_reported(
    predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    found = list(predictor.stream([unseen[0], bad, unseen[1]]))
    assert [type(f) is Unreadable for f in found] == [False, True, False]
    assert found[1] == Unreadable(1, str(bad), "not an image that Pillow can identify")
    assert found[2].position == 2
    with pytest.raises(InputError, match=r"cannot read the image .*bad.png.*use stream"):
        predictor.predict([unseen[0], bad])
    assert [type(f) for f in predictor.stream([bad, bad])] == [Unreadable, Unreadable]


def test_one_image(predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path) -> None:
    expected = predictor.predict_proba(unseen[:1])
    image = Image.open(unseen[0])
    for given in (unseen[0], str(unseen[0]), image, np.asarray(image)):
        np.testing.assert_array_equal(predictor.predict_proba(given), expected)
    (tmp_path / "bad.png").write_text("no image")
    for bad in (tmp_path / "bad.png", tmp_path):
        with pytest.raises(InputError, match=r"none of the images can be read; first .*bad.png': "):
            predictor.predict(bad)


def test_an_unreadable_image_of_a_folder_keeps_its_place(
    predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path
) -> None:
    for name, path in zip("ac", unseen, strict=False):
        (tmp_path / f"{name}.png").write_bytes(path.read_bytes())
    first, second = predictor.predict(tmp_path).tolist()
    (tmp_path / "b.png").write_text("no image")
    with pytest.warns(UserWarning, match=r"1 of 3 images cannot be read: .*b.png': not an image"):
        assert predictor.predict(tmp_path).tolist() == [first, None, second]
    with pytest.warns(UserWarning, match="cannot be read"):
        proba = predictor.predict_proba(tmp_path)
    assert np.isnan(proba).all(axis=1).tolist() == [False, True, False]
    with pytest.raises(InputError, match=r"cannot read the image .*b.png.*use stream"):
        predictor.score(tmp_path, [first, second, second])


def test_it_is_a_classifier_for_scikit_learn(
    predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    assert is_classifier(predictor)
    assert clone(predictor) is predictor
    truth = _truth(unseen)
    accuracy = predictor.score(unseen, truth)
    assert get_scorer("accuracy")(predictor, unseen, truth) == accuracy
    right = predictor.predict_proba(unseen)[np.arange(len(truth)), [int(t) for t in truth]]
    loss = get_scorer("neg_log_loss")(predictor, unseen, truth)
    np.testing.assert_allclose(loss, np.log(right).mean())
    assert predictor.classes_.tolist() == ["0", "1", "2"]


def test_labels_must_match_the_classes_and_images(
    predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    with pytest.raises(InputError, match=r"none of the labels is a known class: got 0 \(int\)"):
        predictor.score(unseen, [0] * len(unseen))
    with pytest.raises(InputError, match="same length, got 2 images and 1 label"):
        predictor.score(unseen[:2], ["0"])


def test_noise_is_out_of_domain(predictor: oodzoo.Predictor, unseen: list[Path]) -> None:
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 256, (32, 32, 3), dtype=np.uint8) for _ in range(10)]
    assert np.mean(predictor.domain_distance(unseen) > 1) <= 0.05
    assert all(found.out_of_domain for found in predictor.stream(noise))  # type: ignore[union-attr]
