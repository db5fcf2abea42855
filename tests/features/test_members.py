"""Resolving a zoo, loading its models, and their records in a store."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.features.data import (
    Extract,
    MakeModel,
    Zoo,
)
from tests.predictor import conftest as fixtures

import oodzoo
from oodzoo.errors import InputError
from oodzoo.features.members import LoadedModel, find_spec
from oodzoo.store.feature_store import FeatureStore
from oodzoo.zoo import Model, ModelSpec

timm, timm_spec = fixtures.timm, fixtures.timm_spec

# --- zoos -------------------------------------------------------------------------------------


@pytest.mark.parametrize("zoo", [[], ""])
def test_an_empty_zoo(data: Path, tmp_path: Path, zoo: Any) -> None:
    with pytest.raises(InputError, match=r"the zoo is empty|'' is not a zoo"):
        oodzoo.extract(data, zoo, tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_two_models_of_one_name(data: Path, make_model: MakeModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the zoo names two models 'function'"):
        oodzoo.extract(data, [make_model(), make_model()], tmp_path / "s")


def test_a_function_is_not_a_model(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not a model; wrap .*model_from_callable"):
        oodzoo.extract(data, [print], tmp_path / "s")  # type: ignore[list-item]


def _load(member: ModelSpec | Model, precision: str = "float32") -> LoadedModel:
    (loaded,) = LoadedModel.load([member], device="cpu", precision=precision)
    assert isinstance(loaded, LoadedModel)
    return loaded


# --- records ------------------------------------------------------------------------------------


# --- how to load a model again ----------------------------------------------------------------


def test_outputs_and_sha256_are_kept_even_if_the_zoo_does_not_state_them(
    data: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    (stated,) = zoo("separable_shapes")
    bare = ModelSpec("bare", f"onnx/{stated.file}", mean=stated.mean, std=stated.std)
    extract(data, [bare], tmp_path / "s")
    kept = FeatureStore(tmp_path / "s").model("bare").spec
    assert kept == {
        "input_size": None,
        "mean": list(stated.mean or ()),
        "std": list(stated.std or ()),
        "features": "features",
        "logits": "logits",
        "sha256": stated.sha256,
    }


# --- provenance -------------------------------------------------------------------------------


ALWAYS = ("numpy", "oodzoo", "pillow")


def test_the_store_keeps_versions_and_licence(
    made: Path, data: Path, make_model: MakeModel, extract: Extract, tmp_path: Path
) -> None:
    onnx = FeatureStore(made).model("separable_shapes")
    assert onnx.versions == {name: version(name) for name in (*ALWAYS, "onnxruntime")}
    assert onnx.licence == "Apache-2.0"
    extract(data, [make_model()], tmp_path / "s")
    python = FeatureStore(tmp_path / "s").model("function")
    assert python.versions == {name: version(name) for name in ALWAYS}
    assert python.licence is None


def test_the_store_keeps_the_spec_and_versions_of_a_pytorch_model(
    data: Path, timm_spec: Callable[..., ModelSpec], extract: Extract, tmp_path: Path
) -> None:
    extract(data, [timm_spec("test_resnet.r160_in1k", input_size=64)], tmp_path / "s")
    stored = FeatureStore(tmp_path / "s").model("tiny")
    assert stored.versions == {name: version(name) for name in (*ALWAYS, "timm", "torch")}
    unstated = dict.fromkeys(("mean", "std", "features", "logits", "sha256"))
    assert stored.spec == {"input_size": 64, **unstated}


def test_the_store_keeps_arguments_and_random_weights(
    data: Path, timm: Any, extract: Extract, tmp_path: Path
) -> None:
    built = ModelSpec(
        "vit",
        "timm/test_vit",
        pretrained=False,
        input_size=32,
        arguments={"img_size": 32, "num_classes": 0},
    )
    extract(data, [built], tmp_path / "store")
    store = FeatureStore(tmp_path / "store")
    stored = store.model("vit")
    assert stored.spec is not None
    assert stored.spec["arguments"] == built.arguments
    assert stored.spec["pretrained"] is False
    # those of the store count, whatever a zoo says now
    zoo = [ModelSpec("vit", "timm/test_vit", arguments={"depth": 1}, geometry={"crop": [8, 8]})]
    for known in ([], zoo):
        found = find_spec(store, stored, known)
        assert (found.arguments, found.pretrained) == (built.arguments, False)
    plain = msgspec.structs.replace(stored, spec={"input_size": 32})
    assert find_spec(store, plain, zoo).arguments is None
    assert find_spec(store, plain, zoo).geometry is None
