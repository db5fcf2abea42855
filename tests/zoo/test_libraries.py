"""What is special about the models of one library; `test_model_sources.py` has what all share."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.text_models import WORDS, save_text_model
from tests.zoo.data import CROP, HUBCONF, NETS, SQUASH, VIT, noise, save_checkpoint

from oodzoo.core.errors import InputError
from oodzoo.zoo import load_model, load_zoo
from oodzoo.zoo.model import only_one
from oodzoo.zoo.preprocessing import TextPreprocessing
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import assemble_layers


def load(source: str, **fields: Any) -> Any:
    return load_model(ModelSpec("model", source, **fields))


def build(spec: ModelSpec, *, pretrained: bool) -> Any:
    return get_source(spec.kind).build(spec, pretrained=pretrained)  # type: ignore[attr-defined]


def run(torch: Any, model: Any) -> tuple[Any, Any]:
    """The outputs of a model for noise, and the same noise as a normalised tensor."""
    pixels = noise(2, model.info.preprocessing.geometry.crop[0])
    return model(pixels), torch.from_numpy(model.info.preprocessing.normalise(pixels))


def count(*modules: Any) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected.detach(), rtol=1e-4, atol=1e-5)


def input_of(module: Any, name: str, **batch: Any) -> tuple[Any, Any]:
    """The input of a part of a module, and what the module returns."""
    seen: list[Any] = []
    part = module.get_submodule(name)
    hook = part.register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
    found = module(**batch)
    hook.remove()
    return seen[0], found


# --- transformers ---------------------------------------------------------------------------------

TEXT = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48,
    "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
BOTH = {"text_config": TEXT, "vision_config": VIT}
STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_labels": 7}


@pytest.mark.parametrize(
    ("kind", "config", "processor", "taken"),
    [
        ("ResNetForImageClassification", {**STAGES, "embedding_size": 8, "layer_type": "basic"},
         CROP, "classifier.1"),
        ("CLIPModel", {**BOTH, "projection_dim": 16}, SQUASH, "projection"),
        ("SiglipModel", BOTH, SQUASH, "image tower"),
        ("Dinov2Model", VIT, CROP, "pooler"),
        ("ViTModel", VIT, SQUASH, "class token"),  # never a pooler with random weights
        ("ViTMAEModel", VIT, SQUASH, "class token"),
    ],
)  # fmt: skip
def test_features_of_transformers(
    transformers: Any,
    torch: Any,
    tmp_path: Path,
    kind: str,
    config: Any,
    processor: Any,
    taken: str,
) -> None:
    torch.manual_seed(0)
    family = kind.removesuffix("Model").removesuffix("ForImageClassification")
    options = {"add_pooling_layer": False} if (kind, taken) == ("ViTModel", "class token") else {}
    made = getattr(transformers, kind)(
        getattr(transformers, f"{family}Config")(**config), **options
    )
    reference = save_checkpoint(transformers, made, tmp_path, processor)
    model = load(f"hf/{tmp_path}")
    outputs, batch = run(torch, model)
    reference.config.mask_ratio = 0.0  # of ViTMAE, which otherwise hides most of the image
    parts, logits = [reference], None
    if taken.startswith("classifier"):
        features, found = input_of(reference, taken, pixel_values=batch)
        logits = found.logits
    elif taken in ("projection", "image tower"):
        features = reference.vision_model(pixel_values=batch).pooler_output
        parts = [reference.vision_model]
        if taken == "projection":
            features = reference.visual_projection(features)
            parts.append(reference.visual_projection)
    else:
        given = reference(pixel_values=batch)
        features = given.pooler_output if taken == "pooler" else given.last_hidden_state[:, 0]
    close(outputs.features, features)
    if logits is None:
        assert outputs.logits is None
    else:
        close(outputs.logits, logits)
    assert (model.info.parameters, model.info.n_logits) == (
        count(*parts), logits.shape[1] if logits is not None else None
    )  # fmt: skip
    assert load(f"hf/{tmp_path}").info.fingerprint == model.info.fingerprint


def test_checkpoints_that_cannot_be_used(
    transformers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(words: str, **fields: Any) -> None:
        with pytest.raises(InputError, match=words):
            load(f"hf/{tmp_path}/net", **fields)

    network = transformers.ViTModel(transformers.ViTConfig(**VIT))
    network.save_pretrained(tmp_path / "net")
    refused("has no usable image processor")
    stated = "input_size = 32\nmean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n"
    (tmp_path / "zoo.toml").write_text(f'[[model]]\nname = "a"\nsource = "hf/./net"\n{stated}')
    info = load_model(load_zoo(tmp_path / "zoo.toml")[0]).info
    assert info.preprocessing.geometry.crop == (32, 32)
    save_checkpoint(transformers, network, tmp_path / "net", ("EfficientNetImageProcessor", {}))
    refused(r"EfficientNetImageProcessor.* does more than resize")
    save_checkpoint(transformers, network, tmp_path / "net", SQUASH)
    refused("has no 'layers'; remove it from the arguments", arguments={"layers": 3})
    refused("; check the arguments", arguments={"hidden_size": 30})
    config = transformers.ViTConfig(**VIT, architectures=["ViTForImageClassification"])
    config.save_pretrained(tmp_path / "net")
    refused(r"lacks 2 weights of ViTForImageClassification")


# --- timm -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "test_vit.r160_in1k",
        "deit_tiny_distilled_patch16_224.fb_in1k",  # two classifiers
        "mobilenetv3_small_050.lamb_in1k",  # a layer between the pooling and the classifier
    ],
)
def test_features_and_logits_equal_those_of_timm(timm: Any, torch: Any, name: str) -> None:
    spec = ModelSpec("model", f"timm/{name}")
    built = build(spec, pretrained=False)
    reference = timm.create_model(name, pretrained=False).eval()
    reference.load_state_dict(built.module.state_dict())
    model = only_one(assemble_layers(built, [spec]))
    (features, logits), batch = run(torch, model)
    maps = reference.forward_features(batch)
    close(features, reference.forward_head(maps, pre_logits=True))
    close(logits, reference(batch))
    assert (model.info.feature_dim, model.info.n_logits, model.info.parameters) == (
        reference.head_hidden_size, 1000, count(reference)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "has_logits"),
    [
        ("vit_base_patch16_clip_quickgelu_224.openai", False),  # a projection
        ("vit_base_patch16_clip_224.openai_ft_in1k", True),
    ],
)
def test_projection_is_not_used_as_logits(
    timm: Any, torch: Any, name: str, has_logits: bool
) -> None:
    with torch.device("meta"):
        built = build(ModelSpec("model", f"timm/{name}"), pretrained=False)
        size = built.preprocessing.geometry.crop
        _, logits = built.forward(built.module.eval(), torch.zeros(1, 3, *size))
    assert (logits is not None) is has_logits


def test_architectures_and_arguments(timm: Any) -> None:
    model = load("timm/test_vit", pretrained=False, arguments={"img_size": 64})
    assert model.info.preprocessing.geometry.crop == (64, 64)
    with pytest.raises(InputError, match=r"unexpected keyword argument 'deep'.*; check the arg"):
        load("timm/test_vit", pretrained=False, arguments={"deep": 3})
    without = next(n for n in timm.list_models() if not timm.list_models(n + ".*", pretrained=True))
    with pytest.raises(InputError, match="has no pre-trained weights for"):
        load(f"timm/{without}")


# --- torchvision ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("densenet121", "classifier"),
        ("googlenet", "fc"),
        ("squeezenet1_1", "classifier.1"),
    ],
)
def test_features_are_the_input_of_the_last_layer_of_torchvision(
    torchvision: Any, torch: Any, name: str, head: str
) -> None:
    spec = ModelSpec("model", f"torchvision/{name}", input_size=64)
    torch.manual_seed(0)
    built = build(spec, pretrained=False)
    torch.manual_seed(0)
    options = {"transform_input": True, "init_weights": False, "aux_logits": False}
    reference = torchvision.models.get_model(name, **options if name == "googlenet" else {}).eval()
    model = only_one(assemble_layers(built, [spec]))
    outputs, batch = run(torch, model)
    features, logits = input_of(reference, head, x=batch)
    close(outputs.features, features.mean((2, 3)) if features.ndim == 4 else features)
    close(outputs.logits, logits)
    assert model.info.parameters == count(reference)


def published(torch: Any, kind: str, weights: dict[str, Any]) -> dict[str, Any]:
    """Weights of a ResNet in the form in which checkpoints are published."""
    backbone = {key: value for key, value in weights.items() if not key.startswith("fc.")}
    other = {key: 2 * value for key, value in backbone.items()}  # a moving average of the weights
    three = torch.zeros(3, 1, 1)
    extra = {
        "epoch": 9,
        "arch": "resnet18",
        "optimizer": {"state": {}, "param_groups": [{"lr": 0}]},
    }

    def named(prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
        return {prefix + key: value for key, value in tensors.items()}

    return {
        "IMAGENET1K_V1": weights,
        "swav": named("module.", backbone | {"prototypes.weight": three}),
        "moco": extra | {"state_dict": {"module.queue": three}
            | named("module.encoder_q.", backbone | {"fc.0.weight": three})
            | named("module.encoder_k.", other | {"fc.0.weight": three})},
    }[kind]  # fmt: skip


@pytest.mark.parametrize("kind", ["swav", "moco", "IMAGENET1K_V1"])
def test_weights_in_a_published_checkpoint_are_loaded(
    torchvision: Any, torch: Any, tmp_path: Path, monkeypatch: Any, kind: str
) -> None:
    torch.manual_seed(1)
    reference = torchvision.models.resnet18().eval()
    local = kind == "moco"
    name = "w.pth.tar" if kind != "IMAGENET1K_V1" else "resnet18-f37072fd.pth"
    folder = tmp_path if local else tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(published(torch, kind, reference.state_dict()), folder / name)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    where = f"/./{name}" if local else f"/https://example.org/some/{name}"
    where = f".{kind}" if kind == "IMAGENET1K_V1" else where
    spec = ModelSpec("model", f"torchvision/resnet18{where}", folder=tmp_path, input_size=64)
    model: Any = load_model(spec)
    found, batch = run(torch, model)
    features, logits = input_of(reference, "fc", x=batch)
    close(found.features, features)
    if kind == "IMAGENET1K_V1":
        close(found.logits, logits)
        assert model.info.pretraining == kind
    else:
        assert found.logits is None
        assert model.info.pretraining == name
        with pytest.raises(InputError, match=r"has the sha256 .* but its zoo file sets 0000000000"):
            load_model(replace(spec, sha256="0" * 64))


def test_checkpoints_that_cannot_be_loaded(torchvision: Any, torch: Any, tmp_path: Path) -> None:
    """Nothing in a checkpoint is run."""
    ran = tmp_path / "ran"

    class Code:
        def __reduce__(self) -> Any:
            return Path.touch, (ran,)

    weights = torchvision.models.resnet18().state_dict()
    torch.save({"state_dict": weights, "opt": Code()}, tmp_path / "code.pth")
    torch.save(weights, tmp_path / "small.pth")
    torch.save([1], tmp_path / "list.pth")
    for where, message in {
        "resnet18/./code.pth": "cannot load .* Weights only load failed",
        "resnet50/./small.pth": "has not all weights of torchvision's resnet50; it has names such "
        "as 'conv1.weight'",
        "resnet50/./list.pth": "it has no names",
        "resnet50/./none.pth": "cannot read .*none.pth': No such file",
        "resnet50/swav.pth": "'swav.pth' .* is neither a URL .* nor a path that begins with",
    }.items():
        with pytest.raises(InputError, match=message):
            load(f"torchvision/{where}", folder=tmp_path)
    assert not ran.exists()


# --- open_clip ------------------------------------------------------------------------------------

TOWERS: dict[str, dict[str, Any]] = {
    "small-resnet": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None},
    "small-timm": {"image_size": 64, "timm_model_name": "test_vit", "timm_model_pretrained": False,
                   "timm_pool": "token", "timm_proj": "linear"},
}  # fmt: skip


@pytest.mark.parametrize("name", TOWERS)
def test_features_are_the_embedding_of_a_loaded_file(
    open_clip: Any, torch: Any, tmp_path: Path, name: str
) -> None:
    text = {"context_length": 4, "vocab_size": 16, "width": 16, "heads": 2, "layers": 1}
    config = {"embed_dim": 24, "vision_cfg": TOWERS[name], "text_cfg": text}
    (tmp_path / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / f"{name}.json")
    torch.manual_seed(0)
    reference = open_clip.create_model(name).eval()
    torch.save(reference.state_dict(), tmp_path / "weights.pt")
    digest = hashlib.sha256((tmp_path / "weights.pt").read_bytes()).hexdigest()
    source = f"open_clip/{name}/./weights.pt"
    model = load(source, folder=tmp_path, sha256=digest)
    (features, logits), batch = run(torch, model)
    close(features, reference.encode_image(batch))
    assert (logits, model.info.parameters) == (None, count(reference.visual))
    with pytest.raises(InputError, match="has the sha256"):
        load(source, folder=tmp_path, sha256="0" * 64)


def test_quickgelu_follows_the_pretrained_weights(open_clip: Any, torch: Any) -> None:
    for tag, expected in (("openai", True), ("datacomp_xl_s13b_b90k", False)):
        spec = ModelSpec("model", f"open_clip/ViT-B-16/{tag}")
        with torch.device("meta"):
            module = build(spec, pretrained=False).module
        kinds = {type(part).__name__ for part in module.modules()}
        assert ("QuickGELU" in kinds) is expected


# --- torch.hub ------------------------------------------------------------------------------------


@pytest.fixture
def hub(torch: Any, tmp_path: Path) -> Path:
    """A folder with a hubconf.py."""
    for name, width in (("hub", 8), ("second", 9)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "hubconf.py").write_text(HUBCONF)
        (tmp_path / name / "nets.py").write_text(NETS.format(width=width))
    return tmp_path / "hub"


def test_models_of_torch_hub(hub: Path, torch: Any) -> None:
    source = f"torch_hub/{hub}:classifier"
    torch.manual_seed(5)
    first, again, untrained, other = (
        load(source, input_size=16).info,
        load(source, input_size=16).info,
        load(source, input_size=16, pretrained=False).info,
        load_model(ModelSpec("other", source, input_size=16)).info,
    )
    assert first == again  # random weights depend on the name only
    assert len({info.fingerprint for info in (first, untrained, other)}) == 3
    (hub / "nets.py").write_text(NETS.format(width=8).replace("relu", "tanh"))
    assert load(source, input_size=16).info.fingerprint != first.fingerprint  # the code is hashed
    second = load(f"torch_hub/{hub.parent}/second:classifier", input_size=16).info
    assert (first.feature_dim, second.feature_dim) == (8, 9)  # two modules of one name
    assert "nets" not in sys.modules
    plain = load(f"torch_hub/{hub}:backbone", input_size=16).info
    assert (plain.feature_dim, plain.n_logits) == (6, None)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "pytorch/vision:resnet18",
            "there is no folder 'pytorch/vision'; a repository on GitHub i",
        ),
        ("{hub}", "names no entry point; write torch_hub/<folder>:<entry point>"),
        ("{hub}/..:classifier", "has no hubconf.py"),
        ("{hub}:classifer", "does not exist; did you mean classifier?"),
        ("{hub}:zzz", "does not exist; it has classifier, backbone, pickled, number, pair, broken"),
        ("{hub}:number", "returned int, not a module of PyTorch"),
        ("{hub}:pair", "fails on an image of 16×16 pixels"),
        ("{hub}:broken", "failed: KeyError: 'no such thing'"),
        ("{hub}:pickled", "failed: UnpicklingError: "),
    ],
)
def test_folders_of_torch_hub_that_cannot_be_used(
    hub: Path, torch: Any, source: str, words: str
) -> None:
    torch.save(torch.nn.Linear(2, 2), hub / "weights.pt")
    with pytest.raises(InputError) as caught:
        load("torch_hub/" + source.format(hub=hub), input_size=16)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# --- sentence-transformers ------------------------------------------------------------------------

TEXTS = ["a good film", "the room was not warm and the meal was cold", "", "unknown words"]


@pytest.mark.parametrize(
    "options", [{"normalise": True}, {"pooling": "cls"}, {"prompt": "really: "}]
)
def test_features_are_sentence_embeddings(tmp_path: Path, options: dict[str, Any]) -> None:
    encoder = save_text_model(tmp_path / "text", **options)
    model = load(f"sentence-transformers/{tmp_path}/text")
    outputs = model(TEXTS)
    expected = np.stack([encoder.encode(text) for text in TEXTS])
    np.testing.assert_allclose(outputs.features, expected, atol=1e-5)
    assert model.info.preprocessing == TextPreprocessing(64, options.get("prompt", ""))


def test_identity_precision_and_inputs_of_text_models(tmp_path: Path) -> None:
    def fingerprint(name: str, **options: Any) -> str:
        save_text_model(tmp_path / name, **options)
        found: str = load(f"sentence-transformers/{tmp_path}/{name}").info.fingerprint
        return found

    first = fingerprint("first")
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    source = f"sentence-transformers/{tmp_path}/copy"
    single, half = (
        load_model(ModelSpec("copy", source), precision=each) for each in ("float32", "bfloat16")
    )
    assert single.info.fingerprint == half.info.fingerprint == first
    assert 0 < np.abs(single(TEXTS).features - half(TEXTS).features).max() < 0.1
    others = [
        fingerprint("weights", seed=1),
        fingerprint("pooling", pooling="max"),
        fingerprint("normalised", normalise=True),
        fingerprint("tokens", words=("The", "quick", "jumps_over", *WORDS[3:])),
    ]
    assert len({first, *others}) == 5
    for wrong in ("one text", [1, 2], [None]):
        with pytest.raises(InputError, match="takes a list of strings, got"):
            single(wrong)
    for fields, words in (
        ({"input_size": 32}, "takes text and has no input_size; remove it"),
        ({"mean": (0.0, 0.0, 0.0)}, "takes text and has no mean"),
        ({"sha256": "0" * 64}, "sha256 can be verified only for"),
        ({"feature_dim": 5}, "returns 32 features, but its zoo file sets feature_dim = 5"),
    ):
        with pytest.raises(InputError, match=words):
            load(source, **fields)
