"""Options of public functions: few parameters, further keywords, and what an unknown one says."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import oodzoo
from oodzoo.core.limits import Limits, ModelLimits
from oodzoo.core.options import Compute
from oodzoo.ranking.racing import race

MOST = 12
PLACES: dict[str, Any] = {
    "oodzoo": oodzoo, "oodzoo.scores": oodzoo.scores, "oodzoo.testbed": oodzoo.testbed,
}  # fmt: skip
NOT_CALLED = ("oodzoo.Evaluation", "oodzoo.TestResult", "oodzoo.testbed.ScoreResult")
"""Results: what they are initialised with is what they consist of."""
ESTIMATORS = ("oodzoo.SpikeSlabSelector",)
"""Scikit-learn reads their parameters off the initialiser."""


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions and classes, and the public methods of classes, by their names."""
    for place, module in PLACES.items():
        for name in module.__all__:
            found = getattr(module, name)
            if callable(found):
                yield f"{place}.{name}", found
            for method in vars(found) if inspect.isclass(found) else ():
                if not method.startswith("_") and callable(body := getattr(found, method)):
                    yield f"{place}.{name}.{method}", body


PUBLIC = dict(public())
WITH_OPTIONS: tuple[Callable[..., Any], ...] = (
    *(oodzoo.evaluate, oodzoo.extract, oodzoo.fit, race, oodzoo.rank, oodzoo.select_features),
    oodzoo.RunConfig,
)


def further(function: Any) -> set[str]:
    """The keywords of `**options`."""
    body = function.__init__ if inspect.isclass(function) else function
    options = inspect.signature(body, eval_str=True).parameters["options"].annotation
    return set(options.__args__[0].__annotations__)


def test_public_functions_have_few_parameters() -> None:
    for name, body in PUBLIC.items():
        if name not in (*NOT_CALLED, *ESTIMATORS):
            parameters = [p for p in inspect.signature(body).parameters if p != "self"]
            assert len(parameters) <= MOST, name
    assert {f"oodzoo.{name}" for name in ("evaluate", "fit", "rank", "RunConfig")} <= PUBLIC.keys()


@pytest.mark.parametrize("function", WITH_OPTIONS)
def test_further_keywords_are_described(function: Any) -> None:
    described = inspect.getdoc(function) or ""
    for name in further(function):
        assert name in described, name
    assert further(function).isdisjoint(inspect.signature(function).parameters)


@pytest.mark.parametrize("function", WITH_OPTIONS)
def test_an_unknown_keyword_is_one_of_python(function: Any) -> None:
    given: list[Any] = [
        None for p in inspect.signature(function).parameters.values() if p.default is p.empty
    ][:-1]
    message = rf"^{function.__name__}\(\) got an unexpected keyword argument 'max_mss'$"
    with pytest.raises(TypeError, match=message):
        function(*given, max_mss=3)


def test_keywords_are_the_fields_of_the_options() -> None:
    def names(*kinds: Any) -> set[str]:
        return {field.name for kind in kinds for field in dataclasses.fields(kind)}

    limits = names(Limits)
    assert further(oodzoo.select_features) == limits
    assert further(oodzoo.rank) == names(ModelLimits) == limits - {"max_models"}
    where = names(Compute) - {"device"}
    assert further(oodzoo.RunConfig) == limits | where
    for function in (oodzoo.evaluate, oodzoo.fit):
        assert further(function) > limits | where
    assert further(oodzoo.extract) == further(race) > where
