from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any

import pytest

from oodzoo import scores
from oodzoo.errors import InputError
from oodzoo.ranking.terms import FOLD_SCORES
from oodzoo.scores import registry
from oodzoo.task import KINDS

ALL = ("gbc", "h_score", "knn", "lda", "leep", "logme", "nce", "nleep", "parc",
       "regularized_h_score", "sfda", "transrate")  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_a_registration_fits_its_function(name: str) -> None:
    score = scores.get(name)
    assert score.function is getattr(scores, name)
    parameters = list(inspect.signature(score.function).parameters)
    first = {"features": "X", "probabilities": "source_probabilities"}.get(
        score.needs, "source_labels"
    )
    assert parameters[:2] == [first, "y"]
    assert (parameters[2:3] == ["domains"]) == score.uses_domains
    assert score.title
    assert score.reference.split(",")[0].split()[0] in (score.function.__doc__ or "")


def test_names() -> None:
    assert set(ALL) <= set(scores.names())
    assert list(scores.names()) == sorted(scores.names())


def test_an_unknown_name_gets_its_neighbours() -> None:
    with pytest.raises(InputError, match=r"unknown score 'log_me'; did you mean logme"):
        scores.get("log_me")
    with pytest.raises(
        InputError, match=r"unknown score 'zzzzzz'; expected one of .*gbc, .*transrate"
    ):
        scores.get("zzzzzz")


def test_a_score_is_added_by_a_function_and_one_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_SCORES", dict(registry._SCORES))
    mine = scores.Score("mine", lambda X, y: 1.0, "features", False, "nobody", "My own")
    assert scores.register(mine) is mine
    assert scores.get("mine") is mine
    assert "mine" in scores.names()
    with pytest.raises(ValueError, match="'mine' is already registered"):
        scores.register(mine)


def test_a_score_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        scores.get("leep").name = "other"  # type: ignore[misc]


def test_the_decorator_registers_and_leaves_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_SCORES", dict(registry._SCORES))

    @scores.score("mine", needs="source_labels", uses_domains=True, title="T", reference="R")
    def mine(labels: list[int], y: list[int], domains: list[str]) -> float:
        return 2.0

    assert mine([1], [1], ["a"]) == 2.0
    assert scores.get("mine") == scores.Score("mine", mine, "source_labels", True, "R", "T")
    scores.unregister("mine")
    assert "mine" not in scores.names()
    with pytest.raises(InputError, match="unknown score 'mine'"):
        scores.unregister("mine")


def test_names_that_cannot_be_given() -> None:
    with pytest.raises(ValueError, match="letters, digits and underscores, got 'my own'"):
        scores.register(scores.Score("my own", len))
    with pytest.raises(ValueError, match=r"unknown needs 'logits'; expected one of features, "):
        scores.register(scores.Score("mine", len, "logits"))  # type: ignore[arg-type]
    for name in (*FOLD_SCORES, "parameters", "feature_dim", "source_accuracy"):
        with pytest.raises(ValueError, match="is reserved"):
            scores.register(scores.Score(name, len))


def test_moments_are_of_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_SCORES", dict(registry._SCORES))
    with pytest.raises(ValueError, match="'mine': moments are of features, not probabilities"):
        scores.register(
            scores.Score("mine", len, "probabilities", from_moments=lambda moments, shards: 1.0)
        )
    scores.score("mine", from_moments=lambda moments, shards: 1.0)(len)
    assert scores.get("mine").from_moments is not None


class Object:
    def __call__(self, X: Any, y: Any) -> float:
        return 0.0


def two(X: Any, y: Any, k: int = 3) -> float:
    return 0.0


def three(X: Any, y: Any, where: Any) -> float:
    return 0.0


def either(X: Any, y: Any, domains: Any = None, k: int = 3) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("function", "name", "uses_domains"),
    [
        (two, "two", False),
        (three, "three", True),
        (either, "either", True),
        (functools.partial(three, where=None), "three", False),
        (functools.partial(functools.partial(either), k=2), "either", True),
        (lambda X, y: 0.0, "lambda", False),
        (lambda *arguments: 0.0, "lambda", False),
        (Object(), "Object", False),
        (max, "max", False),
    ],
)
def test_a_score_of_a_function(function: Any, name: str, uses_domains: bool) -> None:
    score = scores.Score.of_function(function)
    assert score == scores.Score(name, function, uses_domains=uses_domains, tasks=KINDS)
    assert name not in scores.names()


def test_the_function_of_a_score_gives_the_score() -> None:
    assert scores.Score.of_function(scores.knn) is scores.get("knn")


def test_functions_that_are_no_score() -> None:
    def one(X: Any) -> float:
        return 0.0

    def keyword(X: Any, y: Any, *, domains: Any) -> float:
        return 0.0

    def logme(X: Any, y: Any) -> float:
        return 0.0

    with pytest.raises(InputError, match=r"^score must be a name or a function .*, got 3$"):
        scores.Score.of_function(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^the score function 'one' must take \(X, y\) or .* got"):
        scores.Score.of_function(one)
    with pytest.raises(InputError, match="the score function 'keyword' must take"):
        scores.Score.of_function(keyword)
    with pytest.raises(InputError, match=r"^there is a score called 'logme' already; rename"):
        scores.Score.of_function(logme)


def test_a_function_of_a_notebook_can_be_defined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_SCORES", dict(registry._SCORES))
    cell = "@score('mine')\ndef mine(X, y):\n    return {}\n"
    for value in (1.0, 2.0):
        exec(cell.format(value), {"__name__": "__main__", "score": scores.score})
    assert scores.get("mine").function([], []) == 2.0
    with pytest.raises(ValueError, match="'mine' is already registered"):
        exec(cell.format(3.0), {"__name__": "another", "score": scores.score})
    other = cell.replace("def mine", "def other").format(3.0)
    with pytest.raises(ValueError, match="'mine' is already registered"):
        exec(other, {"__name__": "__main__", "score": scores.score})
