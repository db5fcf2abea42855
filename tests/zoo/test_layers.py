"""Layers in specs: their syntax, the models they stand for, and how their outputs are pooled."""

from __future__ import annotations

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
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.spec import POOLINGS, LayerPool, choose_pool, prefix_tokens
from oodzoo.zoo.zoos import split_layers, with_layer

VIT = "timm/vit_tiny_patch16_224.augreg_in21k"
NAME = "timm-vit_tiny_patch16_224.augreg_in21k"


def layers_of(spec: ModelSpec) -> list[str]:
    return get_source(spec.kind).layers(spec)


def listed(zoo: Any) -> list[tuple[str, str | None, str | None]]:
    return [(spec.name, spec.layer, spec.pooling) for spec in load_zoo(zoo)]


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
        ("timm/vgg11", [f"features.{n}" for n in (0, 3, 6, 8, 11, 13, 16, 18)]),
        ("torchvision/vit_b_16", [f"encoder.layers.encoder_layer_{n}" for n in range(12)]),
        ("torchvision/swin_t", [f"features.{n}" for n in range(8)]),
        ("open_clip/ViT-B-32/openai", [f"transformer.resblocks.{n}" for n in range(12)]),
    ],
)
def test_blocks_of_known_networks(
    timm: Any, torchvision: Any, open_clip: Any, source: str, expected: list[str]
) -> None:
    assert layers_of(ModelSpec("net", source)) == expected


def test_layers_in_a_zoo_file(timm: Any, tmp_path: Path) -> None:
    path = tmp_path / "zoo.toml"
    table = '[[model]]\nname = "{}"\nsource = "{}"\nfeature_dim = 192\n'
    sources = {"early": f"{VIT}@blocks.1:mean", "two": f"{VIT}@blocks.1+blocks.2", "plain": VIT}
    path.write_text("".join(table.format(name, source) for name, source in sources.items()))
    assert [(s.name, s.layer, s.pooling, s.feature_dim) for s in load_zoo(path)] == [
        ("early", "blocks.1", "mean", 192),
        ("two@blocks.1", "blocks.1", None, None),
        ("two@blocks.2", "blocks.2", None, None),
        ("plain", None, None, 192),
    ]


HUB = "timm/hf-hub:timm/resnet18.a1_in1k"


@pytest.mark.parametrize(
    ("source", "expected", "layer"),
    [
        ("onnx/net.onnx@relu", "onnx/net.onnx@relu", None),  # a file of that name
        ("onnx/net.onnx@relu@add", "onnx/net.onnx@relu", "add"),
        ("onnx/net.onnx@/f/Relu:0", "onnx/net.onnx", "/f/Relu:0"),
        ("onnx/a@b/net.onnx", "onnx/a@b/net.onnx", None),
        ("hf/./a@b", "hf/./a@b", None),
        ("timm/local-dir:a@b@blocks.1", "timm/local-dir:a@b", "blocks.1"),
        (f"{HUB}@main", f"{HUB}@main", None),  # a revision
        (f"{HUB}@@layer1", HUB, "layer1"),
    ],
)
def test_where_the_name_of_a_layer_begins(
    tmp_path: Path, source: str, expected: str, layer: str | None
) -> None:
    for name in ("net.onnx", "net.onnx@relu", "a@b/net.onnx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    spec, text = split_layers(ModelSpec("net", source, folder=tmp_path))
    assert (spec.source, text) == (expected, layer)


@pytest.mark.parametrize("layer", ["/f/layer1/Relu:0", "a" * 300, 'x?*"<>|\\y', "é.1", "a;b/" * 60])
def test_names_of_layers_can_be_folders(layer: str) -> None:
    spec = with_layer(ModelSpec("net", "onnx/net.onnx"), layer, "mean")
    require_folder_name(spec.name, "this test")
    assert spec.name.startswith("net@")
    assert spec.name.endswith("-mean")
    assert spec.layer == layer


@pytest.mark.parametrize(
    ("zoo", "words"),
    [
        (f"{VIT}@", r"'@' has no name of a layer; give one, such as @blocks\.8"),
        (f"{VIT}@blocks.1+", r"'@blocks\.1\+' has no name of a layer"),
        (f"{VIT}@blocks.8:max", r"unknown pooling 'max' of the layer 'blocks\.8'; expected one of"),
        (f"{VIT}@blocks.*", "a layer cannot have wildcards; name several layers"),
        ("onnx/missing.onnx@all", r"cannot read 'missing\.onnx'"),
        ("timm/resnet17@all", "no architecture 'resnet17'"),
    ],
)
def test_bad_layers(timm: Any, zoo: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load_zoo(zoo)
    assert "\n" not in str(caught.value)


SQUARE = (224, 224)


@pytest.mark.parametrize(
    ("shape", "crop", "expected"),
    [
        ((2, 64), SQUARE, LayerPool("vector", None)),
        ((2, 64, 7, 7), SQUARE, LayerPool("map", "mean")),
        ((2, 7, 7, 768), SQUARE, LayerPool("map_last", "mean")),
        ((2, 7, 7, 7), SQUARE, LayerPool("map", "mean")),
        ((2, 7, 14, 64), (224, 448), LayerPool("map_last", "mean")),
        ((2, 196, 384), SQUARE, LayerPool("tokens", "mean")),
        ((2, 197, 384), SQUARE, LayerPool("tokens", "cls", 1)),
    ],
)
def test_the_default_follows_from_the_shape(
    shape: tuple[int, ...], crop: tuple[int, int], expected: LayerPool
) -> None:
    assert choose_pool(shape, 2, crop, None) == expected


@pytest.mark.parametrize(
    ("shape", "pooling", "words"),
    [
        ((2, 3, 4, 5, 6), None, "choose another layer"),
        ((2, 64), "mean", "which needs no pooling; remove ':mean'"),
        ((2, 64, 7, 7), "cls", "a feature map without a class token; use ':mean' instead of"),
        ((2, 196, 64), "both", "tokens without a class token; use ':mean' instead of ':both'"),
        ((2, 197, 64), "max", "unknown pooling 'max'; use cls, mean, both"),
    ],
)
def test_a_pooling_that_does_not_fit(shape: tuple[int, ...], pooling: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        choose_pool(shape, 2, SQUARE, pooling)
    assert "\n" not in str(caught.value)


@given(height=st.integers(1, 40), width=st.integers(1, 40), patch=st.integers(4, 32))
def test_one_class_token_is_found_in_images_of_any_shape(
    height: int, width: int, patch: int
) -> None:
    crop = (height * patch, width * patch)
    assert prefix_tokens(height * width, crop) == 0
    assert prefix_tokens(height * width + 1, crop) in (0, 1)
    square = (224, 224)
    for prefix in range(6):
        if height**2 + prefix < (height + 1) ** 2 and height > 1:
            assert prefix_tokens(height**2 + prefix, square) == prefix


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pooled_values_equal_the_oracle(torch: Any, dtype: str) -> None:
    noise = torch.Generator().manual_seed(0)
    values = torch.randn((3, 6, 6, 6), generator=noise).to(getattr(torch, dtype))
    exact, tokens = values.float().numpy(), values.reshape(3, 36, 6)[:, :26]
    for pool, batch, expected in (
        (LayerPool("map", "mean"), values, pool_map(exact)),
        (LayerPool("map_last", "mean"), values, pool_map(exact.transpose(0, 3, 1, 2))),
        (LayerPool("vector", None), values[:, 0, 0], exact[:, 0, 0]),
        *((LayerPool("tokens", way, prefix=1), tokens, pool_tokens(tokens.float().numpy(), way, 1))
          for way in POOLINGS),
    ):  # fmt: skip
        copied = batch.clone()
        pooled = pool(copied)
        assert pooled.dtype == torch.float32
        copied.zero_()  # later changes in place do not reach the result
        np.testing.assert_allclose(pooled, expected, rtol=1e-5, atol=1e-6)
