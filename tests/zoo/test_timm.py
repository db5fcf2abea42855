from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import noise

from oodzoo.errors import InputError
from oodzoo.zoo import load_model, load_zoo
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


@pytest.mark.parametrize(
    "name",
    [
        "resnet50.a1_in1k",  # cut out of something larger, bicubic
        "resnet50.fb_swsl_ig1b_ft_in1k",  # bilinear
        "vit_small_patch14_dinov2.lvd142m",  # nothing beside the centre is cut away
        "vit_base_patch16_siglip_224.v2_webli",
        "eva02_base_patch14_448.mim_in22k_ft_in22k_in1k",  # squashed
        "deepseek_vit_412m.deepseek_v4_flash_vision_exp",  # padded
        "vit_base_patch16_sapiens2.fb",  # not square
    ],
)
def test_preprocessing_equals_timm(timm: Any, torch: Any, images: list[Any], name: str) -> None:
    if not timm.list_models(name, pretrained=True):
        pytest.skip(f"timm {timm.__version__} does not have {name}")
    with torch.device("meta"):
        built = source.build(_spec(name), pretrained=False)
    transform = timm.data.create_transform(
        **timm.data.resolve_model_data_config(built.module), is_training=False
    )
    for image in images:
        ours = built.preprocessing([image])[0]
        np.testing.assert_allclose(ours, transform(image), atol=1e-6, err_msg=str(image.size))


def test_zoo_file_overrides_size_mean_and_std(timm: Any) -> None:
    fields = {"input_size": 192, "mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
    for name, resized in (("test_vit.r160_in1k", 202), ("resnet18.a1_in1k", 202)):
        spec = _spec(name, **fields)
        info = assemble(source.build(spec, pretrained=False), spec).info
        assert info.preprocessing.geometry.crop == (192, 192)
        assert info.preprocessing.geometry.resize == (resized, resized)
        assert (info.preprocessing.mean, info.preprocessing.std) == (fields["mean"], fields["std"])


@pytest.fixture
def folder(timm: Any, torch: Any, tmp_path: Path) -> Path:
    """A model with random weights in a folder of timm's own format."""
    torch.manual_seed(1)
    reference = timm.create_model("test_resnet.r160_in1k", num_classes=7).eval()
    timm.models.save_for_hf(reference, tmp_path / "saved")
    return tmp_path / "saved"


def test_local_folder(timm: Any, torch: Any, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "zoo.toml").write_text(
        '[[model]]\nname = "mine"\nsource = "timm/local-dir:saved"\npretraining = "none"\n'
    )
    model: Any = load_model(load_zoo(tmp_path / "zoo.toml")[0])
    reference = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    pixels = noise(2, 160)
    batch = torch.from_numpy(model.info.preprocessing.normalise(pixels))
    with torch.no_grad():
        np.testing.assert_allclose(model(pixels).logits, reference(batch), atol=1e-5)
    assert (model.info.n_logits, model.info.pretraining) == (7, "none")

    again = load_model(ModelSpec("elsewhere", f"timm/local-dir:{folder}"))
    assert again.info.fingerprint == model.info.fingerprint


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("resnet5", r"has no architecture 'resnet5'; did you mean .*resnet50"),
        ("resnet50.a9_in1k", r"no weights 'resnet50.a9_in1k'; it has resnet50.a1_in1k, "),
        ("local-dir:nowhere", r"cannot load timm/local-dir:nowhere: Config file not found"),
        (
            "resnet10t.c3_in1k",
            r"timm/resnet10t.c3_in1k is not in the cache .*, and HF_HUB_OFFLINE is on",
        ),
    ],
)
def test_loading_errors_are_one_line(timm: Any, where: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_model(_spec(where))
    assert "\n" not in str(caught.value)


def test_architecture_without_weights_is_rejected(timm: Any) -> None:
    without = next(n for n in timm.list_models() if not timm.list_models(n + ".*", pretrained=True))
    with pytest.raises(InputError, match="has no pre-trained weights for"):
        load_model(_spec(without))


def test_arguments(timm: Any, torch: Any, folder: Path) -> None:
    model = load_model(_spec("test_vit", pretrained=False, arguments={"img_size": 64}))
    assert model.info.preprocessing.geometry.crop == (64, 64)
    assert model.info.pretraining == "none, random weights"  # not those of timm's configuration
    plain = load_model(_spec(f"local-dir:{folder}"))
    pooled = load_model(_spec(f"local-dir:{folder}", arguments={"global_pool": "max"}))
    assert pooled.info.fingerprint != plain.info.fingerprint
    pixels = noise(2, 160)
    assert (pooled(pixels).features >= plain(pixels).features).all()
    with pytest.raises(InputError, match=r"unexpected keyword argument 'deep'.*; check the arg"):
        load_model(_spec("test_vit", pretrained=False, arguments={"deep": 3}))


def test_unverifiable_sha256_is_rejected(timm: Any) -> None:
    with pytest.raises(
        InputError, match="sha256 can be verified only for a model in a single file"
    ):
        load_model(_spec("resnet18.a1_in1k", sha256="0" * 64))


def test_the_stated_fields_of_a_spec_reload_the_same_model(folder: Path) -> None:
    spec = ModelSpec(
        "mine",
        f"timm/local-dir:{folder.name}",
        input_size=96,
        mean=(0.1, 0.2, 0.3),
        folder=folder.parent,
    )
    again = ModelSpec(**spec.to_dict(), folder=spec.folder)
    assert load_model(again).info == load_model(spec).info
