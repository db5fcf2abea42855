"""The meaning of the outputs of heads, for each kind of task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.metrics import average_precision_score, r2_score
from tests.oracles import outputs as oracle

from oodzoo.heads.linear import LinearHead
from oodzoo.heads.outputs import outputs_of, relative_errors
from oodzoo.task import KINDS, Kind


def some(kind: Kind, seed: int = 0) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Outputs (3, n, 4) of heads for two domains, and labels."""
    rng = np.random.default_rng(seed)
    raw = [rng.normal(size=(3, n, 4)) for n in (20, 11)]
    if kind == "classification":
        labels = [rng.integers(0, 4, (each.shape[1],)) for each in raw]
        return [log_softmax(each, axis=2) for each in raw], labels
    if kind == "regression":
        return raw, [rng.normal(size=each.shape[1:]) for each in raw]
    return raw, [(rng.random(each.shape[1:]) < 0.4).astype(np.float64) for each in raw]


def test_values_and_contributions() -> None:
    (outputs, *_), (labels, *_) = some("classification")
    probabilities = outputs_of("classification").values(outputs[0])
    np.testing.assert_allclose(probabilities, np.exp(outputs[0]))
    found = outputs_of("classification").contributions(outputs[0], labels)
    np.testing.assert_array_equal(found, outputs[0].argmax(axis=1) == labels)
    (outputs, *_), (labels, *_) = some("regression")
    np.testing.assert_array_equal(outputs_of("regression").values(outputs[0]), outputs[0])
    found = outputs_of("regression").contributions(outputs[0], labels)
    assert found.mean() == pytest.approx(r2_score(labels, outputs[0]))
    (outputs, *_), (labels, *_) = some("multilabel")
    probabilities = outputs_of("multilabel").values(outputs[0])
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-outputs[0])))
    found = outputs_of("multilabel").contributions(outputs[0], labels)
    expected = average_precision_score(labels, outputs[0], average="macro")
    assert found.mean() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_quality(kind: Kind) -> None:
    tables, labels = some(kind)
    found = outputs_of(kind).quality(tables, labels)
    every = np.concatenate(labels)
    for domain, (table, y) in enumerate(zip(tables, labels, strict=True)):
        for head in range(3):
            expected = (
                oracle.squared_error(table[head], y, every)
                if kind == "regression"
                else oracle.likelihood(table[head], y)
            )
            assert found[domain, head] == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_of_one_head_is_that_head(kind: Kind) -> None:
    (table, *_), _ = some(kind)
    np.testing.assert_allclose(outputs_of(kind).pooled(table[1:2], [1.0]), table[1])


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_a_pool_is_a_weighted_mean(kind: Kind) -> None:
    (table, *_), _ = some(kind)
    expected = 0.5 * table[0] + 0.2 * table[1] + 0.3 * table[2]
    np.testing.assert_allclose(outputs_of(kind).pooled(table, [0.5, 0.2, 0.3]), expected)


def test_errors_of_an_output_that_is_constant_count_as_they_are() -> None:
    labels = [np.array([[1.0, 0.0], [1.0, 4.0]])]
    (found,) = relative_errors([labels[0][None] + 3.0], labels)
    np.testing.assert_allclose(found[0], [[3.0, 1.5], [3.0, 1.5]])


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_a_head_are_those_of_its_outputs(kind: Kind) -> None:
    rng = np.random.default_rng(0)
    head = LinearHead(rng.normal(size=(3, 5)), rng.normal(size=3), 1.0, kind)
    features = rng.normal(size=(7, 5))
    outputs = head.logits(features)
    if kind == "classification":
        outputs = log_softmax(outputs, axis=1)
    np.testing.assert_allclose(head.values(features), outputs_of(kind).values(outputs))
