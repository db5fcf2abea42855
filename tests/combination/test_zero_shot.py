"""Zero-shot heads in a pool: candidates, choice, and one linear head of features of unit length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax
from tests.joint_space import JointSpace, embeddings_of, joint_space, stored_space
from tests.oracles import zero_shot as oracle

from oodzoo.combination.final import fit_columns, fit_pool, fit_pool_for_target
from oodzoo.combination.heads import Head, Heads, Pool, choose_pool, predict_with_heads
from oodzoo.combination.predictions import ALONE, HeadPredictions, fit_kind, model_predictions
from oodzoo.combination.zero_shot import find_zero_shot, pool_columns
from oodzoo.features.columns import Columns, normalise
from oodzoo.features.source import ArraySource, StoreSource
from oodzoo.features.target import as_target
from oodzoo.store.class_embeddings import ClassEmbeddings, write_class_embeddings


class WithTexts(ArraySource):
    """Arrays of a joint space, with its texts."""

    def __init__(self, space: JointSpace, scale: float = 10.0) -> None:
        super().__init__(space.features, space.y, space.domains)
        self._texts = embeddings_of(space, scale=scale)

    def class_embeddings(self, model: str) -> ClassEmbeddings | None:
        return self._texts.of(self.classes) if model == "clip" else None


SPACE = joint_space()
SOURCE = WithTexts(SPACE)


def test_the_zero_shot_head_of_a_model() -> None:
    head = find_zero_shot(SOURCE, "clip")
    assert head is not None
    found = head.logits(normalise(SPACE.features["clip"]))
    expected = [oracle.logits(f, SPACE.texts, 10.0) for f in SPACE.features["clip"]]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert find_zero_shot(SOURCE, "plain") is None


def test_columns_of_a_pool_are_of_unit_length_for_models_with_texts() -> None:
    columns = pool_columns(SOURCE, ["plain", "clip"])
    assert columns.normalised == {"clip"}
    samples = columns.samples(SOURCE, SOURCE.domains).features
    np.testing.assert_allclose(np.linalg.norm(samples[:, 4:], axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(samples[:, :4], SPACE.features["plain"], rtol=1e-5)
    np.testing.assert_array_equal(
        columns.of("clip", SPACE.features["clip"]), normalise(SPACE.features["clip"])
    )


def test_kinds_of_heads() -> None:
    clip = model_predictions(SOURCE, "clip")
    assert set(clip) == {"logistic", "ridge", ALONE, "zero_shot", "from_zero_shot"}
    assert set(model_predictions(SOURCE, "plain")) == {"logistic", "ridge", ALONE}
    texts = [oracle.logits(f, SPACE.texts, 10.0) for f in SPACE.features["clip"]]
    expected = log_softmax(np.array(texts), axis=1)
    for test, found in clip["zero_shot"].items():
        domains = [d for d in SOURCE.domains if d != test]
        for domain, predicted in zip(domains, found.out_of_fold, strict=True):
            np.testing.assert_allclose(predicted, expected[SPACE.domains == domain], atol=1e-4)
        if test is not None:
            assert found.test is not None
            np.testing.assert_allclose(found.test, expected[SPACE.domains == test], atol=1e-4)


def test_a_head_that_is_used_alone_takes_features_as_they_are() -> None:
    plain = ArraySource(SPACE.features, SPACE.y, SPACE.domains)
    one, two = (model_predictions(each, "clip") for each in (plain, SOURCE))
    for a, b in zip(one[ALONE][None].out_of_fold, two[ALONE][None].out_of_fold, strict=True):
        np.testing.assert_array_equal(a, b)
    unit = ArraySource({"clip": normalise(SPACE.features["clip"])}, SPACE.y, SPACE.domains)
    for kind in ("logistic", "ridge"):
        expected = model_predictions(unit, "clip")[kind][None].out_of_fold
        for a, b in zip(two[kind][None].out_of_fold, expected, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4)
        assert np.abs(one[kind][None].out_of_fold[0] - expected[0]).max() > 0.01


def _accuracy(heads: Heads, head: Head) -> float:
    return _share(heads.candidates[head], heads)


def _share(predicted: HeadPredictions | Pool, heads: Heads) -> float:
    """Accuracy on left-out domains."""
    pairs = zip(predicted.out_of_fold, heads.labels, strict=True)
    return float(np.mean([np.mean(p.argmax(axis=1) == y) for p, y in pairs]))


def test_the_pool_takes_the_heads_that_are_right() -> None:
    heads = predict_with_heads(SOURCE)[None]
    assert len(heads.candidates) == 6
    zero_shot = _accuracy(heads, Head("clip", "zero_shot"))
    started = _accuracy(heads, Head("clip", "from_zero_shot"))
    trained = max(_accuracy(heads, Head("clip", kind)) for kind in ("logistic", "ridge"))
    assert min(zero_shot, started) > trained + 0.05
    pool = choose_pool(heads)
    assert {head.kind for head in pool.members} & {"zero_shot", "from_zero_shot"}
    without = choose_pool(
        predict_with_heads(ArraySource(SPACE.features, SPACE.y, SPACE.domains))[None]
    )
    assert _share(pool, heads) > _share(without, heads) + 0.05


@pytest.mark.parametrize("scale", [0.001, 10.0])
def test_the_pool_is_one_linear_head(scale: float) -> None:
    source = WithTexts(SPACE, scale)
    heads = predict_with_heads(source)[None]
    final = fit_pool(source, heads)
    pool = choose_pool(heads)
    assert final.columns.normalised == ({"clip"} & set(pool.models))
    total: Any = 0
    for head in pool.members:
        samples = pool_columns(source, [head.model]).samples(source, source.domains)
        setting = heads.candidates[head].setting
        zero_shot = find_zero_shot(source, head.model)
        fitted = fit_kind(head.kind, samples, 4, setting, zero_shot)
        total = total + fitted.logits(samples.features) / len(pool.members)
    together = final.columns.samples(source, source.domains).features
    np.testing.assert_allclose(final.head.logits(together), total, atol=1e-6)
    assert final.adaptive is not None
    # the pool that adapts is of the same columns
    assert final.adaptive.plain.weights.shape == final.head.weights.shape


def test_a_pool_for_a_target() -> None:
    target = {name: array[SPACE.domains == "d0"] for name, array in SPACE.features.items()}
    others = SPACE.domains != "d0"
    part = SPACE._replace(
        features={name: array[others] for name, array in SPACE.features.items()},
        y=SPACE.y[others],
        domains=SPACE.domains[others],
    )
    source = WithTexts(part)
    heads = predict_with_heads(source)[None]
    final = fit_pool_for_target(source, heads, as_target(source, target))
    features = np.concatenate(
        [final.columns.of(name, target[name]) for name in final.columns.models], axis=1
    )
    longer = as_target(source, target | {"clip": 50 * target["clip"]})
    same = fit_pool_for_target(source, heads, longer)
    np.testing.assert_allclose(same.head.weights, final.head.weights, rtol=1e-3, atol=1e-3)
    codes = np.unique(SPACE.y, return_inverse=True)[1][~others]
    assert np.mean(final.head.logits(features).argmax(axis=1) == codes) > 0.8


def test_other_columns_are_not_of_unit_length() -> None:
    final = fit_columns(SOURCE, Columns.all_of(SOURCE, ["clip"]))
    assert final.columns.normalised == frozenset()


def test_what_a_store_keeps_depends_on_the_texts(tmp_path: Path) -> None:
    store = stored_space(tmp_path, SPACE)
    before = model_predictions(StoreSource(store), "clip")
    same = model_predictions(StoreSource(store), "clip")
    for kind, predictions in before.items():
        np.testing.assert_array_equal(
            predictions[None].out_of_fold[0], same[kind][None].out_of_fold[0]
        )
    other = embeddings_of(SPACE._replace(texts=SPACE.texts[::-1]))
    write_class_embeddings(store.path, "clip", store.model("clip").identity, other)
    after = model_predictions(StoreSource(store), "clip")
    for kind in ("zero_shot", "from_zero_shot"):
        difference = before[kind][None].out_of_fold[0] - after[kind][None].out_of_fold[0]
        assert np.abs(difference).max() > 0.1
