from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from oodzoo.errors import InputError
from oodzoo.zoo import load_zoo, zoo_names
from oodzoo.zoo.catalogue import catalogue, filter_models, missing, named_zoo
from oodzoo.zoo.spec import ModelSpec, check_spec, require_unique_names
from oodzoo.zoo.torch_model import count_parameters

_LISTED = [spec for name in ("paper", "modern") for spec in named_zoo(name)]


def test_the_named_zoos() -> None:
    assert set(zoo_names()) == {"demo", "paper", "modern"}
    with pytest.raises(
        InputError, match="unknown zoo 'papers'; expected one of demo, paper, modern"
    ):
        named_zoo("papers")
    assert load_zoo("modern") == named_zoo("modern")
    assert missing("demo") == []


def test_the_paper_has_35_models_in_three_groups() -> None:
    entries = catalogue("paper")
    assert [entry.number for entry in entries] == list(range(1, 36))
    groups = [entry.group for entry in entries]
    assert [groups.count(group) for group in (1, 2, 3)] == [12, 10, 13]
    assert len(named_zoo("paper")) + len(missing("paper")) == 35
    assert [entry.number for entry in missing("paper")] == [15, 17, 18]
    assert all(entry.missing for entry in missing("paper"))


@pytest.mark.parametrize("name", ["paper", "modern"])
def test_every_model_is_fully_described(name: str) -> None:
    specs = named_zoo(name)
    require_unique_names((spec.name for spec in specs), name)
    for spec in specs:
        check_spec(spec, name)
        known = (
            spec.architecture,
            spec.pretraining,
            spec.origin,
            spec.parameters,
            spec.feature_dim,
        )
        assert all(known), spec
        assert spec.licence, spec
        # The preprocessing of the source is not overridden.
        assert (spec.input_size, spec.mean, spec.std) == (None, None, None)


@pytest.mark.filterwarnings("ignore:QuickGELU mismatch")
@pytest.mark.parametrize("spec", _LISTED, ids=[spec.name for spec in _LISTED])
def test_every_model_is_known_to_its_source(spec: ModelSpec, request: Any) -> None:
    """Built without weights: the name exists, and its size is as stated."""
    request.getfixturevalue(spec.kind)
    torch = request.getfixturevalue("torch")
    source = import_module(f"oodzoo.zoo.{spec.kind}")
    with torch.device("meta"), torch.inference_mode():
        built = source.build(spec, pretrained=False)
        size = built.preprocessing.geometry.crop
        features, logits = built.forward(built.module.eval(), torch.zeros(2, 3, *size))
    assert tuple(features.shape) == (2, spec.feature_dim)
    assert count_parameters(built.module) == spec.parameters
    assert logits is None or len(logits) == 2


def test_filters() -> None:
    modern = named_zoo("modern")

    def names(**options: Any) -> set[str]:
        return {spec.name for spec in filter_models(modern, **options)}

    assert names() == {spec.name for spec in modern}
    assert names(pattern="resnet*") == {"resnet50.a1_in1k"}
    assert names(pattern="ViT-B-16/*") == {"ViT-B-16-dfn2b"}
    assert names(pattern="resnet") == set()
    assert names(source="open_clip") == {s.name for s in modern if s.source[:4] == "open"}
    assert names(pretraining="dinoV3", pattern="convnext*") == {"convnext_base.dinov3_lvd1689m"}
    unknown = ModelSpec("unknown", "timm/unknown")
    assert filter_models([unknown], pretraining="dino") == []
    assert filter_models([unknown], pattern="un*") == [unknown]
