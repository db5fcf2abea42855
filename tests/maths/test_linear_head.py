"""The head against the written objective, and what it does with odd samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.heads.planted import planted
from tests.oracles.logistic import minimum, objective
from threadpoolctl import threadpool_info, threadpool_limits

from oodzoo.core import threads as _threads
from oodzoo.core.errors import InputError
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads import linear
from oodzoo.linear.heads.linear import TOLERANCE, LinearHead, fit_head
from oodzoo.linear.heads.logistic import minimise
from oodzoo.linear.heads.paths import C_GRID


def standardised(samples: Samples) -> NDArray[np.float64]:
    features = samples.features.astype(np.float64)
    std = features.std(axis=0)
    result: NDArray[np.float64] = (features - features.mean(axis=0)) / np.where(std > 0, std, 1)
    return result


def in_standard_units(head: LinearHead, samples: Samples) -> NDArray[Any]:
    features = samples.features.astype(np.float64)
    weights = head.weights * features.std(axis=0)
    bias = head.bias + head.weights @ features.mean(axis=0)
    return np.column_stack([weights, bias - bias.mean()])  # a shift of all biases changes nothing


@settings(max_examples=25, deadline=None)
@given(
    shape=st.sampled_from([(60, 5), (30, 80), (40, 1), (24, 24)]),
    n_classes=st.integers(2, 4),
    C=st.sampled_from([1e-4, 1e-2, 0.3]),
    seed=st.integers(0, 99),
)
def test_minimises_the_written_objective(
    shape: tuple[int, int], n_classes: int, C: float, seed: int
) -> None:
    samples = planted(*shape, n_classes, 2, seed)
    head = fit_head(samples, n_classes, C=C)
    X, y = standardised(samples), samples.labels
    best = minimum(X, y, C, n_classes)
    found = in_standard_units(head, samples)
    # J bends by 1/C at least: where its gradient is small, so is what can be gained, and the way.
    at_zero = (1 / n_classes - np.eye(n_classes)[y]).T @ np.column_stack([X, np.ones(len(X))])
    gradient = TOLERANCE * np.linalg.norm(at_zero)
    least = objective(best[:, :-1], best[:, -1], X, y, C)
    reached = objective(found[:, :-1], found[:, -1], X, y, C)
    # The penalty bounds the curvature of the weights from below, not that of the bias: hence the 4.
    assert reached <= least + 4 * C * gradient**2 + 1e-4 * least
    assert np.linalg.norm(found[:, :-1] - best[:, :-1]) <= 4 * C * gradient + 1e-3


@pytest.mark.parametrize(("n", "d"), [(90, 8), (60, 100)])
def test_strength_is_that_of_leaving_domains_out(n: int, d: int) -> None:
    samples = planted(n, d, 3, 3, seed=5)
    X = standardised(samples)
    values = []
    for C in C_GRID:
        right, likelihood = [], []
        for domain in range(3):
            train = samples.domains != domain
            both = minimum(X[train], samples.labels[train], C, 3)
            outputs, labels = X[~train] @ both[:, :-1].T + both[:, -1], samples.labels[~train]
            probabilities = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
            right.append(np.mean(outputs.argmax(axis=1) == labels))
            likelihood.append(np.mean(np.log(probabilities[np.arange(len(labels)), labels])))
        values.append((float(np.mean(right)), float(np.mean(likelihood))))
    best = max(accuracy for accuracy, _ in values)
    least = best - np.sqrt(best * (1 - best) / n) - 1e-9
    good = {v: s for v, s in zip(values, C_GRID, strict=True) if v[0] >= least}
    chosen = fit_head(samples, 3).C
    assert chosen == good[max(good, key=lambda value: value[1])]


def test_among_equals_the_greatest_likelihood_in_whatever_order() -> None:
    """Every penalty separates these classes; the weakest is the surest of what is right."""
    labels, domains = np.array([0, 1] * 10), np.repeat([0, 1], 10)
    samples = Samples((10.0 * labels[:, None]).astype(np.float32), labels, domains)
    assert fit_head(samples, 2, Cs=(1.0, 0.1, 10.0)).C == 10.0
    # Of which some are wrong in one domain: too sure is then less likely.
    flipped = np.where(np.arange(20) < 4, 1 - labels, labels)
    assert fit_head(samples._replace(labels=flipped), 2, Cs=(1e-2, 1e3)).C == 1e-2


def test_both_forms_agree() -> None:
    """One feature more or less than samples changes the form, and constant ones nothing else."""
    samples = planted(40, 30, 3, 2)
    wide = Samples(np.hstack([samples.features, np.full((40, 20), 7, np.float32)]), *samples[1:])
    narrow, broad = fit_head(samples, 3, C=0.1), fit_head(wide, 3, C=0.1)
    np.testing.assert_allclose(
        broad.logits(wide.features), narrow.logits(samples.features), atol=2e-3
    )


def test_a_constant_feature_has_no_weight() -> None:
    samples = planted(40, 4, 2, 2)
    samples.features[:, 2] = 0.1
    head = fit_head(samples, 2)
    assert not head.weights[:, 2].any()
    assert np.isfinite(head.weights).all()


def test_nothing_varies() -> None:
    labels = np.array([0, 0, 0, 1])
    samples = Samples(np.ones((4, 3), np.float32), labels, np.array([0, 0, 1, 1]))
    probabilities = fit_head(samples, 2, C=1.0).probabilities(samples.features)
    np.testing.assert_allclose(probabilities, np.tile([0.75, 0.25], (4, 1)), atol=1e-3)


def test_units_do_not_matter() -> None:
    samples = planted(50, 6, 3, 2)
    other = Samples((samples.features * 1024 - 5).astype(np.float32), *samples[1:])
    one, two = fit_head(samples, 3), fit_head(other, 3)
    assert one.C == two.C
    np.testing.assert_allclose(
        one.probabilities(samples.features), two.probabilities(other.features), atol=1e-3
    )


def test_a_class_without_samples_is_never_predicted() -> None:
    samples = planted(40, 5, 2, 2)
    head = fit_head(samples, 4)
    probabilities = head.probabilities(samples.features)
    assert not probabilities[:, 2:].any()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_nothing_to_choose_by() -> None:
    """One sample of each class in one domain: no part can be left out and predicted."""
    samples = Samples(np.eye(3, dtype=np.float32), np.arange(3), np.zeros(3, np.int64))
    chosen = fit_head(samples, 3).C
    assert chosen == C_GRID[0]


def test_folds_of_a_single_domain_keep_groups_whole() -> None:
    """Copies of samples in other folds would make the weakest penalty look best."""
    rng = np.random.default_rng(0)
    labels = np.tile([0, 1], 20)
    features = rng.normal(size=(40, 30)) + 0.3 * labels[:, None]
    samples = Samples(
        np.repeat(features, 5, axis=0).astype(np.float32),
        np.repeat(labels, 5),
        np.zeros(200, np.int64),
    )
    groups = np.repeat(np.arange(40), 5).tolist()
    alone = Samples(features.astype(np.float32), labels, np.zeros(40, np.int64))
    assert C_GRID[-1] == fit_head(samples, 2).C
    assert C_GRID[-1] > fit_head(samples, 2, groups=groups).C
    assert fit_head(alone, 2, groups=[None] * 40).C == fit_head(alone, 2).C


def test_without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where features are too many to be copied, all is done in float32 on all rows."""
    samples = planted(80, 6, 3, 3)
    copied = fit_head(samples, 3)
    monkeypatch.setattr("oodzoo.linear.heads.linear._COPY_BYTES", 0)
    found = fit_head(samples, 3)
    assert found.C == copied.C
    np.testing.assert_allclose(
        found.probabilities(samples.features), copied.probabilities(samples.features), atol=2e-3
    )


def test_what_cannot_be_fitted() -> None:
    samples = planted(20, 3, 3, 2)
    with pytest.raises(InputError, match="labels of 2 classes must be 0 to 1, got 0 to 2"):
        fit_head(samples, 2)
    with pytest.raises(InputError, match=r"C must be one or more numbers above 0, got \[-1.0\]"):
        fit_head(samples, 3, C=-1.0)
    with pytest.raises(InputError, match=r"C must be one or more numbers above 0, got \[\]"):
        fit_head(samples, 3, Cs=())
    with pytest.raises(InputError, match=r"got shape \(20, 3\), 19 labels, 20 domains"):
        fit_head(Samples(samples.features, samples.labels[1:], samples.domains), 3)


@pytest.mark.parametrize(("large", "threads"), [(2**25, {1}), (0, {2})])
def test_small_problems_use_one_blas_thread(
    large: int, threads: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[int] = set()

    def observed(*arguments: Any, **options: Any) -> Any:
        seen.update(pool["num_threads"] for pool in _blas_pools())
        return minimise(*arguments, **options)

    monkeypatch.setattr(_threads, "LARGE", large)
    monkeypatch.setattr(linear, "minimise", observed)
    with threadpool_limits(2, user_api="blas"):
        if any(pool["num_threads"] != 2 for pool in _blas_pools()):
            pytest.skip("this BLAS cannot use two threads")
        fit_head(planted(40, 4, 2, 2), 2, C=0.1)
    assert seen == threads


def _blas_pools() -> list[dict[str, Any]]:
    return [pool for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.mark.parametrize("size", [1e300, 1e-160])
def test_features_too_large_or_too_small(size: float) -> None:
    samples = planted(20, 3, 2, 2)
    wide = np.asarray(samples.features, np.float64)
    with pytest.raises(InputError, match="features: the largest value is"):
        fit_head(samples._replace(features=size * wide / np.abs(wide).max()), 2)
