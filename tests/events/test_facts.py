"""Facts as plain values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from oodzoo.events.listener import plain_facts


def test_what_json_can_express_stays() -> None:
    facts = {
        "text": "é", "none": None, "flag": True, "path": Path("a") / "b",
        "integer": np.int64(3), "number": np.float32(0.5), "missing": float("nan"),
        "list": ("a", 1), "nested": {"k": [1, {"x": Path("p")}]},
    }  # fmt: skip
    found = plain_facts(facts)
    assert found == {
        "text": "é", "none": None, "flag": True, "path": str(Path("a") / "b"),
        "integer": 3, "number": 0.5, "missing": None,
        "list": ["a", 1], "nested": {"k": [1, {"x": "p"}]},
    }  # fmt: skip
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert type(found["flag"]) is bool


def test_the_rest_is_left_out() -> None:
    assert plain_facts({"a": object(), "b": [object()], "c": {"d": object()}, "e": 1}) == {"e": 1}
