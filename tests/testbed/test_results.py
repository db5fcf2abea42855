"""Result files: written, read, verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oodzoo.errors import InputError
from oodzoo.testbed import Column, judge, load, save
from oodzoo.testbed.results import verified

BY_DOMAIN = {"a": {"z": 40.0, "y": 70.0, "x": 75.0}, "b": {"z": 60.0, "y": 50.0, "x": 76.0}}
BED = judge(
    {"name": "toy", "domains": ["a", "b"]},
    {"z": 50.0, "y": 60.0, "x": 75.5},
    {
        "one": Column.averaged(
            {"a": {"z": 1.0, "y": 2.0, "x": 3.0}, "b": {"z": 3.0, "y": 2.0, "x": 5.0}}, "One"
        ),
        "two": Column({"z": 1.0, "y": None, "x": 3.0}),
    },
    by_domain=BY_DOMAIN,
    left_out={"two": {"y": "no classifier head"}},
    resamples=50,
    seed=3,
)


def test_a_result_survives_a_file(tmp_path: Path) -> None:
    save(BED, tmp_path / "deep" / "result.json")
    again = load(tmp_path / "deep" / "result.json")
    assert again == BED
    assert again.models == ("z", "y", "x")


def test_the_document_has_the_documented_keys() -> None:
    content = BED.to_dict()
    assert content["schema"] == 2
    assert content["models"] == ["z", "y", "x"]
    assert content["accuracy"]["x"] == 75.5
    one = content["scores"]["one"]
    assert set(one) >= {
        *("values", "weighted_tau", "tau", "interval", "regret", "models", "title"),
        *("by_domain", "averaged", "values_by_domain", "behind_best"),
    }
    assert one["by_domain"]["b"]["regret"] == 0
    assert content["accuracy_by_domain"] == BY_DOMAIN
    assert content["scores"]["two"]["values"]["y"] is None
    assert content["indistinguishable"] == [["one", "two"]]
    json.dumps(content, allow_nan=False)


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(BED.to_dict()))
    change(content)
    return content


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(schema=3), "schema 3, .* reads 2; upgrade"),
        (lambda c: c.pop("schema"), "schema None, .* write it again with"),
        (lambda c: c["data"].pop("name"), "'data' must have the 'name'"),
        (lambda c: c.update(data=3), "must have an object 'data', got 3"),
        (lambda c: c.pop("accuracy"), "must have an object 'accuracy', got None"),
        (lambda c: c["accuracy"].update(z=101), "accuracy of 'z' must be a percentage, got 101"),
        (lambda c: c["accuracy"].update(z="50"), "must be a percentage, got '50'"),
        (lambda c: c["accuracy"].update(z=float("nan")), "must be a percentage, got nan"),
        (lambda c: c["accuracy"].update(z=True), "must be a percentage, got True"),
        (lambda c: c["models"].pop(), "'models' must list the models"),
        (lambda c: c.update(models=[1, 2, 3]), "'models' must list the models"),
        (lambda c: c.update(models=["z"], accuracy={"z": 1}), "has 1 model; at least 2"),
        (lambda c: c.update(scores={}), "'scores' is empty"),
        (lambda c: c["scores"].update(one=7), "score 'one' must be an object, got 7"),
        (lambda c: c["scores"]["one"].pop("values"), "score 'one' must have an object 'values'"),
        (lambda c: c["scores"]["one"]["values"].update(w=1), "'one' has an unknown model 'w'"),
        (lambda c: c["scores"]["one"]["values"].update(z="a"), "a number or null, got 'a'"),
        (lambda c: c["scores"]["one"]["values"].update(z=float("inf")), "null, got inf"),
        (lambda c: c["scores"]["one"].update(title=4), "title of 'one' must be a string"),
        (lambda c: c["scores"]["one"].update(tau=0.5), "tau of 'one' is 0.5, but its values give"),
        (
            lambda c: c["scores"]["one"].update(regret=9),
            "regret of 'one' is 9, but its values give",
        ),
        (lambda c: c["scores"]["one"].update(weighted_tau=None), "weighted_tau of 'one' is None"),
        (
            lambda c: c["scores"]["one"]["values"].update(z=9),
            "'z' is 9, but its mean .* 2.0; the fi",
        ),
        (lambda c: c["scores"]["two"]["values"].update(z=9), "the file was edited"),
        (lambda c: c["accuracy"].update(z=51), "'z' is 51.0, but its mean .* 50.0; the file was"),
        (
            lambda c: c.update(accuracy_by_domain=1),
            "must have an object 'accuracy_by_domain', got 1",
        ),
        (lambda c: c["accuracy_by_domain"].update(a=1), "must have an object 'a', got 1"),
        (lambda c: c["accuracy_by_domain"]["a"].pop("z"), "models of 'a' must be those in"),
        (lambda c: c["accuracy_by_domain"]["a"].update(z=-1), "'a': the accuracy of 'z' must be a"),
        (lambda c: c["scores"]["one"]["values_by_domain"].pop("a"), "must have the domains of"),
        (lambda c: c["scores"]["one"]["values_by_domain"].update(a=3), "must have an object 'a'"),
        (lambda c: c["scores"]["one"]["values_by_domain"]["a"].update(z="1"), "null, got '1'"),
        (lambda c: c.update(resamples=0), "'resamples' must be an integer from 1"),
        (lambda c: c.update(seed=-1), "'seed' must be an integer from 0"),
        (lambda c: c.update(left_out=[1]), "must have an object 'left_out'"),
        (lambda c: c.update(left_out={"two": 1}), "'left_out' of 'two'"),
    ],
)
def test_an_invalid_result_is_rejected_in_one_line(change: Change, message: str) -> None:
    with pytest.raises(InputError, match=message) as rejected:
        verified(changed(change), "the result 'r.json'")
    assert str(rejected.value).startswith("the result 'r.json'")
    assert "\n" not in str(rejected.value)


def test_computed_keys_are_optional() -> None:
    content = changed(lambda c: [s.pop("tau") and s.pop("interval") for s in c["scores"].values()])
    assert verified(content) == BED


def test_a_file_of_the_first_schema_is_read() -> None:
    old = judge(
        {"name": "toy"},
        {"z": 50.0, "y": 60.0, "x": 75.5},
        {"one": Column({"z": 1.0, "y": 2.0, "x": 3.0}, "One")},
        resamples=50,
    )
    content = json.loads(json.dumps(old.to_dict())) | {"schema": 1}
    del content["accuracy_by_domain"]
    for new in ("behind_best", "averaged", "by_domain", "values_by_domain"):
        del content["scores"]["one"][new]
    content["scores"]["one"]["seconds"] = 1.5
    assert verified(content) == old


def test_a_missing_or_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the result"):
        load(tmp_path / "absent.json")
    (tmp_path / "r.json").write_text("{")
    with pytest.raises(InputError, match="is damaged"):
        load(tmp_path / "r.json")
