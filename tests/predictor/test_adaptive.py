"""Predictors that adapt to unlabelled images, in memory and on disk."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file
from tests.fixtures import draw_digits
from tests.predictor.adapting import with_adaptive
from tests.store.data import rewrite

import oodzoo
from oodzoo import InputError
from oodzoo.predictor import Prediction, Unreadable, inputs
from oodzoo.predictor import images as images_module
from oodzoo.predictor import predictor as module
from oodzoo.predictor.document import (
    AdaptiveScalars,
    adaptive_head,
    adaptive_shapes,
    adaptive_tensors,
)


@pytest.fixture(scope="module")
def adaptive(predictor: oodzoo.Predictor, store: oodzoo.FeatureStore) -> oodzoo.Predictor:
    return with_adaptive(predictor, store)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Images of a domain without training images."""
    root = draw_digits(tmp_path_factory.mktemp("new"), 20, domains=("collage",))
    return sorted(root.rglob("*.png"))


def _truth(paths: list[Path]) -> list[str]:
    return [path.parent.name for path in paths]


def _features(predictor: oodzoo.Predictor, paths: list[Path]) -> Any:
    return np.concatenate([chunk.features for chunk in predictor._chunks(paths)])


def test_the_head_is_adapted_to_the_images(adaptive: oodzoo.Predictor, new: list[Path]) -> None:
    before = adaptive.predict_proba(new)
    adapted = adaptive.adapted(new)
    assert adaptive.adaptive is not None
    expected = adaptive.adaptive.adapted(_features(adaptive, new))
    np.testing.assert_allclose(adapted.head.weights, expected.weights)
    np.testing.assert_allclose(adapted.head.bias, expected.bias)
    assert (adapted.provenance.adapted, adaptive.provenance.adapted) == (60, None)
    assert replace(adapted.provenance, adapted=None) == adaptive.provenance
    assert np.abs(adapted.predict_proba(new) - before).max() > 0.01
    np.testing.assert_array_equal(adaptive.predict_proba(new), before)  # unchanged
    np.testing.assert_array_equal(adapted.domain_distance(new), adaptive.domain_distance(new))


def test_a_fitted_pool_adapts(store: oodzoo.FeatureStore, new: list[Path]) -> None:
    pool = oodzoo.fit(store, choose="pool")
    adapted = pool.adapted(new)
    assert (pool.provenance.choice, adapted.provenance.adapted) == ("pool", 60)
    assert adapted.score(new, _truth(new)) >= pool.score(new, _truth(new)) - 0.05


def test_it_adapts_again_from_the_start(
    adaptive: oodzoo.Predictor, new: list[Path], unseen: list[Path]
) -> None:
    again = adaptive.adapted(unseen).adapted(new)
    np.testing.assert_allclose(again.head.bias, adaptive.adapted(new).head.bias)


def test_the_order_of_the_images_does_not_matter(
    adaptive: oodzoo.Predictor, new: list[Path]
) -> None:
    order = np.random.default_rng(0).permutation(len(new))
    shuffled = [new[at] for at in order]
    expected = adaptive.adapted(new).predict_proba(new)
    found = adaptive.adapted(shuffled).predict_proba(shuffled)
    np.testing.assert_allclose(found, expected[order], atol=1e-6)


@pytest.mark.parametrize(("chunks", "again"), [(3, 0), (1, 181 - 64), (0, 181)])
def test_a_stream_adapts_first(
    adaptive: oodzoo.Predictor,
    new: list[Path],
    chunks: int,
    again: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inputs, "KEPT_BYTES", chunks * 64 * 4 * len(adaptive.columns))
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    images = [bad, *new, *new, *new]  # three chunks
    computed: list[str | None] = []

    def iter_features(*arguments: Any) -> Any:
        for chunk in images_module.iter_features(*arguments):
            computed.extend(chunk.paths)
            yield chunk

    monkeypatch.setattr(module, "iter_features", iter_features)
    found = list(adaptive.stream(iter(images), adapt=True))
    assert len(computed) == len(images) + again
    expected = list(adaptive.adapted(images).stream(images))
    assert isinstance(found[0], Unreadable)
    assert [f.position for f in found] == list(range(len(images)))
    assert [f.path for f in found] == [str(path) for path in images]
    for one, two in zip(found[1:], expected[1:], strict=True):
        assert isinstance(one, Prediction)
        assert isinstance(two, Prediction)
        assert one.probabilities is not None
        assert two.probabilities is not None
        np.testing.assert_allclose(one.probabilities, two.probabilities, atol=1e-6)


@pytest.mark.parametrize("labels", ["0", "1", "2", "01", "12", "012"])
def test_batches_of_few_classes(adaptive: oodzoo.Predictor, new: list[Path], labels: str) -> None:
    some = [path for path in new if path.parent.name in labels]
    plain = adaptive.score(some, _truth(some))
    assert adaptive.adapted(some).score(some, _truth(some)) >= plain - 0.1


def test_too_few_images(adaptive: oodzoo.Predictor, new: list[Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    assert adaptive.adapted([*new[:20], bad]).provenance.adapted == 20
    message = "^19 readable images, at least 20 are needed to adapt to them; add images of the same"
    with pytest.raises(InputError, match=message):
        adaptive.adapted([*new[:19], bad])
    with pytest.raises(InputError, match=r"^0 readable images"):
        list(adaptive.stream([], adapt=True))
    with pytest.raises(InputError, match=r"no such file or folder: 'photo.png'"):
        adaptive.adapted("photo.png")


def test_identical_images(adaptive: oodzoo.Predictor) -> None:
    blank = [Image.new("RGB", (32, 32))] * 20
    probabilities = adaptive.adapted(blank).predict_proba(blank)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_a_predictor_that_cannot_adapt(predictor: oodzoo.Predictor, new: list[Path]) -> None:
    old = oodzoo.Predictor(**{**vars(predictor._parts()), "adaptive": None})
    choice = old.provenance.choice
    message = (
        rf"this predictor \({choice}\) cannot adapt to images; only a pool can: fit again with"
    )
    with pytest.raises(InputError, match=message):
        old.adapted(new)
    with pytest.raises(InputError, match=message):
        next(old.stream(new, adapt=True))
    assert not old._loaded


# --- on disk -----------------------------------------------------------------------------------


def test_tensors_and_scalars_round_trip(adaptive: oodzoo.Predictor, new: list[Path]) -> None:
    head = adaptive.adaptive
    assert head is not None
    tensors = adaptive_tensors(head)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    assert adaptive_shapes(3, len(adaptive.columns)) == shapes
    again = adaptive_head(tensors, AdaptiveScalars.of(head))
    features = _features(adaptive, new)
    np.testing.assert_array_equal(again.adapted(features).bias, head.adapted(features).bias)
    for part in ("plain", "standardised", "base"):
        assert getattr(again, part).C == getattr(head, part).C
    for C, noise in (({"base": 1.0}, 1.0), (AdaptiveScalars.of(head).C, -1.0)):
        with pytest.raises(InputError, match="an adaptive head must have a C for each of plain"):
            AdaptiveScalars(C, noise)


def test_a_saved_predictor_adapts(
    adaptive: oodzoo.Predictor, new: list[Path], tmp_path: Path
) -> None:
    loaded = oodzoo.load(adaptive.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(new), adaptive.predict_proba(new))
    adapted = adaptive.adapted(new)
    np.testing.assert_array_equal(loaded.adapted(new).head.bias, adapted.head.bias)
    again = oodzoo.load(adapted.save(tmp_path / "adapted"), device="cpu")
    np.testing.assert_array_equal(again.predict_proba(new), adapted.predict_proba(new))
    assert again.provenance.adapted == 60
    np.testing.assert_array_equal(again.adapted(new).head.bias, adapted.head.bias)
    replaced = oodzoo.load(adaptive.save(tmp_path / "adapted"), device="cpu")
    np.testing.assert_array_equal(replaced.head.bias, adaptive.head.bias)


def test_a_damaged_adaptive_head(adaptive: oodzoo.Predictor, tmp_path: Path) -> None:
    folder = adaptive.save(tmp_path / "model")
    head, document = folder / "head.safetensors", folder / "predictor.json"
    whole = load_file(head)

    def save(**changes: Any) -> None:
        save_file({k: v for k, v in {**whole, **changes}.items() if v is not None}, head)
        digest = hashlib.sha256(head.read_bytes()).hexdigest()
        rewrite(document, lambda content: content["files"].update({head.name: digest}))

    save(**{"adaptive.rates": np.zeros((2, 2))})
    with pytest.raises(InputError, match=r"'adaptive.rates' must be \(3, 3\), got \(2, 2\); fit"):
        oodzoo.load(folder)
    save(**{"adaptive.base.bias": None})
    with pytest.raises(InputError, match=r"it has no 'adaptive.base.bias'; fit again"):
        oodzoo.load(folder)
    save()
    rewrite(document, lambda content: content["adaptive"]["C"].pop("base"))
    with pytest.raises(InputError, match=r"an adaptive head must have a C.*; fit again"):
        oodzoo.load(folder)
