"""What is known about models, and filters of zoos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.zoo.listing.data import cache_file

from oodzoo.errors import InputError
from oodzoo.zoo import load_zoo
from oodzoo.zoo.listing import ListedModel, select_models
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.weights import Weights


def test_what_a_zoo_states_is_believed() -> None:
    spec = ModelSpec("net", "onnx/none.onnx", parameters=5, licence="mit")
    model = ListedModel(spec)
    assert (model.name, model.parameters, model.licence) == ("net", 5, "mit")
    assert (model.is_local, model.size, model.weights) == (None, None, None)
    assert model.to_dict() == {**spec.to_dict(), "size": None, "cached": None}


@pytest.mark.parametrize("source", ["onnx/none.onnx", "timm/no_such_model", "hf/me/none"])
def test_what_cannot_be_found_out_is_unknown(source: str) -> None:
    model = ListedModel(ModelSpec("net", source))
    assert (model.parameters, model.licence, model.size) == (None, None, None)


def test_weights_to_download_have_an_estimated_size(timm: Any, hub_cache: Path) -> None:
    name = "test_vit.r160_in1k"
    missing = ListedModel(ModelSpec("net", f"timm/{name}"))
    assert missing.size is not None
    assert missing.weights == Weights(hub_cache, False, missing.size)
    assert missing.to_dict() == {
        "name": "net",
        "source": f"timm/{name}",
        "parameters": missing.parameters,
        "licence": "apache-2.0",
        "size": 4 * (missing.parameters or 0),
        "cached": False,
    }
    cache_file(hub_cache, f"timm/{name}", "model.safetensors", b"123")
    found = ListedModel(ModelSpec("net", f"timm/{name}"))
    assert (found.is_local, found.size, found.weights) == (True, 3, Weights(hub_cache, True, 3))


def test_unknown_licences_are_left_out_with_a_warning() -> None:
    known = ModelSpec("known", "onnx/x.onnx", licence="MIT")
    others = [ModelSpec(f"net{i}", f"onnx/{i}.onnx") for i in range(5)]
    expected = (
        "--licence mit leaves out 5 models whose licence is unknown: net0, net1, net2 and 2 more"
    )
    with pytest.warns(UserWarning, match="unknown") as caught:
        assert select_models([known, *others], licence="mit") == [ListedModel(known)]
    assert [str(each.message) for each in caught] == [expected]


def test_models_that_do_not_meet_a_constraint_need_no_warning() -> None:
    specs = load_zoo("demo")
    kept = select_models(specs, licence="apache-2.0", max_parameters="40K")
    assert [m.spec for m in kept] == [s for s in specs if (s.parameters or 0) <= 40_000]
    with pytest.raises(InputError, match="no model meets --max-parameters 1K: the smallest"):
        select_models(specs, max_parameters="1K")


def test_progress_counts_those_that_the_licence_leaves() -> None:
    specs = [
        ModelSpec(name, "onnx/x.onnx", parameters=5, licence=licence)
        for name, licence in {"a": "mit", "b": "gpl", "c": "mit"}.items()
    ]
    seen: list[tuple[int, int]] = []
    select_models(
        specs,
        licence="mit",
        max_parameters=9,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 2), (2, 2)]


def test_timm_models_by_licence_and_size(timm: Any) -> None:
    specs = load_zoo("timm/test_*", licence="apache-2.0", max_parameters="300K")
    assert specs
    every = load_zoo("timm/test_*")
    assert {spec.source for spec in specs} < {spec.source for spec in every}
    for spec in every:
        parameters = sum(p.numel() for p in timm.create_model(spec.identifier).parameters())
        assert (spec in specs) == (parameters <= 300_000)
