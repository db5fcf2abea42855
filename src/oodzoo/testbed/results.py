"""Results of a test bed as a file that others can read, check and put beside theirs.

A result is a JSON object::

    schema             1
    data               name of the data set, and what else is known of it
    models             names of the models
    accuracy           percent, for each model
    scores             for each score: title, values (a number for each model, or null), models
                       (how many have it), weighted_tau, tau, interval, tau_interval, common,
                       regret, seconds
    indistinguishable  pairs of scores that cannot be told apart
    left_out           for a score, why models do not have it
    resamples, seed    of the intervals

What follows from the values is computed again when a file is read, so a file that contradicts
itself is refused.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from oodzoo._io import read_json, write_json
from oodzoo.errors import InputError
from oodzoo.testbed.bed import RESAMPLES, SCHEMA, SEED, Column, TestBed, judge

_AGREEMENT = 1e-6
"""To which correlations in a file must agree with those that its values give."""


def save(bed: TestBed, path: str | Path) -> None:
    """Write a test bed to a file, whole or not at all."""
    write_json(Path(path), bed.to_dict())


def load(path: str | Path) -> TestBed:
    """Read a test bed from a file, and check it."""
    where = f"the result {str(path)!r}"
    return verified(read_json(Path(path), "the result"), where)


def verified(content: dict[str, Any], where: str = "the result") -> TestBed:
    """A test bed from a JSON object; `where` names it in the message if it is wrong."""
    found = content.get("schema")
    if found != SCHEMA:
        newer = isinstance(found, int) and found > SCHEMA
        advice = "upgrade oodzoo" if newer else "make it with: oodzoo testbed STORE --out FILE"
        raise InputError(f"{where} has the schema {found!r}, this oodzoo reads {SCHEMA}; {advice}")
    data = _mapping(content, "data", where)
    if not isinstance(data.get("name"), str) or not data["name"]:
        raise InputError(f"{where}: 'data' needs the 'name' of the data set, a text")
    accuracy = _accuracy(content, where)
    scores = _mapping(content, "scores", where)
    if not scores:
        raise InputError(f"{where}: 'scores' is empty")
    bed = judge(
        data,
        accuracy,
        {name: _column(name, score, accuracy, where) for name, score in scores.items()},
        left_out=_left_out(content, where),
        resamples=_count(content, "resamples", RESAMPLES, where),
        seed=_count(content, "seed", SEED, where),
    )
    for name, score in scores.items():
        for part in ("weighted_tau", "tau"):
            stated, follows = score.get(part), getattr(bed.scores[name], part)
            if part in score and not _agree(stated, follows):
                raise InputError(
                    f"{where}: {part} of {name!r} is {stated!r}, and its values give {follows!r}; "
                    "one of them was changed"
                )
    return bed


def _accuracy(content: dict[str, Any], where: str) -> dict[str, float]:
    accuracy = _mapping(content, "accuracy", where)
    models = content.get("models")
    listed = isinstance(models, list) and all(isinstance(model, str) for model in models)
    if not isinstance(models, list) or not listed or sorted(models) != sorted(accuracy):
        raise InputError(f"{where}: 'models' must list the models that 'accuracy' has")
    if len(models) < 2:
        raise InputError(f"{where} has {len(models)} models; an order needs two at least")
    for model, value in accuracy.items():
        if not _is_number(value) or not 0 <= value <= 100:
            raise InputError(
                f"{where}: the accuracy of {model!r} must be a percentage, and is {value!r}"
            )
    return {model: float(accuracy[model]) for model in models}


def _column(name: str, score: Any, accuracy: dict[str, float], where: str) -> Column:
    if not isinstance(score, dict):
        raise InputError(f"{where}: the score {name!r} must be an object, and is {score!r}")
    values = _mapping(score, "values", f"{where}, score {name!r}")
    for model, value in values.items():
        if model not in accuracy:
            raise InputError(f"{where}: the score {name!r} has the unknown model {model!r}")
        if value is not None and not _is_number(value):
            raise InputError(
                f"{where}: the score {name!r} of {model!r} must be a number or null, and is "
                f"{value!r}"
            )
    title, seconds = score.get("title", ""), score.get("seconds")
    if not isinstance(title, str):
        raise InputError(f"{where}: the title of {name!r} must be a text, and is {title!r}")
    if seconds is not None and not _is_number(seconds):
        raise InputError(f"{where}: the seconds of {name!r} must be a number, and are {seconds!r}")
    return Column(values, title, seconds)


def _left_out(content: dict[str, Any], where: str) -> dict[str, dict[str, str]]:
    reasons = _mapping(content, "left_out", where) if "left_out" in content else {}
    for name, why in reasons.items():
        texts = why.values() if isinstance(why, dict) else [why]
        if not isinstance(why, dict) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{where}: 'left_out' of {name!r} must give reasons, and is {why!r}")
    return reasons


def _mapping(content: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = content.get(key)
    if not isinstance(value, dict):
        raise InputError(f"{where} needs an object {key!r}, and has {value!r}")
    return value


def _count(content: dict[str, Any], key: str, default: int, where: str) -> int:
    value = content.get(key, default)
    least = 1 if key == "resamples" else 0
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 1_000_000:
        raise InputError(
            f"{where}: {key!r} must be an integer from {least} to a million, and is {value!r}"
        )
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _agree(stated: Any, follows: float | None) -> bool:
    if stated is None or follows is None:
        return stated is follows
    return _is_number(stated) and abs(stated - follows) <= _AGREEMENT
