"""Read and write the results of a test bed.

A result is a JSON object::

    schema              2
    data                name of the data set, and optionally more about it
    models              names of the models
    accuracy            accuracy of each model, in percent: mean over test domains
    accuracy_by_domain  the same on each test domain; empty if only the means are known
    scores              for each score: title, values (a number or null for each model),
                        values_by_domain (the same for each test domain, if they differ), models
                        (how many have it); means over test domains: regret, weighted_tau, tau,
                        interval, tau_interval, behind_best, common; by_domain and averaged: regret,
                        weighted_tau and tau on each test domain, and of the means
    indistinguishable   pairs of scores that are statistically tied
    left_out            for each score, the models that lack it and the reason
    resamples, seed     number and seed of the bootstrap resamples

Everything that follows from the values is recomputed when a file is read, and an inconsistent file
is rejected.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.io import json_bytes, read_json, require_schema, write_tidily
from oodzoo.core.text import count
from oodzoo.ranking.testbed.agreement import mean_of
from oodzoo.ranking.testbed.bed import RESAMPLES, SCHEMA, SEED, Column, TestBed, judge

_TOLERANCE = 1e-6
"""Largest difference between a value in a file and the recomputed one."""

_LARGEST = 1e300
"""Largest value: means of larger ones could overflow."""


def save(bed: TestBed, path: str | Path) -> None:
    """Write a test bed to a JSON file, atomically."""
    write_tidily(Path(path), json_bytes(bed.to_dict()))


def load(path: str | Path) -> TestBed:
    """Read a test bed from a JSON file and verify it."""
    return verified(read_json(Path(path), "the result"), f"the result {str(path)!r}")


def verified(content: dict[str, Any], context: str = "the result") -> TestBed:
    """Recompute a test bed from a JSON object; `context` names the object in error messages."""
    advice = "write it again with: oodzoo testbed STORE --out FILE"
    require_schema(content, SCHEMA, context, advice)
    data = _mapping(content, "data", context)
    if not isinstance(data.get("name"), str) or not data["name"]:
        raise InputError(f"{context}: 'data' must have the 'name' of the data set, a string")
    accuracy = _accuracy(content, context)
    by_domain = _accuracy_by_domain(content, accuracy, context)
    scores = _mapping(content, "scores", context)
    if not scores:
        raise InputError(f"{context}: 'scores' is empty")
    bed = judge(
        data,
        accuracy,
        {
            name: _column(name, score, accuracy, by_domain, context)
            for name, score in scores.items()
        },
        by_domain=by_domain,
        left_out=_left_out(content, context),
        resamples=_count(content, "resamples", RESAMPLES, context),
        seed=_count(content, "seed", SEED, context),
    )
    for name, score in scores.items():
        for part in ("regret", "weighted_tau", "tau"):
            stated, follows = score.get(part), getattr(bed.scores[name], part)
            if part in score and not _agree(stated, follows):
                raise InputError(
                    f"{context}: {part} of {name!r} is {stated!r}, but its values give "
                    f"{follows!r}; the file was edited"
                )
    return bed


def _accuracy(content: dict[str, Any], context: str) -> dict[str, float]:
    accuracy = _mapping(content, "accuracy", context)
    models = content.get("models")
    listed = isinstance(models, list) and all(isinstance(model, str) for model in models)
    if not isinstance(models, list) or not listed or sorted(models) != sorted(accuracy):
        raise InputError(f"{context}: 'models' must list the models in 'accuracy'")
    if len(models) < 2:
        raise InputError(f"{context} has {count(len(models), 'model')}; at least 2 are needed")
    _require_percentages(accuracy, context)
    return {model: float(accuracy[model]) for model in models}


def _accuracy_by_domain(
    content: dict[str, Any], accuracy: dict[str, float], context: str
) -> dict[str, dict[str, float]]:
    by_domain = _optional_mapping(content, "accuracy_by_domain", context)
    for domain in by_domain:
        there = _mapping(by_domain, domain, f"{context}: 'accuracy_by_domain'")
        if set(there) != set(accuracy):
            raise InputError(f"{context}: the models of {domain!r} must be those in 'accuracy'")
        _require_percentages(there, f"{context}, domain {domain!r}")
    for model, stated in accuracy.items() if by_domain else ():
        mean = mean_of([there[model] for there in by_domain.values()])
        if not _agree(stated, mean):
            raise InputError(
                f"{context}: the accuracy of {model!r} is {stated!r}, but its mean over test "
                f"domains is {mean!r}; the file was edited"
            )
    return {d: {m: float(there[m]) for m in accuracy} for d, there in by_domain.items()}


def _require_percentages(accuracy: dict[str, Any], context: str) -> None:
    for model, value in accuracy.items():
        if not _is_number(value) or not 0 <= value <= 100:
            raise InputError(
                f"{context}: the accuracy of {model!r} must be a percentage, got {value!r}"
            )


def _column(
    name: str,
    score: Any,
    accuracy: dict[str, float],
    by_domain: dict[str, dict[str, float]],
    context: str,
) -> Column:
    if not isinstance(score, dict):
        raise InputError(f"{context}: the score {name!r} must be an object, got {score!r}")
    title = score.get("title", "")
    if not isinstance(title, str):
        raise InputError(f"{context}: the title of {name!r} must be a string, got {title!r}")
    where = f"{context}, score {name!r}"
    values = _mapping(score, "values", where)
    _require_values(values, accuracy, where)
    each = _optional_mapping(score, "values_by_domain", where)
    if not each:
        return Column(values, title)
    if set(each) != set(by_domain):
        raise InputError(
            f"{where}: 'values_by_domain' must have the domains of 'accuracy_by_domain'"
        )
    for domain in each:
        _require_values(_mapping(each, domain, f"{where}: 'values_by_domain'"), accuracy, where)
    averaged = Column.averaged(
        {domain: _complete(each[domain], accuracy) for domain in each}, title
    )
    for model, mean in averaged.values.items():
        if not _agree(values.get(model), mean):
            raise InputError(
                f"{where}: the value of {model!r} is {values.get(model)!r}, but its mean over test "
                f"domains is {mean!r}; the file was edited"
            )
    return averaged


def _complete(values: dict[str, Any], accuracy: dict[str, float]) -> dict[str, float | None]:
    return {model: values.get(model) for model in accuracy}


def _require_values(values: dict[str, Any], accuracy: dict[str, float], context: str) -> None:
    for model, value in values.items():
        if model not in accuracy:
            raise InputError(f"{context} has an unknown model {model!r}")
        if value is not None and not _is_number(value):
            raise InputError(
                f"{context}: the value of {model!r} must be a number or null, got {value!r}"
            )


def _left_out(content: dict[str, Any], context: str) -> dict[str, dict[str, str]]:
    reasons = _optional_mapping(content, "left_out", context)
    for name, why in reasons.items():
        if not isinstance(why, dict) or not all(isinstance(text, str) for text in why.values()):
            raise InputError(
                f"{context}: 'left_out' of {name!r} must map models to reasons, got {why!r}"
            )
    return reasons


def _mapping(content: dict[str, Any], key: str, context: str) -> dict[str, Any]:
    value = content.get(key)
    if not isinstance(value, dict):
        raise InputError(f"{context} must have an object {key!r}, got {value!r}")
    return value


def _optional_mapping(content: dict[str, Any], key: str, context: str) -> dict[str, Any]:
    return _mapping(content, key, context) if key in content else {}


def _count(content: dict[str, Any], key: str, default: int, context: str) -> int:
    value = content.get(key, default)
    least = 1 if key == "resamples" else 0
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 1_000_000:
        raise InputError(
            f"{context}: {key!r} must be an integer from {least} to 1,000,000, got {value!r}"
        )
    return value


def _is_number(value: Any) -> bool:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return numeric and abs(value) <= _LARGEST  # NaN is not


def _agree(stated: Any, follows: float | None) -> bool:
    if stated is None or follows is None:
        return stated is follows
    return _is_number(stated) and abs(stated - follows) <= _TOLERANCE * max(1.0, abs(follows))
