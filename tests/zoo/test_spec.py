"""Specs of models: their files, how they are written and matched; the named zoos."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.core.errors import InputError
from oodzoo.zoo import load_zoo, zoo_names
from oodzoo.zoo.sources import check_spec, get_source, portable_source
from oodzoo.zoo.spec import ModelSpec, require_unique_names
from oodzoo.zoo.torch_model import count_parameters
from oodzoo.zoo.zoos import catalogue, matching, missing, named_zoo


@pytest.mark.parametrize(
    ("source", "portable"),
    [
        ("onnx//home/ada/net.onnx", "onnx/net.onnx"),
        ("hf/~/checkpoint", "hf/checkpoint"),
        ("open_clip/ViT-B-16//home/ada/net.safetensors", "open_clip/net.safetensors"),
        ("open_clip/local-dir:/home/ada/clip", "open_clip/clip"),
    ],
)
def test_portable_sources_name_no_folders(source: str, portable: str) -> None:
    assert portable_source(ModelSpec(name="net", source=source)) == portable


def test_variants() -> None:
    assert ModelSpec("m", "timm/x", arguments={}).variant == ModelSpec("m", "timm/x").variant == ""
    given = ModelSpec("m", "timm/x", arguments={"b": 1, "a": [True]})
    assert given.variant == ' arguments {"a": [true], "b": 1}'


@given(st.text("ab*?[]-", min_size=1), st.lists(st.text("ab[", min_size=1)))
def test_suggestions_match_something(pattern: str, names: list[str]) -> None:
    try:
        assert matching(pattern, names, "no") == [n for n in names if fnmatchcase(n, pattern)]
    except InputError as error:
        _, asked, near = str(error).partition("; did you mean ")
        for each in near.removesuffix("?").split(" or ") if asked else ():
            assert any(fnmatchcase(name, each) for name in names)


_LISTED = [spec for name in ("paper", "modern") for spec in named_zoo(name)]


def test_the_named_zoos() -> None:
    assert set(zoo_names()) == {"demo", "paper", "modern"}
    with pytest.raises(
        InputError, match="unknown zoo 'papers'; expected one of demo, paper, modern"
    ):
        named_zoo("papers")
    assert load_zoo("modern") == named_zoo("modern")
    assert missing("demo") == {}
    entries = catalogue("paper")
    assert [entry["number"] for entry in entries] == list(range(1, 36))
    groups = [entry["group"] for entry in entries]
    assert [groups.count(group) for group in (1, 2, 3)] == [12, 10, 13]
    assert len(named_zoo("paper")) + len(missing("paper")) == 35
    assert [entry["number"] for entry in entries if entry["name"] in missing("paper")] == [
        15,
        17,
        18,
    ]
    assert all(missing("paper").values())


@pytest.mark.parametrize("name", ["paper", "modern"])
def test_every_model_is_fully_described(name: str) -> None:
    specs = named_zoo(name)
    require_unique_names((spec.name for spec in specs), name)
    facts = ("architecture", "pretraining", "origin", "parameters", "feature_dim", "licence")
    for spec in specs:
        check_spec(spec, name)
        assert all(getattr(spec, fact) for fact in facts), spec
        # The preprocessing of the source is not overridden.
        assert (spec.input_size, spec.mean, spec.std) == (None, None, None)


@pytest.mark.filterwarnings("ignore:QuickGELU mismatch")
@pytest.mark.parametrize("spec", _LISTED, ids=[spec.name for spec in _LISTED])
def test_every_model_is_known_to_its_source(spec: ModelSpec, request: Any) -> None:
    """Built without weights: the name exists, and its size is as stated."""
    request.getfixturevalue(spec.kind)
    torch = request.getfixturevalue("torch")
    source: Any = get_source(spec.kind)
    with torch.device("meta"), torch.inference_mode():
        built = source.build(spec, pretrained=False)
        size = built.preprocessing.geometry.crop
        features, logits = built.forward(built.module.eval(), torch.zeros(2, 3, *size))
    assert tuple(features.shape) == (2, spec.feature_dim)
    assert count_parameters(built.module) == spec.parameters
    assert logits is None or len(logits) == 2
