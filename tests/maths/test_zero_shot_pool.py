"""Zero-shot heads in a pool: candidates, choice, and one linear head of features of unit length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax
from tests.joint_space import JointSpace, embeddings_of, joint_space, stored_space
from tests.oracles import zero_shot as oracle

from oodzoo.combining.final import fit_pool, fit_pool_for_target
from oodzoo.combining.heads import choose_pool, predict_with_heads
from oodzoo.combining.predictions import (
    FROM_ZERO_SHOT,
    SHARES,
    TRAINED,
    ZERO_SHOT,
    Head,
    find_zero_shot,
    fit_kind,
    model_predictions,
    pool_columns,
)
from oodzoo.extraction.source import ArraySource, StoreSource
from oodzoo.extraction.target import as_target
from oodzoo.linear.heads.kinds import folds_within
from oodzoo.linear.heads.zero_shot import left_out_from_zero_shot
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


def test_kinds_of_heads() -> None:
    _, clip = model_predictions(SOURCE, "clip")
    kinds = (TRAINED, ZERO_SHOT, FROM_ZERO_SHOT)
    assert set(clip) == {Head("clip", kind, share) for kind in kinds for share in SHARES}
    _, plain = model_predictions(SOURCE, "plain")
    assert set(plain) == {Head("plain", TRAINED, share) for share in SHARES}
    texts = [oracle.logits(f, SPACE.texts, 10.0) for f in SPACE.features["clip"]]
    expected = log_softmax(np.array(texts), axis=1)
    for share in SHARES:
        for test, found in clip[Head("clip", ZERO_SHOT, share)].items():
            domains = [d for d in SOURCE.domains if d != test]
            for outputs in (found.out_of_fold, found.within or []):
                for domain, predicted in zip(domains, outputs, strict=True):
                    rows = SPACE.domains == domain
                    np.testing.assert_allclose(predicted, expected[rows], atol=1e-4)
            if test is not None:
                assert found.test is not None
                np.testing.assert_allclose(found.test, expected[SPACE.domains == test], atol=1e-4)


def test_heads_that_start_from_the_texts_are_fitted_without_the_samples() -> None:
    """Of features of unit length, without the domain or the fold."""
    _, heads = model_predictions(SOURCE, "clip")
    texts = find_zero_shot(SOURCE, "clip")
    assert texts is not None
    samples = pool_columns(SOURCE, ["clip"]).samples(SOURCE, SOURCE.domains)
    folds = folds_within("classification", samples.labels, samples.domains)
    for share in SHARES:
        found = heads[Head("clip", FROM_ZERO_SHOT, share)][None]
        for outputs, parts in ((found.out_of_fold, samples.domains), (found.within, folds)):
            together = np.concatenate(outputs or [])
            names = np.unique(parts).tolist()
            paths = left_out_from_zero_shot(
                samples._replace(domains=parts), 4, [{name} for name in names], zero_shot=texts
            )
            for name, path in zip(names, paths, strict=True):
                expected = path[found.setting]
                np.testing.assert_allclose(together[parts == name], expected, atol=1e-5)


@pytest.mark.parametrize("scale", [0.001, 10.0])
def test_the_pool_is_one_linear_head(scale: float) -> None:
    source = WithTexts(SPACE, scale)
    heads = predict_with_heads(source)[None]
    final = fit_pool(source, heads)
    pool = choose_pool(heads)
    assert final.columns.normalised == ({"clip"} & set(pool.models))
    total: Any = 0
    for head, weight in zip(pool.members, pool.weights, strict=True):
        samples = pool_columns(source, [head.model]).samples(source, source.domains)
        setting = heads.candidates[head].setting
        zero_shot = find_zero_shot(source, head.model)
        fitted = fit_kind("classification", head.kind, samples, 4, setting, zero_shot)
        total = total + weight * fitted.logits(samples.features)
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


def test_what_a_store_keeps_depends_on_the_texts(tmp_path: Path) -> None:
    store = stored_space(tmp_path, SPACE)
    _, before = model_predictions(StoreSource(store), "clip")
    _, same = model_predictions(StoreSource(store), "clip")
    for head, predictions in before.items():
        np.testing.assert_array_equal(
            predictions[None].out_of_fold[0], same[head][None].out_of_fold[0]
        )
    other = embeddings_of(SPACE._replace(texts=SPACE.texts[::-1]))
    write_class_embeddings(store.path, "clip", store.model("clip").identity, other)
    _, after = model_predictions(StoreSource(store), "clip")
    for head, predictions in before.items():
        difference = predictions[None].out_of_fold[0] - after[head][None].out_of_fold[0]
        assert (np.abs(difference).max() > 0.1) == (head.kind != TRAINED)
