from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.zoo.data import noise

from oodzoo.core.errors import InputError
from oodzoo.zoo import load_model
from oodzoo.zoo import timm as source
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import assemble


def _spec(where: str, **fields: Any) -> ModelSpec:
    return ModelSpec(name="model", source=f"timm/{where}", **fields)


@pytest.mark.parametrize(
    "name",
    [
        "test_resnet.r160_in1k",
        "test_vit.r160_in1k",
        "test_convnext.r160_in1k",
        "test_efficientnet.r160_in1k",
        "test_byobnet.r160_in1k",
        "deit_tiny_distilled_patch16_224.fb_in1k",  # two classifiers
        "mobilenetv3_small_050.lamb_in1k",  # a layer between the pooling and the classifier
    ],
)
def test_features_and_logits_equal_those_of_timm(timm: Any, torch: Any, name: str) -> None:
    built = source.build(_spec(name), pretrained=False)
    reference = timm.create_model(name, pretrained=False).eval()
    reference.load_state_dict(built.module.state_dict())
    config = timm.data.resolve_model_data_config(reference)
    model = assemble(built, _spec(name))
    pixels = noise(2, config["input_size"][1])
    mean, std = (torch.tensor(config[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    with torch.no_grad():
        batch = (torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous() / 255 - mean) / std
        maps = reference.forward_features(batch)
        features, logits = model(pixels)
        np.testing.assert_array_equal(features, reference.forward_head(maps, pre_logits=True))
        np.testing.assert_array_equal(logits, reference(batch))
    assert model.info.feature_dim == reference.head_hidden_size
    assert model.info.n_logits == 1000
    assert model.info.parameters == sum(p.numel() for p in reference.parameters())


@pytest.mark.parametrize(
    ("name", "has_logits"),
    [
        ("vit_small_patch14_dinov2.lvd142m", False),  # no head
        ("vit_base_patch16_clip_quickgelu_224.openai", False),  # a projection
        ("convnext_large_mlp.clip_laion2b_ft_320", False),
        ("vit_pe_core_tiny_patch16_384.fb", False),
        ("vit_base_patch16_clip_224.openai_ft_in1k", True),
        ("convnext_base.clip_laion2b_augreg_ft_in12k", True),
        ("resnet18.a1_in1k", True),
    ],
)
def test_projection_is_not_used_as_logits(
    timm: Any, torch: Any, name: str, has_logits: bool
) -> None:
    with torch.device("meta"):
        built = source.build(_spec(name), pretrained=False)
        size = built.preprocessing.geometry.crop
        _, logits = built.forward(built.module.eval(), torch.zeros(1, 3, *size))
    assert (logits is not None) is has_logits


def test_architectures_and_arguments(timm: Any) -> None:
    model = load_model(_spec("test_vit", pretrained=False, arguments={"img_size": 64}))
    assert model.info.preprocessing.geometry.crop == (64, 64)
    with pytest.raises(InputError, match=r"unexpected keyword argument 'deep'.*; check the arg"):
        load_model(_spec("test_vit", pretrained=False, arguments={"deep": 3}))
    without = next(n for n in timm.list_models() if not timm.list_models(n + ".*", pretrained=True))
    with pytest.raises(InputError, match="has no pre-trained weights for"):
        load_model(_spec(without))
