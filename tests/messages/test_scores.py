"""What scores say to inputs that cannot be used, in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oodzoo import InputError, scores

X = np.arange(24.0).reshape(8, 3) % 7
Y = np.arange(8) % 2
DOMAINS = np.repeat(["day", "night"], 4)
OF_FEATURES = [name for name in scores.names() if scores.get(name).needs == "features"]
ANY_LABELS = [n for n in OF_FEATURES if "regression" in scores.get(n).tasks]


def refused(says: str, function: Any, *arguments: Any, **options: Any) -> None:
    with pytest.raises(InputError, match=says) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)


def put(value: float) -> Any:
    changed = X.copy()
    changed[5, 1] = value
    return changed


MIXED = np.array([1, "b"] * 4, dtype=object)
MISSING = np.array(["a", None] * 4, dtype=object)
FEATURES: list[tuple[Any, Any, str]] = [
    (put(np.nan), Y, "X is not finite: nan in row 5, column 1, 1 such value in all"),
    (put(np.inf), Y, "inf in row 5"),
    (X[:, 0], Y, r"X must be a matrix .* got shape \(8,\)"),
    (X[:, :0], Y, r"got shape \(8, 0\)"),
    (X[:1], Y[:1], "X has 1 row; at least two samples"),
    (X.astype(complex), Y, "X must be real numbers, got complex128"),
    (X.astype(str), Y, "X must be real numbers, got <U"),
    ([[1, 2], [3]], [0, 1], "X is not a matrix"),
]
CLASSES: list[tuple[Any, str]] = [
    (Y[:7], "y has 7 labels for 8 samples"),
    (Y[:, None], r"y must have shape \(n,\), one label per sample, got \(8, 1\)"),
    (["cat"] * 8, "y has only the value 'cat'; at least two"),
    (Y + 0.5, "y must be strings or integers, got 0.5"),
    (np.where(Y, np.nan, 1), "y must be strings or integers, got nan"),
    (MISSING, "y must be all strings or all integers, got None"),
    (MIXED, "y must be all strings or all integers, got 'b'"),
    (Y.astype("datetime64[s]"), "y must be strings or integers, got datetime64"),
]
ANY: list[tuple[Any, str]] = [
    (Y[:7], "y has 7 labels for 8 samples"),
    (["cat"] * 8, "all labels are of one class, 'cat'"),
    (np.full(8, 0.5), r"y is constant: 0.5 in all 8 samples"),
    (np.where(Y, np.nan, 1), r"y has no value in row 1 \(got nan\)"),
    (MISSING, r"y has no value in row 1 \(got None\)"),
    (MIXED, "y mixes strings and numbers: 'b' in row 1, 1 in"),
    (Y.astype("datetime64[s]"), "y must be strings or numbers, got datetime64"),
    (np.zeros((8, 2, 2)), r"y must have one value per sample, .* got shape \(8, 2, 2\)"),
    (np.arange(214).repeat(2), r"214 different integers in 428 samples \(0, 1, 2, …\)"),
]


@pytest.mark.parametrize("name", OF_FEATURES)
def test_features_and_labels(name: str) -> None:
    score = scores.get(name)
    labels = ANY if name in ANY_LABELS else CLASSES
    for features, y, says in FEATURES + [(np.resize(X, (max(len(y), 8), 3)), *(y, says))
                                         for y, says in labels]:  # fmt: skip
        domains = [np.resize(DOMAINS, len(features))] if score.uses_domains else []
        refused(says, score.function, features, y, *domains)


@pytest.mark.parametrize(
    ("theta", "says"),
    [
        ([[0.5, 0.6], [0.5, 0.5]], "differs from one by 0.1"),
        ([[1.5, -0.5], [0.5, 0.5]], "negative value -0.5"),
        ([[np.nan, 1.0], [0.5, 0.5]], "source_probabilities is not finite"),
        ([[0.5, 0.5]] * 3, "y has 2 labels for 3 samples"),
    ],
)
def test_probabilities(theta: Any, says: str) -> None:
    refused(says, scores.leep, theta, [0, 1])


@pytest.mark.parametrize(
    ("source", "y", "says"),
    [
        ([0], [1], "y has 1 label; at least two samples"),
        ([[0], [0, 1]], [0, 1], "source_labels is not a list of labels"),
    ],
)
def test_source_labels(source: Any, y: Any, says: str) -> None:
    refused(says, scores.nce, source, y)


@pytest.mark.parametrize(
    ("texts", "y", "says"),
    [(np.eye(2), ["a", "b", "a"], "got 'a'"), (np.ones(2), [0, 1, 0], r"got \(2,\)")],
)
def test_class_embeddings(texts: Any, y: Any, says: str) -> None:
    refused(says, scores.zero_shot, np.ones((3, 2)), texts, y)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("gbc", {"covariance": "full"}, "unknown covariance 'full'; expected one of"),
        ("gbc", {"floor": 0}, "floor must be a number above 0, got 0"),
        ("gbc", {"n_components": 0}, "n_components must be at least 1 or None, got 0"),
        ("knn", {"domains": ["day"] * 8}, "domains has only the value 'day'"),
        ("knn", {"domains": DOMAINS, "k": 1.5}, "k must be an integer of at least 1, got 1.5"),
        ("knn", {"domains": DOMAINS, "temperature": 0}, "temperature must be a number above 0"),
        ("lda", {"domains": ["day", "night"]}, "domains has 2 labels for 8 samples"),
        ("lda", {"random_state": -1}, "random_state must be a non-negative integer, got -1"),
        ("logme", {"variant": "icml"}, "unknown variant 'icml'; expected one of exact, published"),
        ("nleep", {"n_components": 9}, "n_components must be .* number of samples, 8, got 9"),
        ("nleep", {"energy": 0}, r"energy must be in \(0, 1\], got 0"),
        ("nleep", {"covariance": "tied"}, "unknown covariance 'tied'; expected one of"),
        ("nleep", {"random_state": 0.5}, "random_state must be a non-negative integer, got 0.5"),
        ("parc", {"max_samples": 2}, "max_samples must be an integer of at least 3, got 2"),
        ("parc", {"y": list("abcdefgh")}, "all 28 pairs of samples have different classes"),
        ("sfda", {"a": float("nan")}, "a must be a number above 0, got nan"),
        ("transrate", {"eps": 0}, "eps must be a number above 0, got 0"),
    ],
)
def test_options(name: str, options: dict[str, Any], says: str) -> None:
    refused(says, scores.get(name).function, X, **({"y": Y} | options))


def one(X: Any) -> float:
    return 0.0


def logme(X: Any, y: Any) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (3, r"^score must be a name or a function .*, got 3$"),
        (one, r"^the score function 'one' must take \(X, y\) or .* got"),
        (logme, r"^there is a score called 'logme' already; rename"),
    ],
)
def test_functions_that_are_no_score(function: Any, says: str) -> None:
    refused(says, scores.Score.of_function, function)
