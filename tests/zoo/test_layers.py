"""Layers in specs: their syntax, the models they stand for, and how their outputs are pooled."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.pooling import pool_map, pool_tokens

from oodzoo.core.errors import InputError
from oodzoo.core.io import require_folder_name
from oodzoo.zoo import ModelSpec, load_zoo
from oodzoo.zoo.layers import all_layers, by_network, network_key, split_layers, with_layer
from oodzoo.zoo.layers_pooling import POOLINGS, Pool, choose_pool, prefix_tokens

VIT = "timm/vit_tiny_patch16_224.augreg_in21k"
NAME = "timm-vit_tiny_patch16_224.augreg_in21k"


def listed(zoo: Any) -> list[tuple[str, str | None, str | None]]:
    return [(spec.name, spec.layer, spec.pooling) for spec in load_zoo(zoo)]


# --- lists of specs -------------------------------------------------------------------------------


def test_a_pattern_may_have_layers(timm: Any) -> None:
    found = listed("timm/vit_tiny_patch16_224.augreg_in21k*@blocks.2")
    assert (f"{NAME}@blocks.2", "blocks.2", None) in found
    assert len(found) == 2  # that fine-tuned on ImageNet-1k is the other
    (spec,) = load_zoo("modern/vit_small_patch14_reg4_dinov2*@blocks.5:both")
    assert spec.name == "vit_small_patch14_reg4_dinov2.lvd142m@blocks.5-both"
    assert spec.pretraining is not None


def test_all_layers_are_the_features_and_the_blocks(timm: Any) -> None:
    found = listed(f"{VIT}@all")
    assert found[0] == (NAME, None, None)
    assert found[1:] == [(f"{NAME}@blocks.{n}", f"blocks.{n}", None) for n in range(12)]
    assert listed(f"{VIT}@all,{VIT}") == found  # listed once
    assert [pooling for _, _, pooling in listed(f"{VIT}@all:mean")] == [None] + ["mean"] * 12


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("timm/resnet18", ["layer1", "layer2", "layer3", "layer4"]),
        ("timm/convnext_atto", ["stages.0", "stages.1", "stages.2", "stages.3"]),
        ("timm/swin_tiny_patch4_window7_224", ["layers.0", "layers.1", "layers.2", "layers.3"]),
        ("timm/efficientnet_b0", [f"blocks.{n}" for n in range(7)]),
        ("timm/vgg11", [f"features.{n}" for n in (0, 3, 6, 8, 11, 13, 16, 18)]),
        ("torchvision/resnet18", ["layer1", "layer2", "layer3", "layer4"]),
        ("torchvision/vit_b_16", [f"encoder.layers.encoder_layer_{n}" for n in range(12)]),
        ("torchvision/swin_t", [f"features.{n}" for n in range(8)]),
        ("open_clip/ViT-B-32/openai", [f"transformer.resblocks.{n}" for n in range(12)]),
    ],
)
def test_blocks_of_known_networks(
    timm: Any, torchvision: Any, open_clip: Any, source: str, expected: list[str]
) -> None:
    assert all_layers(ModelSpec("net", source)) == expected


# --- zoo files ------------------------------------------------------------------------------------


def test_layers_in_a_zoo_file(timm: Any, tmp_path: Path) -> None:
    path = tmp_path / "zoo.toml"
    table = '[[model]]\nname = "{}"\nsource = "{}"\nfeature_dim = 192\n'
    sources = {"early": f"{VIT}@blocks.1:mean", "two": f"{VIT}@blocks.1+blocks.2", "plain": VIT}
    path.write_text("".join(table.format(name, source) for name, source in sources.items()))
    assert listed(path) == [
        ("early", "blocks.1", "mean"),
        ("two@blocks.1", "blocks.1", None),
        ("two@blocks.2", "blocks.2", None),
        ("plain", None, None),
    ]
    assert [spec.feature_dim for spec in load_zoo(path)] == [192, None, None, 192]


# --- paths and revisions --------------------------------------------------------------------------


def split(source: str, folder: Path = Path()) -> tuple[str, str | None]:
    spec, text = split_layers(ModelSpec("net", source, folder=folder))
    return spec.source, text


def test_a_file_whose_own_name_has_an_at_is_taken_first(tmp_path: Path) -> None:
    for name in ("net.onnx", "net.onnx@relu", "a@b/net.onnx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert split("onnx/net.onnx@relu", tmp_path) == ("onnx/net.onnx@relu", None)
    assert split("onnx/net.onnx@relu@add", tmp_path) == ("onnx/net.onnx@relu", "add")
    assert split("onnx/net.onnx@add", tmp_path) == ("onnx/net.onnx", "add")
    assert split("onnx/net.onnx@/f/Relu:0", tmp_path) == ("onnx/net.onnx", "/f/Relu:0")
    assert split("onnx/a@b/net.onnx", tmp_path) == ("onnx/a@b/net.onnx", None)
    assert split(f"onnx/{tmp_path}/a@b/net.onnx@x") == (f"onnx/{tmp_path}/a@b/net.onnx", "x")


def test_a_local_folder(tmp_path: Path) -> None:
    (tmp_path / "a@b").mkdir()
    assert split(f"hf/{tmp_path}/a@b") == (f"hf/{tmp_path}/a@b", None)
    assert split(f"hf/{tmp_path}/a@b@encoder.layer.1") == (
        f"hf/{tmp_path}/a@b",
        "encoder.layer.1",
    )
    assert split("timm/local-dir:a@b@blocks.1", tmp_path) == ("timm/local-dir:a@b", "blocks.1")


def test_a_revision_on_the_hub_is_not_a_layer() -> None:
    hub = "timm/hf-hub:timm/resnet18.a1_in1k"
    assert split(f"{hub}@main") == (f"{hub}@main", None)
    assert split(f"{hub}@main@layer1") == (f"{hub}@main", "layer1")
    assert split(f"{hub}@@layer1") == (hub, "layer1")


# --- names and networks ---------------------------------------------------------------------------


@pytest.mark.parametrize("layer", ["/f/layer1/Relu:0", "a" * 300, 'x?*"<>|\\y', "é.1", "a;b/" * 60])
def test_names_of_layers_can_be_folders(layer: str) -> None:
    spec = with_layer(ModelSpec("net", "onnx/net.onnx"), layer, "mean")
    require_folder_name(spec.name, "this test")
    assert spec.name.startswith("net@")
    assert spec.name.endswith("-mean")
    assert spec.layer == layer


def test_models_of_one_network(tmp_path: Path) -> None:
    network = ModelSpec("net", "onnx/net.onnx", folder=tmp_path, features="pool")
    layer = with_layer(network, "relu", None)
    same = [network, layer, with_layer(network, "add", "mean")]
    others = [
        ModelSpec("net", "onnx/other.onnx", folder=tmp_path),
        ModelSpec("net", "onnx/net.onnx", folder=tmp_path / "x"),
        ModelSpec("net", "onnx/net.onnx", folder=tmp_path, input_size=64),
        ModelSpec("net", "onnx/net.onnx", folder=tmp_path, mean=(0, 0, 0)),
    ]
    groups = by_network([layer, *others, *same], network_key)
    assert groups == [[layer, *same], *([other] for other in others)]


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zoo", "words"),
    [
        (f"{VIT}@", r"'@' has no name of a layer; give one, such as @blocks\.8"),
        (f"{VIT}@ ", "has no name of a layer"),
        (f"{VIT}@blocks.1+", r"'@blocks\.1\+' has no name of a layer"),
        (f"{VIT}@:mean", "has no name of a layer"),
        (f"{VIT}@blocks.8:max", r"unknown pooling 'max' of the layer 'blocks\.8'; expected one of"),
        (f"{VIT}@blocks.8:", "unknown pooling ''"),
        (f"{VIT}@blocks.*", "a layer cannot have wildcards; name several layers"),
        (f"{VIT}@blocks.8,{VIT}@blocks.8", "names two models"),
        ("onnx/missing.onnx@all", r"cannot read 'missing\.onnx'"),
        ("timm/resnet17@all", "no architecture 'resnet17'"),
    ],
)
def test_bad_layers(timm: Any, zoo: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load_zoo(zoo)
    assert "\n" not in str(caught.value)


# --- pooling, against a literal oracle ------------------------------------------------------------


SQUARE = (224, 224)


@pytest.mark.parametrize(
    ("shape", "crop", "expected"),
    [
        ((2, 64), SQUARE, Pool("vector", None)),
        ((2, 64, 7, 7), SQUARE, Pool("map", "mean")),
        ((2, 64, 1, 1), SQUARE, Pool("map", "mean")),
        ((2, 7, 7, 768), SQUARE, Pool("map_last", "mean")),
        ((2, 1, 1, 768), SQUARE, Pool("map_last", "mean")),
        ((2, 7, 7, 7), SQUARE, Pool("map", "mean")),
        ((2, 64, 7, 14), (224, 448), Pool("map", "mean")),
        ((2, 7, 14, 64), (224, 448), Pool("map_last", "mean")),
        ((2, 64, 8, 13), (230, 400), Pool("map", "mean")),
        ((2, 196, 384), SQUARE, Pool("tokens", "mean")),
        ((2, 197, 384), SQUARE, Pool("tokens", "cls", 1)),
        ((2, 201, 384), SQUARE, Pool("tokens", "cls", 5)),
        ((2, 99, 384), (224, 448), Pool("tokens", "cls", 1)),
        ((2, 1000, 384), SQUARE, Pool("tokens", "mean")),
    ],
)
def test_the_default_follows_from_the_shape(
    shape: tuple[int, ...], crop: tuple[int, int], expected: Pool
) -> None:
    assert choose_pool(shape, 2, crop, None) == expected


def test_registers_without_a_class_token() -> None:
    """Networks that have register tokens only: they are left out of the mean."""
    assert choose_pool((2, 260, 8), 2, (256, 256), None, class_token=False) == Pool(
        "tokens", "mean", 4
    )
    with pytest.raises(InputError, match="tokens without a class token; use ':mean'"):
        choose_pool((2, 260, 8), 2, (256, 256), "cls", class_token=False)


@pytest.mark.parametrize(
    ("shape", "pooling", "words"),
    [
        ((2,), None, r"gives an output of shape \(2,\) for 2 images; expected \(n, d\)"),
        ((2, 3, 4, 5, 6), None, "choose another layer"),
        ((98, 49, 32), None, r"shape \(98, 49, 32\) for 2 images"),
        ((2, 0, 32), None, "choose another layer"),
        ((2, 64), "mean", "which needs no pooling; remove ':mean'"),
        ((2, 64), "cls", "remove ':cls'"),
        ((2, 64, 7, 7), "cls", "a feature map without a class token; use ':mean' instead of"),
        ((2, 64, 7, 7), "both", "a feature map without a class token"),
        ((2, 196, 64), "both", "tokens without a class token; use ':mean' instead of ':both'"),
        ((2, 197, 64), "max", "unknown pooling 'max'; use cls, mean, both"),
    ],
)
def test_a_pooling_that_does_not_fit(shape: tuple[int, ...], pooling: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        choose_pool(shape, 2, SQUARE, pooling)
    assert "\n" not in str(caught.value)


@given(side=st.integers(2, 64), prefix=st.integers(0, 5))
def test_tokens_before_a_square_grid_are_counted(side: int, prefix: int) -> None:
    n_tokens = side * side + prefix
    if (side + 1) ** 2 > n_tokens:
        assert prefix_tokens(n_tokens, SQUARE) == prefix


@given(
    height=st.integers(1, 40), width=st.integers(1, 40), patch=st.integers(4, 32), more=st.just(1)
)
def test_one_class_token_is_found_in_images_of_any_shape(
    height: int, width: int, patch: int, more: int
) -> None:
    crop = (height * patch, width * patch)
    if prefix_tokens(height * width + more, crop):
        assert prefix_tokens(height * width + more, crop) == more
    assert prefix_tokens(height * width, crop) == 0


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_pooled_values_equal_the_oracle(torch: Any, dtype: str) -> None:
    noise = torch.Generator().manual_seed(0)
    values = torch.randn((3, 6, 6, 6), generator=noise).to(getattr(torch, dtype))
    exact = values.float().numpy()
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    pooled = Pool("map", "mean")(values)
    assert pooled.dtype == torch.float32
    close(pooled, pool_map(exact))
    last = Pool("map_last", "mean")(values)
    close(last, pool_map(exact.transpose(0, 3, 1, 2)))
    tokens = values.reshape(3, 36, 6)[:, :26]
    for pooling in POOLINGS:
        pooled = Pool("tokens", pooling, prefix=1)(tokens)
        expected = pool_tokens(tokens.float().numpy(), pooling, 1)
        close(pooled, expected)


@pytest.mark.parametrize(
    "pool", [Pool("vector", None), Pool("tokens", "cls", 1), Pool("tokens", "mean")]
)
def test_later_changes_in_place_do_not_reach_the_result(torch: Any, pool: Pool) -> None:
    values = torch.ones((2, 5) if pool.layout == "vector" else (2, 5, 3))
    pooled = pool(values)
    values.zero_()
    assert (pooled == 1).all()
