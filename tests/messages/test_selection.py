"""What selectors say to parameters and data that cannot be used, in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from oodzoo import InputError, SpikeSlabSelector, select_features
from oodzoo.extraction.features import ArraySource
from oodzoo.linear.moments import Moments
from oodzoo.linear.selection.target_scale import TargetMoments

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 4))
Y = X[:, :2].sum(axis=1) + RNG.normal(size=20)
MOMENTS = TargetMoments.of(X, Y[:, None])


def put_nan() -> Any:
    changed = X.copy()
    changed[3, 1] = np.nan
    return changed


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"method": "fast"}, "unknown method 'fast'; expected one of "),
        ({"threshold": 1.0}, "threshold must be"),
        ({"tol": 0}, "tol must be positive"),
        ({"max_iter": 0}, "max_iter must be 1 or more"),
        ({"inclusion": 0.0}, "prior inclusion"),
        ({"spike": (5.0, -1.0)}, "prior spike"),
    ],
)
def test_parameters(parameters: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        SpikeSlabSelector(**parameters).fit(X, Y)


SELECTOR = SpikeSlabSelector
TOO_MANY_SQUARES = TargetMoments(
    20, MOMENTS.feature_sum, MOMENTS.gram, MOMENTS.products, MOMENTS.target_sum, np.ones(2)
)


@pytest.mark.parametrize(
    ("fit", "says"),
    [
        (lambda: SELECTOR().fit(put_nan(), Y), "NaN"),
        (lambda: SELECTOR().fit(np.eye(4), ["a"] * 4), r"of one class, 'a' \(4 samples\)"),
        (lambda: SELECTOR().fit(1e-160 * np.eye(4), [0, 1, 0, 1]), "X: the largest value is 1e"),
        (
            lambda: SELECTOR(task="classification").fit(X, np.stack([Y, Y], axis=1)),
            "must be one column, got 2 columns",
        ),
        (lambda: SELECTOR(task="regression").fit(X, ["a"] * 20), "must be numeric"),
        (
            lambda: SELECTOR().fit_moments(TargetMoments.of(put_nan(), Y[:, None])),
            "feature_sum contains NaN",
        ),
        (lambda: SELECTOR().fit_moments(Moments.of(np.ones((1, 2)), np.array([0]), 2)), "1 sample"),
        (lambda: SELECTOR(method="stochastic").fit_moments(MOMENTS), "samples, not moments"),
        (
            lambda: SELECTOR().fit_moments(MOMENTS, feature_names="abc"),
            "expected 4 feature names, got 3",
        ),
        (
            lambda: SELECTOR().fit_moments(TOO_MANY_SQUARES),
            r"squares must have the shape \(1,\), got \(2,\)",
        ),
    ],
)
def test_data(fit: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fit()


def test_warnings() -> None:
    with pytest.warns(UserWarning, match=r"no feature has .* keeping feature 0,"):
        selector = SELECTOR().fit(X, np.full(20, 0.1))
    assert selector.get_support(indices=True).tolist() == [0]
    wide = RNG.normal(size=(60, 50))
    with pytest.warns(ConvergenceWarning, match="after 3 iterations"):
        selector = SELECTOR(max_iter=3).fit(wide, wide[:, :20].sum(axis=1) + RNG.normal(size=60))
    assert (selector.n_iter_, selector.converged_) == (3, False)


LABELS, DOMAINS = np.tile([0, 1], 10), np.repeat(["a", "b"], 10)
SOURCE = ArraySource({"one": X, "two": X[:, :2]}, LABELS, DOMAINS)
BROKEN = ArraySource({"one": put_nan()}, LABELS, DOMAINS)


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ((SOURCE,), {"method": "lasso"}, "one of consistent, paper, got 'lasso'"),
        ((SOURCE, []), {}, "must be distinct"),
        ((SOURCE, ["one"]), {"top_k": 2}, "choose models; leave them out, or the names"),
        (({"one": X},), {}, "features must be a store or its path; give arrays as"),
        ((BROKEN,), {}, r"model 'one', domain 'a'.*NaN"),
        ((BROKEN,), {"method": "paper"}, r"model 'one', domain 'a'.*NaN"),
        (
            (ArraySource({"m": X}, np.where(LABELS, DOMAINS, "c"), DOMAINS), None, ["a"]),
            {"method": "consistent"},
            "needs two or more domains",
        ),
        (
            (ArraySource({"m": X}, np.where(DOMAINS == "a", LABELS, LABELS + 2), DOMAINS),),
            {},
            "no class is in two of the domains 'a', 'b'",
        ),
        (
            (ArraySource({"m": X}, np.where(DOMAINS == "b", 0, LABELS), DOMAINS), None, ["b"]),
            {},
            r"one class, 0 \(10 samples\)",
        ),
    ],
)
def test_selections(arguments: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        select_features(*arguments, **options)
    assert "\n" not in str(caught.value)
