"""Result files: written, read, refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oodzoo.errors import InputError
from oodzoo.testbed import Column, from_dict, judge, load, save, to_dict

BED = judge(
    {"name": "toy", "domains": ["a", "b"]},
    {"z": 50.0, "y": 60.0, "x": 75.5},
    {
        "one": Column({"z": 1.0, "y": 2.0, "x": 3.0}, "One", 1.5),
        "two": Column({"z": 1.0, "y": None, "x": 3.0}),
    },
    left_out={"two": {"y": "it has no head"}},
    resamples=50,
    seed=3,
)


def test_a_result_survives_a_file(tmp_path: Path) -> None:
    save(BED, tmp_path / "deep" / "result.json")
    again = load(tmp_path / "deep" / "result.json")
    assert again == BED
    assert again.models == ("z", "y", "x")


def test_the_to_dict_has_what_others_rely_on() -> None:
    content = to_dict(BED)
    assert content["schema"] == 1
    assert content["models"] == ["z", "y", "x"]
    assert content["accuracy"]["x"] == 75.5
    one = content["scores"]["one"]
    assert set(one) >= {
        *("values", "weighted_tau", "tau", "interval", "regret", "seconds", "models", "title"),
    }
    assert content["scores"]["two"]["values"]["y"] is None
    assert content["indistinguishable"] == [["one", "two"]]
    json.dumps(content, allow_nan=False)


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(to_dict(BED)))
    change(content)
    return content


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda c: c.update(schema=2), "schema 2, this oodzoo reads 1; upgrade"),
        (lambda c: c.pop("schema"), "schema None, .* make it with"),
        (lambda c: c["data"].pop("name"), "'data' needs the 'name'"),
        (lambda c: c.update(data=3), "needs an object 'data', and has 3"),
        (lambda c: c.pop("accuracy"), "needs an object 'accuracy', and has None"),
        (lambda c: c["accuracy"].update(z=101), "accuracy of 'z' must be a percentage, and is 101"),
        (lambda c: c["accuracy"].update(z="50"), "must be a percentage, and is '50'"),
        (lambda c: c["accuracy"].update(z=float("nan")), "must be a percentage, and is nan"),
        (lambda c: c["accuracy"].update(z=True), "must be a percentage, and is True"),
        (lambda c: c["models"].pop(), "'models' must list the models"),
        (lambda c: c.update(models=[1, 2, 3]), "'models' must list the models"),
        (lambda c: c.update(models=["z"], accuracy={"z": 1}), "has 1 models"),
        (lambda c: c.update(scores={}), "'scores' is empty"),
        (lambda c: c["scores"].update(one=7), "score 'one' must be an object, and is 7"),
        (lambda c: c["scores"]["one"].pop("values"), "score 'one' needs an object 'values'"),
        (lambda c: c["scores"]["one"]["values"].update(w=1), "the unknown model 'w'"),
        (lambda c: c["scores"]["one"]["values"].update(z="a"), "a number or null, and is 'a'"),
        (lambda c: c["scores"]["one"]["values"].update(z=float("inf")), "null, and is inf"),
        (lambda c: c["scores"]["one"].update(title=4), "title of 'one' must be a text"),
        (lambda c: c["scores"]["one"].update(seconds="4"), "seconds of 'one' must be a number"),
        (lambda c: c["scores"]["one"].update(tau=0.5), "tau of 'one' is 0.5, and its values give"),
        (lambda c: c["scores"]["one"].update(weighted_tau=None), "weighted_tau of 'one' is None"),
        (lambda c: c["scores"]["one"]["values"].update(z=9), "one of them was changed"),
        (lambda c: c.update(resamples=0), "'resamples' must be an integer from 1"),
        (lambda c: c.update(seed=-1), "'seed' must be an integer from 0"),
        (lambda c: c.update(left_out=[1]), "needs an object 'left_out'"),
        (lambda c: c.update(left_out={"two": 1}), "'left_out' of 'two'"),
    ],
)
def test_a_wrong_result_is_refused_in_one_line(change: Change, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as refused:
        from_dict(changed(change), "the result 'r.json'")
    assert str(refused.value).startswith("the result 'r.json'")
    assert "\n" not in str(refused.value)


def test_what_follows_from_values_need_not_be_stated() -> None:
    content = changed(lambda c: [s.pop("tau") and s.pop("interval") for s in c["scores"].values()])
    assert from_dict(content) == BED


def test_a_file_that_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the result"):
        load(tmp_path / "absent.json")
    (tmp_path / "r.json").write_text("{")
    with pytest.raises(InputError, match="is damaged"):
        load(tmp_path / "r.json")
