"""What rankings say to inputs that cannot be used, in one line; and constraints on models."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from tests.ranking.data import simulate_models
from tests.ranking.test_tasks import models

import oodzoo
from oodzoo import InputError
from oodzoo.core.limits import Limits
from oodzoo.extraction.features import ArraySource, ModelFacts
from oodzoo.ranking.constraints import apply

F, Y, D = simulate_models({"a": 0.5, "b": 1.0})
NUMBERS, LABELS = models("regression"), models("multilabel")


def refused(says: str, function: Any, *arguments: Any, **options: Any) -> None:
    with pytest.raises(InputError, match=says) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)


def put(value: float) -> Any:
    changed = F["a"].copy()
    changed[3, 2] = value
    return {"a": changed}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ((F, Y, None), "need the label"),
        ((F["a"], Y, D), "features must be a dict .* got ndarray"),
        (({"a": F["a"][:, 0]}, Y, D), r"must be \(n, d\)"),
        ((put(np.nan), Y, D), "'a', domain 'd0'.*is NaN"),
        ((F, Y, np.full(len(Y), "x")), "at least 2 domains are needed .* got 1: 'x'"),
        ((F, Y + 0.5, D), "could be classes or numbers to predict; say which with"),
        ((F, [None, *Y.astype(str)[1:]], D), "got None"),
        (({"a": [[1.0], [1.0, 2.0]]}, Y, D), "are not an array"),
        (({"domains": F["a"]}, Y, D[:-1]), "'domains' has 159"),
        (
            (NUMBERS[0], NUMBERS[1] * [1, 1, 0] + [0, 0, 5], NUMBERS[2]),
            r"y \('y2'\) is constant: 5 in all 120 samples",
        ),
        (
            (NUMBERS[0], np.where(NUMBERS[1][3, 1] == NUMBERS[1], np.nan, NUMBERS[1]), NUMBERS[2]),
            r"y has no value in row 3 \(got nan\)",
        ),
    ],
)
def test_data(data: Any, says: str) -> None:
    refused(says, oodzoo.rank, *data)


TARGET = dict.fromkeys(F, F["a"][:30])


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        ((F, Y, D), {"stability": "mild"}, "'mild'; expected one of robust, paper"),
        *(
            ((F, Y, D), {"score": score, "target": TARGET}, f"score 'unseen' only, got '{score}'")
            for score in ("zood", "transfer", "logme")
        ),
        (NUMBERS, {"score": "accuracy"}, "explained_variance, logme"),
        (NUMBERS, {"score": "knn"}, "is not for labels of the kind regression; use one of unseen"),
        (LABELS, {"score": "h_score", "task": "multilabel"}, "exact_match, logme"),
        (LABELS, {"score": "explained_variance", "task": "multilabel"}, "of the kind multilabel"),
        (NUMBERS, {"target": TARGET}, "images of the target are used for classes only"),
        ((F, Y, D), {"score": lambda X, y: np.nan}, "must be a finite number, got nan"),
        ((F, Y, D), {"score": lambda X, y: 1 / 0}, "ZeroDivisionError: division by zero"),
        *(
            ((F, Y, D), {"domain_weights": weights}, says)
            for weights, says in (
                ({"d": 1}, "unknown domain 'd'; did you mean d"),
                ({"d0": -1}, "domain 'd0' must be a finite number of at least 0, got -1"),
                (dict.fromkeys(("d0", "d1", "d2", "d3"), 0.0), "all domains are 0"),
                ([1, 1, 1], "must be a dict {domain: weight}, got list"),
            )
        ),
    ],
)
def test_options(data: Any, options: dict[str, Any], says: str) -> None:
    refused(says, oodzoo.rank, *data, **options)


class Described(ArraySource):
    """Arrays of models with these facts."""

    def __init__(self, facts: dict[str, ModelFacts]) -> None:
        super().__init__(dict.fromkeys(facts, np.zeros((2, 1))), [0, 1], ["a", "b"])
        self._facts = facts

    def facts(self, model: str) -> ModelFacts:
        return self._facts[model]


ZOO = Described(
    {
        "small": ModelFacts(8, 5_000_000, 12.345, "mit"),
        "large": ModelFacts(8, 90_000_000, 80.0, "Apache-2.0"),
        "quick": ModelFacts(8, 20_000_000, 14.0, "CC-BY-NC-4.0"),
        "unmeasured": ModelFacts(8, 6_000_000, None, "mit"),
        "unknown": ModelFacts(8),
    }
)


def test_limits_may_be_text_and_the_first_violated_one_is_the_reason() -> None:
    for limit in (20e6, "20M", " 20m ", "20000K", "0.02B", "2e7"):
        kept, dropped = apply(ZOO, Limits(max_parameters=limit))
        assert list(kept) == ["small", "quick", "unmeasured"]
        assert dropped == {
            "large": f"more than {limit} parameters", "unknown": "number of parameters unknown"
        }  # fmt: skip
    for licence, expected in (
        ("MIT, apache-2.0", ["small", "large", "unmeasured"]),
        (["apache-*", "cc-by-*"], ["large", "quick"]),
    ):
        assert list(apply(ZOO, Limits(licence=licence))[0]) == expected
    assert apply(ZOO, Limits(max_ms=20, licence="mit"))[1] == {
        "large": "more than 20 ms per image", "quick": "licence other than mit",
        "unmeasured": "time per image unknown", "unknown": "time per image unknown",
    }  # fmt: skip


def test_constraints_that_cannot_be_met() -> None:
    for values, says in (
        ({"max_ms": 10}, "--max-ms 10: the fastest, 'small', takes 12.35 ms"),
        ({"licence": "gpl*,bsd"},
         r"--licence gpl\*,bsd: licences are Apache-2.0, CC-BY-NC-4.0, mit"),
        ({"max_ms": 13, "max_parameters": "30M", "licence": "apache-2.0"},
         "all constraints: 1 of 5 meet --max-ms 13, 3 of 5 meet --max-parameters 30M, 1 of .*"),
    ):  # fmt: skip
        refused(f"^no model meets {says}$", apply, ZOO, Limits(**values))
    for name, wrong in {
        "max_ms": (0, math.nan, math.inf, True, "10"),
        "max_parameters": (0, math.nan, True, "M", "25Q", "-3M", "nanM"),
        "licence": (" ", "mit,,bsd", [], [None]),
    }.items():
        for value in wrong:
            refused(rf"^{name} must be.*got {re.escape(repr(value))}$", Limits, **{name: value})
