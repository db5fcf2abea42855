"""Discriminability against the paper's literal formulae."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.oracles import bayes
from tests.ranking.data import CASES, Data, folds_of, simulate_domains

from oodzoo.evidence import Spectrum, decompose, maximise_evidence
from oodzoo.ranking.folds import Fold
from oodzoo.ranking.zood import discriminability


@pytest.mark.parametrize("case", CASES)
def test_equals_the_evidence_ratio_and_the_remark(case: str) -> None:
    data = CASES[case]()
    for fold in folds_of(data):
        Phi_i, y_i = data[fold.domain]
        Phi = np.vstack([data[name][0] for name in data if name != fold.domain])
        y = np.concatenate([data[name][1] for name in data if name != fold.domain])
        classes = np.unique(y)
        # With more features than samples, of some classes the noise is at its bound.
        for c in fold.unconverged:
            ridge = fold.alpha[c] / fold.beta[c]
            assert ridge == pytest.approx(bayes.least_ridge(Phi), rel=1e-6)
        assert case == "n < d" or not fold.unconverged
        assert fold.skipped == tuple(sorted({0, 1, 2} - set(classes.tolist())))
        Y_i, Y = bayes.one_hot(y_i, 3), bayes.one_hot(y, 3)

        def mean(
            formula: Any, Phi_i: Any = Phi_i, Phi: Any = Phi, Y_i: Any = Y_i, Y: Any = Y,
            fold: Fold = fold, classes: Any = classes,
        ) -> Any:  # fmt: skip
            values = [
                formula(Phi_i, Y_i[:, c], Phi, Y[:, c], fold.alpha[c], fold.beta[c])
                for c in classes
            ]
            return np.mean(values, axis=0)

        n_i = len(y_i)
        assert fold.discriminability == pytest.approx(mean(bayes.ratio) / n_i, rel=1e-8)
        assert fold.discriminability == pytest.approx(mean(bayes.remark) / n_i, rel=1e-8)
        marginals = mean(bayes.marginals)
        np.testing.assert_allclose(fold.label_log_density, marginals, rtol=1e-8, atol=1e-10)
        assert fold.label_spread == pytest.approx(np.std(marginals), rel=1e-7, abs=1e-12)

        np.testing.assert_array_equal(fold.labels, y_i)


# --- invariance ---------------------------------------------------------------------------------

quick = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 10_000)


def discriminabilities(data: Data) -> dict[str, float]:
    return {fold.domain: fold.discriminability for fold in folds_of(data)}


@given(seed=seeds)
@quick
def test_invariant_to_the_order_of_samples_classes_and_domains(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = simulate_domains([30, 20, 25], 6, seed=seed)
    expected = discriminabilities(data)
    samples = {name: rng.permutation(len(y)) for name, (_, y) in data.items()}
    names = rng.permutation(3)
    changed = {
        name: (data[name][0][samples[name]], names[data[name][1]][samples[name]])
        for name in rng.permutation(list(data))
    }
    assert discriminabilities(changed) == pytest.approx(expected, rel=1e-8)


@given(seed=seeds, d=st.sampled_from([5, 80]))
@quick
def test_invariant_to_rotation_and_to_a_common_scale(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    data = simulate_domains([30, 20, 25], d, seed=seed)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0] * 10 ** rng.uniform(-3, 3)
    changed = {name: (Phi @ rotation, y) for name, (Phi, y) in data.items()}
    assert discriminabilities(changed) == pytest.approx(discriminabilities(data), rel=1e-8)


# --- degenerate features: the decided answer ----------------------------------------------------


def noise_alone(y_i: NDArray[Any], y: NDArray[Any]) -> float:
    """Mean log-density of the labels under N(0, share of the class)."""
    terms = []
    for c in np.unique(y):
        variance = np.mean(y == c)
        share = np.mean(y_i == c)
        terms.append(-0.5 * (np.log(2 * np.pi * variance) + share / variance))
    return float(np.mean(terms))


def test_zero_features_leave_noise_alone() -> None:
    data = {name: (0 * Phi, y) for name, (Phi, y) in simulate_domains([60, 50, 40], 8).items()}
    for fold in folds_of(data):
        y = np.concatenate([data[name][1] for name in data if name != fold.domain])
        expected = noise_alone(data[fold.domain][1], y)
        assert fold.discriminability == pytest.approx(expected, rel=1e-9)
        assert np.isinf(fold.alpha).all()


def test_zero_features_in_training_alone_ignore_those_left_out() -> None:
    data = {name: (0 * Phi, y) for name, (Phi, y) in simulate_domains([60, 50, 40], 8).items()}
    data["c"] = simulate_domains([60, 50, 40], 8)["c"]
    fold = folds_of(data)[2]
    y = np.concatenate([data["a"][1], data["b"][1]])
    assert fold.discriminability == pytest.approx(noise_alone(data["c"][1], y), rel=1e-9)


def test_constant_features_are_worse_than_informative_ones() -> None:
    data = simulate_domains([60, 50, 40], 8)
    flat = {name: (np.full_like(Phi, 3.0), y) for name, (Phi, y) in data.items()}
    informative, constant = discriminabilities(data), discriminabilities(flat)
    for name, (_, y_i) in data.items():
        y = np.concatenate([data[other][1] for other in data if other != name])
        assert noise_alone(y_i, y) < constant[name] < informative[name]


def test_labels_as_features_are_as_good_as_the_noise_floor_allows() -> None:
    labels = {name: y for name, (_, y) in simulate_domains([60, 50, 40], 8).items()}
    folds = folds_of({name: (bayes.one_hot(y, 3), y) for name, y in labels.items()})
    for fold in folds:
        assert fold.metric == fold.second_metric == 1
        assert np.isfinite(fold.discriminability)
        assert fold.discriminability > 5


# --- the paper's Appendix B.5, simulated --------------------------------------------------------


def regression(Phi: NDArray[Any], y: NDArray[Any]) -> Spectrum:
    return decompose(Phi.T @ Phi, (Phi.T @ y)[:, None], np.array([y @ y]), len(y))[0]


def cross_domain_score(domains: list[tuple[Any, Any]], features: tuple[int, ...]) -> float:
    """Mean over held-out domains, for a continuous response and some of the features."""
    chosen = [(Phi[:, list(features)], y) for Phi, y in domains]
    union = regression(np.vstack([p for p, _ in chosen]), np.concatenate([y for _, y in chosen]))
    terms = []
    for i in range(len(chosen)):
        rest = chosen[:i] + chosen[i + 1 :]
        kept = regression(np.vstack([p for p, _ in rest]), np.concatenate([y for _, y in rest]))
        terms.append(discriminability(kept, union, maximise_evidence(kept)))
    return float(np.mean(terms))


def test_cross_domain_validation_selects_the_invariant_features() -> None:
    # Invariant features: orthogonal, the same in every domain. Specific ones: x_iv A + e, with A
    # drawn anew for each domain. The response depends on the invariant ones alone.
    invariant, specific, n, repeats = 3, 2, 100, 12
    d = invariant + specific
    subsets = list(chain.from_iterable(combinations(range(d), k) for k in range(1, d + 1)))
    scores = dict.fromkeys(subsets, 0.0)
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        X_iv = np.linalg.qr(rng.normal(size=(n, invariant)))[0] * np.sqrt(n)
        domains = []
        for _ in range(4):
            A = rng.normal(size=(invariant, specific))
            X_D = X_iv @ A + 0.5 * rng.normal(size=(n, specific))
            y = X_iv @ np.array([1.0, -1.5, 2.0]) + rng.normal(size=n)
            domains.append((np.hstack([X_iv, X_D]), y))
        for subset in subsets:
            scores[subset] += cross_domain_score(domains, subset) / repeats
    best = (0, 1, 2)
    others = {subset: score for subset, score in scores.items() if subset != best}
    assert scores[best] > max(others.values())
    # Dropping one costs much, adding one little, as in the appendix.
    dropped = [scores[best] - scores[s] for s in subsets if set(s) < set(best) and len(s) == 2]
    added = [scores[best] - scores[s] for s in subsets if set(s) > set(best) and len(s) == 4]
    assert min(dropped) > 0.1
    assert 0 < min(added) < max(added) < 0.1
