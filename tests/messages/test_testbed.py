"""What test beds say to results, tables and data that cannot be used, in one line."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.testbed.data import arrays, source

from oodzoo import InputError
from oodzoo.ranking.testbed.runner import read_timm_results, read_values
from oodzoo.testbed import Column, judge, load, run


@pytest.fixture
def usual_limit() -> Iterator[None]:
    """Of the length of a field: tables of texts raise it for the whole process."""
    before = csv.field_size_limit(2**17)
    yield
    csv.field_size_limit(before)


FEATURES, LABELS, DOMAINS = arrays()
BED = judge(
    {"name": "toy", "domains": ["a", "b"]},
    {"z": 50.0, "y": 60.0, "x": 75.5},
    {
        "one": Column.averaged(
            {"a": {"z": 1.0, "y": 2.0, "x": 3.0}, "b": {"z": 3.0, "y": 2.0, "x": 5.0}}, "One"
        ),
        "two": Column({"z": 1.0, "y": None, "x": 3.0}),
    },
    by_domain={"a": {"z": 40.0, "y": 70.0, "x": 75.0}, "b": {"z": 60.0, "y": 50.0, "x": 76.0}},
    left_out={"two": {"y": "no classifier head"}},
    resamples=50,
    seed=3,
)


def refused(says: str, function: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(InputError, match=says) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


Change = Callable[[dict[str, Any]], Any]
ONE: Callable[[dict[str, Any]], dict[str, Any]] = lambda c: c["scores"]["one"]  # noqa: E731


def written(folder: Path, change: Change) -> Path:
    content: dict[str, Any] = json.loads(json.dumps(BED.to_dict()))
    change(content)
    (folder / "r.json").write_text(json.dumps(content))
    return folder / "r.json"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.pop("schema"), "schema None, .* write it again with"),
        (lambda c: c["data"].pop("name"), "'data' must have the 'name'"),
        (lambda c: c.pop("accuracy"), "must have an object 'accuracy', got None"),
        (lambda c: c["accuracy"].update(z=float("nan")), "NaN|must be a percentage, got nan"),
        (lambda c: c["models"].pop(), "'models' must list the models"),
        (lambda c: c.update(models=["z"], accuracy={"z": 1}), "has 1 model; at least 2"),
        (lambda c: c.update(scores={}), "'scores' is empty"),
        (lambda c: ONE(c).pop("values"), "score 'one' must have an object 'values'"),
        (lambda c: ONE(c)["values"].update(w=1), "'one' has an unknown model 'w'"),
        (lambda c: ONE(c).update(title=4), "title of 'one' must be a string"),
        (lambda c: ONE(c).update(weighted_tau=None), "weighted_tau of 'one' is None"),
        (lambda c: ONE(c)["values"].update(z=9), "'z' is 9, but its mean .* 2.0; the fi"),
        (lambda c: c["accuracy"].update(z=51), "'z' is 51.0, but its mean .* 50.0; the file was"),
        (lambda c: c["accuracy_by_domain"].update(a=1), "must have an object 'a', got 1"),
        (lambda c: c["accuracy_by_domain"]["a"].pop("z"), "models of 'a' must be those in"),
        (lambda c: ONE(c)["values_by_domain"]["a"].update(z="1"), "null, got '1'"),
        (lambda c: c.update(resamples=0), "'resamples' must be an integer from 1"),
        (lambda c: c.update(seed=-1), "'seed' must be an integer from 0"),
        (lambda c: c.update(left_out=[1]), "must have an object 'left_out'"),
    ],
)
def test_results(change: Change, says: str, tmp_path: Path) -> None:
    path = written(tmp_path, change)
    assert refused(says, load, path).startswith(f"the result '{path}'")


@pytest.mark.parametrize(
    ("read", "content", "says"),
    [
        (read_values, "name,a\nbest,1\n", "must start with the line model,SCORE,…, got 'name,a'"),
        (read_values, "model,a,a\nbest,1,2\n", "duplicate score names: a, a"),
        (read_values, "model,a\nbest,1,2\n", "row 2: expected 2 cells, got 3"),
        (read_values, "model,a\nbest,x\n", "row 2: 'x' is not a number"),
        (read_values, "model,a\nbest,1\nbest,1\n", "row 3: duplicate model 'best'"),
        (read_timm_results, "model,top5\na,1\n", "columns model and top1, got 'model,top5'"),
        (read_timm_results, "model,top1\na,1\nb,101\n", "row 3: top1 must be a percentage, got"),
        (read_timm_results, "model,top1\na\n", "row 2: top1 must be a percentage, got None"),
        *((read, None, "cannot read") for read in (read_values, read_timm_results)),
        *((read, b"\xff\xfe\x00", "not a CSV file") for read in (read_values, read_timm_results)),
        *(
            (read, "model,top1\na," + "9" * 200_000, "is not a CSV file: field larger")
            for read in (read_values, read_timm_results)
        ),
    ],
)
def test_tables(
    read: Any, content: str | bytes | None, says: str, tmp_path: Path, usual_limit: None
) -> None:
    path = tmp_path / "t.csv"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert str(path) in refused(says, read, path)


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        ((dict(itertools.islice(FEATURES.items(), 2)), LABELS, DOMAINS), {}, "3 models, got 2"),
        ((source(2),), {}, "'unseen' needs at least 3 domains, got 2; with 2, use"),
        ((source(1),), {"protocol": "all"}, "'all' needs at least 2 domains, got 1"),
        ((FEATURES, ["cat"] * 135, DOMAINS), {}, r"one class, 'cat' \(135 samples\)"),
        (
            (FEATURES, np.arange(135) / 7, DOMAINS),
            {},
            "compares accuracies, but the task is 'regression'",
        ),
        *(
            ((source(),), {"values": {name: {model: value}}}, says)
            for name, model, value, says in (
                ("zood", "best", 1.0, "'zood' is reserved"),
                ("mine", "nobody", 1.0, "no such model: 'nobody'"),
                ("mine", "best", float("nan"), "value of 'best' is not finite: nan"),
                ("my own", "best", 1.0, "got 'my own'"),
            )
        ),
    ],
)
def test_runs(data: Any, options: dict[str, Any], says: str) -> None:
    refused(says, run, *data, **options)
