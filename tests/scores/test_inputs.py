"""What a score says to inputs that cannot be used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oodzoo import scores
from oodzoo.errors import InputError

X = np.arange(24.0).reshape(8, 3) % 7
Y = np.arange(8) % 2
DOMAINS = np.repeat(["day", "night"], 4)


def of_features(name: str, X: Any, y: Any) -> float:
    score = scores.get(name)
    return score.function(X, y, DOMAINS[: len(X)]) if score.uses_domains else score.function(X, y)


FEATURE_SCORES = [name for name in scores.names() if scores.get(name).needs == "features"]
ANY_LABELS = [n for n in FEATURE_SCORES if "regression" in scores.get(n).tasks]
every_score = pytest.mark.parametrize("name", FEATURE_SCORES)


def put(value: float) -> Any:
    changed = X.copy()
    changed[5, 1] = value
    return changed


@every_score
@pytest.mark.parametrize(
    ("features", "y", "says"),
    [
        (put(np.nan), Y, "X is not finite: nan in row 5, column 1, 1 such value in all"),
        (put(np.inf), Y, "inf in row 5"),
        (X[:, 0], Y, r"X must be a matrix .* got shape \(8,\)"),
        (X[:, :0], Y, r"got shape \(8, 0\)"),
        (X[:1], Y[:1], "X has 1 row; at least two samples"),
        (X.astype(complex), Y, "X must be real numbers, got complex128"),
        (X.astype(str), Y, "X must be real numbers, got <U"),
        ([[1, 2], [3]], [0, 1], "X is not a matrix"),
        (X, Y[:7], "y has 7 labels for 8 samples"),
        (X, Y[:, None], r"y must have shape \(n,\), one label per sample, got \(8, 1\)"),
        (X, ["cat"] * 8, "y has only the value 'cat'; at least two"),
        (X, Y + 0.5, "y must be strings or integers, got 0.5"),
        (X, np.where(Y, np.nan, 1), "y must be strings or integers, got nan"),
        (
            X,
            np.array(["a", None] * 4, dtype=object),
            "y must be all strings or all integers, got None",
        ),
        (X, np.array([1, "b"] * 4, dtype=object), "y must be all strings or all integers, got 'b'"),
        (X, Y.astype("datetime64[s]"), "y must be strings or integers, got datetime64"),
    ],
)
def test_features_and_labels(name: str, features: Any, y: Any, says: str) -> None:
    if name in ANY_LABELS and says.startswith("y "):
        pytest.skip("takes labels of any kind; see below")
    with pytest.raises(InputError, match=says) as caught:
        of_features(name, features, y)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ANY_LABELS)
@pytest.mark.parametrize(
    ("y", "says"),
    [
        (Y[:7], "y has 7 labels for 8 samples"),
        (["cat"] * 8, "all labels are of one class, 'cat'"),
        (np.full(8, 0.5), r"y is constant: 0.5 in all 8 samples"),
        (np.where(Y, np.nan, 1), r"y has no value in row 1 \(got nan\)"),
        (np.array(["a", None] * 4, dtype=object), r"y has no value in row 1 \(got None\)"),
        (np.array([1, "b"] * 4, dtype=object), "y mixes strings and numbers: 'b' in row 1, 1 in"),
        (Y.astype("datetime64[s]"), "y must be strings or numbers, got datetime64"),
        (np.zeros((8, 2, 2)), r"y must have one value per sample, .* got shape \(8, 2, 2\)"),
    ],
)
def test_labels_of_any_kind(name: str, y: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        of_features(name, X, y)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("theta", "says"),
    [
        ([[0.5, 0.6], [0.5, 0.5]], "differs from one by 0.1"),
        ([[1.5, -0.5], [0.5, 0.5]], "negative value -0.5"),
        ([[np.nan, 1.0], [0.5, 0.5]], "source_probabilities is not finite"),
        ([0.5, 0.5], r"source_probabilities must be a matrix .* got shape \(2,\)"),
        ([[1.0]], "source_probabilities has 1 row"),
        ([[0.5, 0.5]] * 3, "y has 2 labels for 3 samples"),
    ],
)
def test_probabilities(theta: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        scores.leep(theta, [0, 1])


def test_probabilities_in_half_precision_are_normalised() -> None:
    theta = np.random.default_rng(0).dirichlet(np.ones(300), size=20)
    y = np.arange(20) % 2
    half = theta.astype(np.float16)
    assert abs(half.astype(float).sum(axis=1) - 1).max() > 1e-5
    assert scores.leep(half, y) == pytest.approx(scores.leep(theta, y), rel=1e-2)
    whole = np.array([[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]])
    short = whole * np.array([[1.0], [0.9995], [1.0005]])
    assert scores.leep(short, [0, 1, 1]) == pytest.approx(scores.leep(whole, [0, 1, 1]), rel=1e-12)


@pytest.mark.parametrize(
    ("source", "y", "says"),
    [
        ([0, 1, 2], [0, 1], "source_labels has 3 labels for 2 samples"),
        ([0, 1], [1, 1], "y has only the value 1"),
        ([0], [1], "y has 1 label; at least two samples"),
        ([0.5, 1], [0, 1], "source_labels must be strings or integers, got 0.5"),
    ],
)
def test_source_labels(source: Any, y: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        scores.nce(source, y)


@pytest.mark.parametrize("name", ["knn", "lda"])
@pytest.mark.parametrize(
    ("domains", "says"),
    [
        (["day"] * 8, "domains has only the value 'day'"),
        (["day", "night"], "domains has 2 labels for 8 samples"),
    ],
)
def test_domains(name: str, domains: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        scores.get(name).function(X, Y, domains)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("gbc", {"covariance": "full"}, "unknown covariance 'full'; expected one of"),
        ("gbc", {"floor": 0}, "floor must be a number above 0, got 0"),
        ("gbc", {"n_components": 0}, "n_components must be at least 1 or None, got 0"),
        ("knn", {"domains": DOMAINS, "k": 0}, "k must be an integer of at least 1, got 0"),
        ("knn", {"domains": DOMAINS, "k": 1.5}, "k must be an integer of at least 1, got 1.5"),
        (
            "knn",
            {"domains": DOMAINS, "temperature": 0},
            "temperature must be a number above 0, got 0",
        ),
        ("lda", {"random_state": -1}, "random_state must be a non-negative integer, got -1"),
        ("logme", {"variant": "icml"}, "unknown variant 'icml'; expected one of exact, published"),
        ("nleep", {"n_components": 9}, "n_components must be .* number of samples, 8, got 9"),
        ("nleep", {"energy": 0}, r"energy must be in \(0, 1\], got 0"),
        ("nleep", {"covariance": "tied"}, "unknown covariance 'tied'; expected one of"),
        ("nleep", {"random_state": 0.5}, "random_state must be a non-negative integer, got 0.5"),
        ("parc", {"max_samples": 2}, "max_samples must be an integer of at least 3, got 2"),
        ("sfda", {"a": float("nan")}, "a must be a number above 0, got nan"),
        ("transrate", {"eps": 0}, "eps must be a number above 0, got 0"),
    ],
)
def test_options(name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        scores.get(name).function(X, Y, **options)


@every_score
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int64, np.uint8, bool, list])
def test_kinds_of_numbers(name: str, kind: Any) -> None:
    given = X.tolist() if kind is list else X.astype(kind)
    expected = of_features(name, np.asarray(given, dtype=np.float64), Y)
    assert of_features(name, given, Y) == expected


@every_score
def test_kinds_of_labels(name: str) -> None:
    expected = of_features(name, X, Y)
    for y in (Y.tolist(), Y.astype(bool), Y.astype(np.uint8), Y.astype(float), Y + 10):
        assert of_features(name, X, y) == expected
    names = np.array(["ant", "bee"])[Y]
    for y in (names, names.tolist(), names.astype(object), names.astype(bytes)):
        assert of_features(name, X, y) == expected
    assert of_features(name, X, Y.astype(object)) == expected


@every_score
def test_read_only_features(name: str) -> None:
    locked = X.copy()
    locked.flags.writeable = False
    assert of_features(name, locked, Y) == of_features(name, X, Y)
