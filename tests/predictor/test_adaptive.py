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
from tests.predictor.data import changed, truth
from tests.store.data import rewrite

import oodzoo
from oodzoo import InputError
from oodzoo.predictor import Unreadable


@pytest.fixture(scope="module")
def adaptive(predictor: oodzoo.Predictor, store: oodzoo.FeatureStore) -> oodzoo.Predictor:
    return with_adaptive(predictor, store)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Images of a domain without training images."""
    root = draw_digits(tmp_path_factory.mktemp("new"), 20, domains=("collage",))
    return sorted(root.rglob("*.png"))


def test_the_head_is_adapted_to_the_images(
    adaptive: oodzoo.Predictor, new: list[Path], unseen: list[Path], store: oodzoo.FeatureStore
) -> None:
    before = adaptive.predict_proba(new)
    adapted = adaptive.adapted(new)
    assert adaptive.adaptive is not None
    features = np.concatenate([chunk.features for chunk in adaptive._chunks(new)])
    expected = adaptive.adaptive.adapted(features)
    np.testing.assert_allclose(adapted.head.weights, expected.weights)
    np.testing.assert_allclose(adapted.head.bias, expected.bias)
    assert (adapted.provenance.adapted, adaptive.provenance.adapted) == (60, None)
    assert replace(adapted.provenance, adapted=None) == adaptive.provenance
    assert np.abs(adapted.predict_proba(new) - before).max() > 0.01
    np.testing.assert_array_equal(adaptive.predict_proba(new), before)  # unchanged
    np.testing.assert_array_equal(adapted.domain_distance(new), adaptive.domain_distance(new))
    again = adaptive.adapted(unseen).adapted(new)  # from the start
    np.testing.assert_allclose(again.head.bias, adapted.head.bias)
    order = np.random.default_rng(0).permutation(len(new))
    shuffled = [new[at] for at in order]
    found = adaptive.adapted(shuffled).predict_proba(shuffled)
    np.testing.assert_allclose(found, adapted.predict_proba(new)[order], atol=1e-6)
    blank = [Image.new("RGB", (32, 32))] * 20
    found = adaptive.adapted(blank).predict_proba(blank)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    pool = oodzoo.fit(store, choose="pool")
    adapted = pool.adapted(new)
    assert (pool.provenance.choice, adapted.provenance.adapted) == ("pool", 60)
    assert adapted.score(new, truth(new)) >= pool.score(new, truth(new)) - 0.05


@pytest.mark.parametrize("chunks", [0, 1])
def test_a_stream_adapts_first(
    adaptive: oodzoo.Predictor,
    new: list[Path],
    chunks: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Features are kept up to a size, and those of other images are computed again."""
    monkeypatch.setattr(
        "oodzoo.predictor.chunks.KEPT_BYTES", chunks * 64 * 4 * len(adaptive.columns)
    )
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    images = [bad, *new, *new, *new]  # three chunks
    first, *found = adaptive.stream(iter(images), adapt=True)
    assert isinstance(first, Unreadable)
    places = [(f.position, f.path) for f in found]
    assert places == [(at, str(path)) for at, path in enumerate(images)][1:]
    expected = adaptive.adapted(images).predict_proba(images[1:])
    probabilities: Any = [f.probabilities for f in found if not isinstance(f, Unreadable)]
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)


def test_what_cannot_adapt(adaptive: oodzoo.Predictor, new: list[Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    assert adaptive.adapted([*new[:20], bad]).provenance.adapted == 20
    with pytest.raises(InputError, match=r"^19 readable images, at least 20 are needed"):
        adaptive.adapted([*new[:19], bad])
    with pytest.raises(InputError, match=r"^0 readable images"):
        list(adaptive.stream([], adapt=True))
    without = changed(adaptive, adaptive=None)
    message = rf"predictor \({without.provenance.choice}\) cannot adapt to images; only a pool can"
    with pytest.raises(InputError, match=message):
        without.adapted(new)
    with pytest.raises(InputError, match=message):
        next(without.stream(new, adapt=True))
    assert not without._loaded


def test_saved_and_loaded(adaptive: oodzoo.Predictor, new: list[Path], tmp_path: Path) -> None:
    adapted = adaptive.adapted(new)
    for saved in (adapted, adaptive):  # one replaces the other
        loaded = oodzoo.load(saved.save(tmp_path / "model"), device="cpu")
        np.testing.assert_array_equal(loaded.predict_proba(new), saved.predict_proba(new))
        assert loaded.provenance.adapted == saved.provenance.adapted
        np.testing.assert_array_equal(loaded.adapted(new).head.bias, adapted.head.bias)
        for part in ("plain", "standardised", "base"):
            assert getattr(loaded.adaptive, part).C == getattr(adaptive.adaptive, part).C
    folder = adaptive.save(tmp_path / "damaged")
    head, document = folder / "head.safetensors", folder / "predictor.json"
    whole, text = load_file(head), document.read_text()
    scalars = r"an adaptive head must have a C for each of plain.*; fit again"
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (id, {"adaptive.rates": np.zeros((2, 2))}, r"'adaptive.rates' must be \(3, 3\), got \(2"),
        (id, {"adaptive.base.bias": None}, r"it has no 'adaptive.base.bias'; fit again"),
        (lambda content: content["adaptive"]["C"].pop("base"), {}, scalars),
        (lambda content: content["adaptive"].update(noise=-1.0), {}, scalars),
    ]
    for changes, tensors, message in cases:
        save_file({k: v for k, v in {**whole, **tensors}.items() if v is not None}, head)
        digest = hashlib.sha256(head.read_bytes()).hexdigest()
        document.write_text(text)
        rewrite(document, lambda content, d=digest: content["files"].update({head.name: d}))  # type: ignore[misc]
        rewrite(document, changes)
        with pytest.raises(InputError, match=message):
            oodzoo.load(folder)
