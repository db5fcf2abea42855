"""What the definitions imply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scores.data import Problem, problem

from oodzoo import scores

By = Callable[[Problem], float]

FEATURES: dict[str, By] = {
    "gbc": lambda p: scores.gbc(p.X, p.y),
    "gbc diagonal": lambda p: scores.gbc(p.X, p.y, covariance="diagonal", n_components=None),
    "h_score": lambda p: scores.h_score(p.X, p.y),
    "knn": lambda p: scores.knn(p.X, p.y, p.domains, k=3),
    "lda": lambda p: scores.lda(p.X, p.y, p.domains),
    "logme": lambda p: scores.logme(p.X, p.y),
    "logme published": lambda p: scores.logme(p.X, p.y, variant="published"),
    "nleep": lambda p: scores.nleep(p.X, p.y),
    "parc": lambda p: scores.parc(p.X, p.y),
    "regularized_h_score": lambda p: scores.regularized_h_score(p.X, p.y),
    "sfda": lambda p: scores.sfda(p.X, p.y),
    "transrate": lambda p: scores.transrate(p.X, p.y),
}
DETERMINISTIC = sorted(set(FEATURES) - {"nleep"})  # the start of its fit depends on the order

problems = st.builds(
    problem,
    n=st.integers(24, 60),
    d=st.integers(2, 70),
    n_classes=st.integers(2, 4),
    seed=st.integers(0, 10**6),
    separation=st.sampled_from([0.0, 0.5, 2.0]),
)
few = settings(max_examples=25, deadline=None)


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-6, abs=1e-8)


def rotation(d: int, seed: int) -> Any:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]


@pytest.mark.parametrize("name", DETERMINISTIC)
@few
@given(problems)
def test_the_order_of_samples_does_not_matter(name: str, p: Problem) -> None:
    order = np.random.default_rng(1).permutation(len(p.y))
    shuffled = Problem(p.X[order], p.y[order], p.domains[order])
    assert FEATURES[name](shuffled) == close(FEATURES[name](p))


@pytest.mark.parametrize("name", DETERMINISTIC)
@few
@given(problems)
def test_the_names_of_classes_do_not_matter(name: str, p: Problem) -> None:
    named = p._replace(y=np.array(["zebra", "ant", "yak", "bee"])[p.y])
    assert FEATURES[name](named) == close(FEATURES[name](p))


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_the_features_are_left_alone(name: str) -> None:
    p = problem(40, 12, 3)
    copies = [part.copy() for part in p]
    FEATURES[name](p)
    for part, copy in zip(p, copies, strict=True):
        assert np.array_equal(part, copy)


INVARIANCES = {
    "translation": ["gbc", "gbc diagonal", "h_score", "lda", "nleep", "parc",
                    "regularized_h_score", "sfda", "transrate"],
    "scale": ["gbc", "gbc diagonal", "h_score", "knn", "lda", "logme", "nleep", "parc",
              "regularized_h_score"],
    "rotation": ["gbc", "h_score", "knn", "lda", "logme", "logme published",
                 "regularized_h_score", "sfda", "transrate"],
    "units": ["h_score", "parc"],
    "linear map": ["h_score"],
    "length of a sample": ["knn"],
}  # fmt: skip


def change(X: Any, how: str) -> Any:
    n, d = X.shape
    rng = np.random.default_rng(2)
    changes: dict[str, Callable[[], Any]] = {
        "translation": lambda: X + rng.normal(size=d),
        "scale": lambda: 3.7 * X,
        "rotation": lambda: X @ rotation(d, 3),
        "units": lambda: X * rng.uniform(0.01, 100, size=d),
        "linear map": lambda: X @ (rotation(d, 4) * rng.uniform(0.5, 2, size=d)) @ rotation(d, 5),
        "length of a sample": lambda: X * rng.uniform(0.1, 10, size=(n, 1)),
    }
    return changes[how]()


@pytest.mark.parametrize(
    ("how", "name"), [(how, name) for how, names in INVARIANCES.items() for name in names]
)
@settings(max_examples=12, deadline=None)
@given(problems)
def test_what_does_not_matter_of_the_features(how: str, name: str, p: Problem) -> None:
    changed = p._replace(X=change(p.X, how))
    assert FEATURES[name](changed) == close(FEATURES[name](p))


@pytest.mark.parametrize("name", INVARIANCES["translation"])
def test_a_mean_far_from_zero_costs_few_digits(name: str) -> None:
    p = problem(60, 6, 3, separation=0.5)
    far = p._replace(X=p.X + 1e7)
    assert FEATURES[name](far) == pytest.approx(FEATURES[name](p), rel=1e-5)


@few
@given(problems)
def test_bounds(p: Problem) -> None:
    d, n_classes = p.X.shape[1], len(set(p.y))
    shares = np.bincount(p.y) / len(p.y)
    entropy = -float(shares @ np.log(shares))
    assert -1e-9 <= FEATURES["h_score"](p) <= min(n_classes - 1, d) + 1e-9
    assert FEATURES["regularized_h_score"](p) >= -1e-9
    assert FEATURES["transrate"](p) >= -1e-9
    assert -n_classes * (n_classes - 1) <= FEATURES["gbc"](p) <= 0
    assert -100 <= FEATURES["parc"](p) <= 100
    assert 0 <= FEATURES["knn"](p) <= 1
    assert 0 <= FEATURES["lda"](p) <= 1
    assert FEATURES["sfda"](p) <= 0
    assert -entropy - 1e-9 <= FEATURES["nleep"](p) <= 0


@few
@given(problems, st.integers(1, 6), st.floats(0.01, 5))
def test_leep_lies_between_minus_the_entropy_and_zero(
    p: Problem, n_source: int, evenness: float
) -> None:
    theta = np.random.default_rng(0).dirichlet(np.full(n_source, evenness), size=len(p.y))
    shares = np.bincount(p.y) / len(p.y)
    assert float(shares @ np.log(shares)) - 1e-9 <= scores.leep(theta, p.y) <= 0


@few
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_leep_of_certain_sources_is_nce(seed: int, n_source: int) -> None:
    rng = np.random.default_rng(seed)
    source, y = rng.integers(n_source, size=30), np.arange(30) % 3
    assert scores.leep(np.eye(n_source)[source], y) == close(scores.nce(source, y))


@few
@given(st.integers(0, 10**6))
def test_knowing_more_of_the_source_leaves_less_open(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, coarse, more = rng.integers(3, size=(3, 40))
    fine = 3 * coarse + more
    assert scores.nce(coarse, y) <= scores.nce(fine, y) + 1e-12 <= 2e-12


@few
@given(st.integers(0, 10**6), st.floats(0, 1))
def test_leep_falls_as_all_probabilities_grow_alike(seed: int, share: float) -> None:
    """Certain and right sources, mixed with what is the same for all samples."""
    y = np.random.default_rng(seed).permutation(np.arange(30) % 3)
    mixed = (1 - share) * np.eye(3)[y] + share / 3
    more = (1 - share / 2) * np.eye(3)[y] + share / 6
    assert scores.leep(mixed, y) <= scores.leep(more, y) + 1e-12


@few
@given(problems, st.integers(1, 5))
def test_h_score_grows_with_features(p: Problem, more: int) -> None:
    extra = np.random.default_rng(0).normal(size=(len(p.y), more))
    wider = p._replace(X=np.hstack([p.X, extra]))
    assert FEATURES["h_score"](wider) >= FEATURES["h_score"](p) - 1e-7


@few
@given(problems)
def test_gbc_grows_as_classes_part(p: Problem) -> None:
    """Each class moved off on an axis of its own, all features kept."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(len(p.y), 4))
    near, far = (
        scores.gbc(np.hstack([p.X, own + gap * np.eye(4)[p.y]]), p.y, n_components=None, floor=1e-9)
        for gap in (0, 100)
    )
    assert near < far <= 0


@pytest.mark.parametrize("n", [60, 5])
def test_a_repeated_feature_changes_nothing_in_h_score(n: int) -> None:
    p = problem(n, 6, 2)
    twice = p._replace(X=np.hstack([p.X, p.X[:, :1]]))
    assert FEATURES["h_score"](twice) == close(FEATURES["h_score"](p))
