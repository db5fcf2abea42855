"""What the definitions imply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from tests.scores.data import FEATURES, Problem, close, few, problem, problems

DETERMINISTIC = sorted(set(FEATURES) - {"nleep"})  # the start of its fit depends on the order


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
        # a power of two changes no digit: EM of nleep may find another optimum after rounding
        "scale": lambda: 4 * X,
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
