from __future__ import annotations

import dataclasses
from pathlib import Path

from oodzoo.zoo.model_spec import ModelSpec


def test_parts_of_a_source() -> None:
    spec = ModelSpec("m", "hf/owner/name", folder=Path("zoo"))
    assert (spec.kind, spec.identifier) == ("hf", "owner/name")
    assert spec.file == Path("zoo/owner/name")


def test_arguments_do_not_prevent_hashing() -> None:
    spec = ModelSpec("m", "timm/x", arguments={"depths": [1, 2]})
    assert spec in {spec}
    assert spec != dataclasses.replace(spec, arguments={"depths": [1, 3]})


def test_variant_is_empty_without_arguments() -> None:
    assert ModelSpec("m", "timm/x").variant == ""
    assert ModelSpec("m", "timm/x", arguments={}).variant == ""
    given = ModelSpec("m", "timm/x", arguments={"b": 1, "a": [True]})
    assert given.variant == ' arguments {"a": [true], "b": 1}'


def test_dictionary_has_what_is_set() -> None:
    spec = ModelSpec("m", "timm/x", pretrained=False, arguments={"a": 1}, folder=Path("zoo"))
    assert spec.to_dict() == {
        "name": "m", "source": "timm/x", "pretrained": False, "arguments": {"a": 1},
    }  # fmt: skip
