"""Logistic regressions of several labels against scikit-learn, and what must not matter."""

from __future__ import annotations

import numpy as np
import pytest
from tests.heads.numbers import several_labels
from tests.oracles import outputs as oracle

from oodzoo.errors import InputError
from oodzoo.features.columns import Samples
from oodzoo.heads.multilabel import fit_label_head, left_out_labels
from oodzoo.heads.paths import C_GRID

SHAPES = [(90, 5), (30, 45)]
"""More samples than features, and fewer."""


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("left_out", [{0}, {1, 2}])
def test_log_odds_of_left_out_domains(n: int, d: int, left_out: set[int]) -> None:
    samples = several_labels(n, d, 3, 3)
    (found,) = left_out_labels(samples, 3, [left_out], tol=1e-6)
    (rough,) = left_out_labels(samples, 3, [left_out])
    out = np.isin(samples.domains, list(left_out))
    assert found.shape == (len(C_GRID), out.sum(), 3)
    for at, C in enumerate(C_GRID):
        training, others = samples.features[~out], samples.features[out]
        expected = oracle.log_odds(training, samples.labels[~out], others, C)
        np.testing.assert_allclose(found[at], expected, rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(rough[at], expected, rtol=0.1, atol=0.3)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_a_head_of_all_samples(n: int, d: int) -> None:
    samples = several_labels(n, d, 3, 3)
    head = fit_label_head(samples, 3, 0.1)
    expected = oracle.log_odds(samples.features, samples.labels, samples.features, 0.1)
    np.testing.assert_allclose(head.logits(samples.features), expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        head.probabilities(samples.features), 1 / (1 + np.exp(-expected)), atol=1e-3
    )
    assert (head.kind, head.C) == ("multilabel", 0.1)


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("n_labels", [1, 3])
def test_a_label_of_no_or_all_samples_has_the_log_odds_of_its_rate(
    value: float, n_labels: int
) -> None:
    samples = several_labels(40, 4, n_labels, 2)
    labels = samples.labels.copy()
    labels[samples.domains == 0, 0] = value
    samples = samples._replace(labels=labels)
    (found,) = left_out_labels(samples, n_labels, [{1}])
    np.testing.assert_allclose(found[:, :, 0], (2 * value - 1) * np.log(20.5 / 0.5), rtol=1e-6)
    assert n_labels == 1 or found[-1, :, 1].std() > 0
    training = Samples(*(each[samples.domains == 0] for each in samples))
    head = fit_label_head(training, n_labels, 1.0)
    assert not head.weights[0].any()
    assert head.bias[0] == pytest.approx((2 * value - 1) * np.log(20.5 / 0.5))


def test_order_of_labels_and_left_out_labels_do_not_matter() -> None:
    samples = several_labels(60, 5, 3, 3)
    (one,) = left_out_labels(samples, 3, [{0}], tol=1e-6)
    labels = np.where(samples.domains[:, None] == 0, 1 - samples.labels, samples.labels)
    (two,) = left_out_labels(samples._replace(labels=labels[:, ::-1]), 3, [{0}], tol=1e-6)
    np.testing.assert_allclose(two[:, :, ::-1], one, rtol=1e-3, atol=1e-3)


def test_settings_keep_their_order() -> None:
    samples = several_labels(60, 5, 2, 3)
    (up,), (down,) = (left_out_labels(samples, 2, [{0}], Cs=Cs) for Cs in ([0.01, 1], [1, 0.01]))
    np.testing.assert_array_equal(up, down[::-1])
    with pytest.raises(InputError, match="C must be one or more numbers above 0"):
        fit_label_head(samples, 2, 0.0)
