"""One contract for all sources of models; what is special about one has a test of its own.

Each source has a small model with random weights on disk, and the same model as its own library
loads it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.small_clip import small_clip
from tests.text_models import save_text_model
from tests.zoo.data import (
    HUBCONF,
    NETS,
    SQUASH,
    VIT,
    cache_file,
    image_processor,
    noise,
    save_checkpoint,
)

from oodzoo.core.errors import InputError
from oodzoo.zoo import ModelSpec, load_model, load_zoo
from oodzoo.zoo.listing import ListedModel
from oodzoo.zoo.model import Model, Weights, collect_together, launch_together
from oodzoo.zoo.sources import (
    get_source,
    load_network,
    load_trainable,
    load_trainable_network,
    portable_source,
)
from oodzoo.zoo.zoos import with_layer

TEXTS = ["a good film", "the room was not warm", ""]


@dataclass
class Small:
    """A model on disk, and what its library computes for a normalised batch, or for texts."""

    spec: ModelSpec
    features: Callable[[Any], Any]
    logits: Callable[[Any], Any] | None = None
    parameters: int = 0
    layer: str = ""
    tapped: Callable[[Any], Any] | None = None
    """Pooled output of the layer."""
    head: str = "nothing"
    """Beginning of the names of weights that the features do not depend on."""
    arguments: dict[str, Any] = field(default_factory=dict)


def count(module: Any) -> int:
    return sum(each.numel() for each in module.parameters())


def hooked(module: Any, name: str, call: Callable[[Any], Any], *, output: bool) -> Any:
    """The input or the output of a part of a module in a forward pass."""

    def run(batch: Any) -> Any:
        import torch

        seen: list[Any] = []
        part = module.get_submodule(name)
        if output:
            hook = part.register_forward_hook(lambda _, inputs, result: seen.append(result))
        else:
            hook = part.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        with torch.no_grad():
            call(batch)
        hook.remove()
        return seen[0][0] if isinstance(seen[0], tuple) else seen[0]

    return run


def mean_map(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda batch: run(batch).mean((2, 3))


def first_token(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda batch: run(batch)[:, 0]


def small_hf(folder: Path, request: Any) -> Small:
    transformers = request.getfixturevalue("transformers")
    kind = transformers.ViTForImageClassification
    config = transformers.ViTConfig(**VIT, num_labels=7)
    module = save_checkpoint(transformers, kind(config), folder / "vit", SQUASH)
    spec = ModelSpec("net", "hf/./vit", folder=folder)
    layer = get_source("hf").layers(spec)[0]
    return Small(
        spec,
        hooked(module, "classifier", lambda x: module(pixel_values=x), output=False),
        lambda x: module(pixel_values=x).logits,
        count(module),
        layer,
        first_token(
            hooked(module, layer.removeprefix("backbone."), lambda x: module(pixel_values=x),
                   output=True)
        ),
        head="network.head",
        arguments={"num_hidden_layers": 1},
    )  # fmt: skip


def small_onnx(folder: Path, request: Any) -> Small:
    from tests.zoo.small_onnx import Writer, convolutions, require_converter

    onnx = require_converter()
    import onnxruntime

    writer = Writer(onnx)
    convolutions(writer)
    writer.weight("matrix", 6, 4)
    writer.add("MatMul", "flat matrix", "logits")
    spec = writer.write(folder / "net.onnx", ("flat", "logits"), logits="logits")
    proto = onnx.load(spec.file)
    proto.graph.output.append(onnx.ValueInfoProto(name="active"))
    session = onnxruntime.InferenceSession(proto.SerializeToString())

    def run(name: str) -> Callable[[Any], Any]:
        import torch

        return lambda x: torch.from_numpy(session.run([name], {"x": x.numpy()})[0])

    n = sum(each.size for each in writer.weights.values())
    return Small(spec, run("flat"), run("logits"), n, "active", mean_map(run("active")))


def small_open_clip(folder: Path, request: Any) -> Small:
    open_clip = request.getfixturevalue("open_clip")
    spec = replace(small_clip(folder), name="net")
    whole = open_clip.create_model(f"local-dir:{folder / 'clip'}", require_pretrained=True).eval()
    layer = "transformer.resblocks.0"
    run = hooked(whole.visual, layer, whole.encode_image, output=True)
    return Small(
        spec, whole.encode_image, None, count(whole.visual), layer, first_token(run),
    )  # fmt: skip


def small_timm(folder: Path, request: Any) -> Small:
    timm = request.getfixturevalue("timm")
    reference = timm.create_model("test_resnet.r160_in1k", num_classes=7).eval()
    timm.models.save_for_hf(reference, folder / "saved", safe_serialization=True)
    reference = timm.create_model(f"local-dir:{folder / 'saved'}", pretrained=True).eval()
    return Small(
        ModelSpec("net", "timm/local-dir:saved", folder=folder),
        lambda x: reference.forward_head(reference.forward_features(x), pre_logits=True),
        reference,
        count(reference),
        "layer1",
        mean_map(hooked(reference, "layer1", reference, output=True)),
        head="network.fc",
        arguments={"global_pool": "max"},
    )


def small_torch_hub(folder: Path, request: Any) -> Small:
    request.getfixturevalue("torch")
    (folder / "hub").mkdir()
    (folder / "hub" / "hubconf.py").write_text(HUBCONF)
    (folder / "hub" / "nets.py").write_text(NETS.format(width=8))
    spec = ModelSpec("net", "torch_hub/hub:classifier", input_size=16, folder=folder)
    parts = get_source("torch_hub").build(spec).module  # type: ignore[attr-defined]
    run = parts["backbone"].conv
    features = mean_map(lambda x: run(x).relu())
    return Small(
        spec, features, lambda x: parts["head"](features(x)), count(parts), "conv",
        mean_map(run), head="network.head", arguments={"width": 12},
    )  # fmt: skip


def small_torchvision(folder: Path, request: Any) -> Small:
    torchvision = request.getfixturevalue("torchvision")
    import torch

    torch.manual_seed(1)
    reference = torchvision.models.resnet18().eval()
    torch.save(reference.state_dict(), folder / "weights.pth")
    spec = ModelSpec("net", "torchvision/resnet18/./weights.pth", input_size=64, folder=folder)
    return Small(
        spec,
        hooked(reference, "fc", reference, output=False),
        reference,
        count(reference),
        "layer1",
        mean_map(hooked(reference, "layer1", reference, output=True)),
        head="network.head",
    )


def small_text(folder: Path, request: Any) -> Small:
    encoder = save_text_model(folder / "text")
    spec = ModelSpec("net", "sentence-transformers/./text", folder=folder)
    return Small(spec, lambda texts: np.stack([encoder.encode(each) for each in texts]),
                 None, count(encoder))  # fmt: skip


MADE = {
    "hf": small_hf, "onnx": small_onnx, "open_clip": small_open_clip, "timm": small_timm,
    "torch_hub": small_torch_hub, "torchvision": small_torchvision,
    "sentence-transformers": small_text,
}  # fmt: skip


@pytest.fixture(scope="module", params=sorted(MADE))
def small(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Small:
    folder = tmp_path_factory.mktemp(request.param)
    return MADE[request.param](folder, request)


@pytest.fixture
def image_model(small: Small) -> Small:
    if small.spec.kind == "sentence-transformers":
        pytest.skip("a source of text")
    return small


def inputs_of(model: Model, n: int = 2) -> tuple[Any, Any]:
    """Noise or texts for a model, and for its library."""
    if model.modality == "text":
        return TEXTS, TEXTS
    import torch

    pixels = noise(n, model.info.preprocessing.geometry.crop[0])
    return pixels, torch.from_numpy(model.info.preprocessing.normalise(pixels))


def close(found: Any, expected: Any) -> None:
    found, expected = (
        each.detach().numpy() if hasattr(each, "detach") else each for each in (found, expected)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# --- loading --------------------------------------------------------------------------------------


def test_features_and_logits_are_those_of_the_library(small: Small) -> None:
    model = load_model(small.spec)
    given, batch = inputs_of(model)
    outputs, info = model(given), model.info
    expected = small.features(batch)
    close(outputs.features, expected)
    assert outputs.features.dtype == np.float32
    assert (info.name, info.feature_dim, info.parameters) == (
        "net", expected.shape[1], small.parameters,
    )  # fmt: skip
    if small.logits is None:
        assert (outputs.logits, info.n_logits) == (None, None)
    else:
        logits = small.logits(batch)
        close(outputs.logits, logits)
        assert info.n_logits == logits.shape[1]


def test_a_model_is_its_content(small: Small, tmp_path: Path) -> None:
    """The same elsewhere and in a zoo file; another one with a flipped weight or argument."""
    spec = small.spec
    shutil.copytree(spec.folder, tmp_path / "copy")
    (tmp_path / "copy" / "zoo.toml").write_text(
        f'[[model]]\nname = "other"\nsource = "{spec.source}"\npretraining = "mine"\n'
        + "".join(
            f"{key} = {json.dumps(value)}\n"
            for key in ("input_size", "mean", "std", "features", "logits")
            if (value := getattr(spec, key)) is not None
        )
    )
    (elsewhere,) = load_zoo(tmp_path / "copy" / "zoo.toml")
    if spec.kind == "torch_hub":  # whose random weights depend on the name
        elsewhere = replace(elsewhere, name="net")
    first, moved = load_model(spec).info, load_model(elsewhere).info
    assert moved.fingerprint == first.fingerprint
    assert (moved.pretraining, elsewhere.name == moved.name) == ("mine", True)
    if small.arguments:
        changed = load_model(replace(spec, arguments=small.arguments, pretrained=None)).info
        assert changed.fingerprint != first.fingerprint
    assert str(spec.folder) not in portable_source(replace(spec, folder=Path()))


def test_what_a_zoo_file_states_wins(image_model: Small) -> None:
    spec, size = image_model.spec, 8 if image_model.spec.kind == "onnx" else 64
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    if spec.kind == "open_clip":
        size = 48
    if spec.kind == "hf":  # the size of its position embeddings
        size = 32
    stated = replace(spec, input_size=size, mean=mean, std=std)
    info = load_model(stated).info
    assert info.preprocessing.geometry.crop == (size, size)
    assert (info.preprocessing.mean, info.preprocessing.std) == (mean, std)
    again = ModelSpec(**stated.to_dict(), folder=spec.folder)
    assert load_model(again).info == info
    with pytest.raises(InputError, match="features, but its zoo file sets feature_dim = 99"):
        load_model(replace(spec, feature_dim=99))


def test_random_weights_are_drawn_by_name(torchvision: Any, torch: Any) -> None:
    arguments = {"num_classes": 4}
    random = ModelSpec(
        "net", "torchvision/resnet18", input_size=64, arguments=arguments, pretrained=False
    )
    first = load_model(random).info
    state = torch.get_rng_state()
    assert load_model(random).info == first
    assert torch.equal(torch.get_rng_state(), state)
    assert (first.pretraining, first.n_logits) == ("none, random weights", 4)
    for other in (replace(random, name="other"), replace(random, arguments=None)):
        assert load_model(other).info.fingerprint != first.fingerprint


# --- layers and training --------------------------------------------------------------------------


def test_a_layer(image_model: Small) -> None:
    """Its pooled output, alone and beside the features."""
    layer = with_layer(image_model.spec, image_model.layer, None)
    models = load_network([image_model.spec, layer], device="cpu", precision="float32")
    loaded = [each for each in models if isinstance(each, Model)]
    assert len(loaded) == 2, models
    pixels, batch = inputs_of(loaded[0])
    together = collect_together(loaded, launch_together(loaded, loaded[0].prepare(pixels)))
    assert image_model.tapped is not None
    close(together.outputs[1].features, image_model.tapped(batch))
    close(together.outputs[0].features, image_model.features(batch))
    alone = load_model(layer)
    close(alone(pixels).features, together.outputs[1].features)
    assert alone.info == loaded[1].info
    assert alone.info.fingerprint != loaded[0].info.fingerprint
    with pytest.raises(InputError, match="there is no layer 'zzz'"):
        load_model(replace(layer, layer="zzz"))


def test_a_trainable_module(image_model: Small, tmp_path: Path) -> None:
    """Gradients reach every weight that the features depend on; a layer shares the network."""
    spec = image_model.spec
    model = load_model(spec)
    pixels, batch = inputs_of(model)
    made = load_trainable(spec, model.info.preprocessing)
    assert (made.name, made.feature_dim) == ("net", model.info.feature_dim)
    assert not made.module.training
    found = made.module(batch)
    close(found, model(pixels).features)
    (found**2).sum().backward()
    for name, weight in made.module.named_parameters():
        used = weight.grad is not None
        assert weight.requires_grad is used is not name.startswith(image_model.head), name
    layer = with_layer(spec, image_model.layer, None)
    several = load_trainable_network([layer, spec], model.info.preprocessing)(batch)
    for features, each in zip(several, (layer, spec), strict=True):
        close(features, load_model(each)(pixels).features)
    alone = load_trainable(layer, model.info.preprocessing).module
    frozen = [name for name, each in alone.named_parameters() if not each.requires_grad]
    assert frozen or spec.kind == "onnx"  # what follows the layer
    with pytest.raises(InputError, match="there is no layer 'zzz'"):
        load_trainable(replace(layer, layer="zzz"), model.info.preprocessing)


def test_text_has_no_layers_and_is_not_trained(tmp_path: Path) -> None:
    spec = ModelSpec("net", f"sentence-transformers/{tmp_path}")
    with pytest.raises(InputError, match="has no layers to choose from; remove '@x'"):
        load_model(replace(spec, layer="x"))
    for load in (load_trainable, lambda spec, p: load_trainable_network([spec], p)):
        with pytest.raises(InputError, match="of the kind sentence-transformers cannot be trained"):
            load(spec, None)  # type: ignore[arg-type]


# --- before loading -------------------------------------------------------------------------------


def test_what_is_known_before_loading(small: Small) -> None:
    listed = ListedModel(small.spec)
    kind = small.spec.kind
    counted = kind not in ("sentence-transformers", "torch_hub")
    assert listed.parameters == (small.parameters if counted else None)
    assert listed.licence is None
    if kind == "torch_hub":
        assert listed.weights is None
        return
    path = get_source(kind).local_path(small.spec)
    assert path is not None
    files = [path] if path.is_file() else [each for each in path.iterdir() if each.is_file()]
    if kind != "torchvision":
        size = sum(each.stat().st_size for each in files)
        assert listed.weights == Weights(path.parent, True, size)


@pytest.mark.parametrize(
    ("source", "repository", "name"),
    [
        ("timm/test_vit.r160_in1k", "timm/test_vit.r160_in1k", "model.safetensors"),
        ("timm/hf-hub:me/net", "me/net", "pytorch_model.bin"),
        ("open_clip/hf-hub:me/net", "me/net", "open_clip_model.safetensors"),
        ("open_clip/ViT-B-32/laion2b_s34b_b79k", "laion/CLIP-ViT-B-32-laion2B-s34B-b79K",
         "open_clip_model.safetensors"),
        ("open_clip/ViTamin-L-256/datacomp1b", "jienengchen/ViTamin-L-256px", "pytorch_model.bin"),
        ("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2",
         "model.safetensors"),
    ],
)  # fmt: skip
def test_weights_in_the_cache_of_the_hub(
    timm: Any, open_clip: Any, hub_cache: Path, source: str, repository: str, name: str
) -> None:
    found: Any = get_source(source.partition("/")[0]).weights(ModelSpec("net", source))
    assert (found.folder, found.is_local) == (hub_cache, False)
    cache_file(hub_cache, repository, name, b"12345")
    found = get_source(source.partition("/")[0]).weights(ModelSpec("net", source))
    assert found == Weights(hub_cache, True, 5)


def test_weights_at_a_url(
    timm: Any, torchvision: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes are those that are published: https://download.pytorch.org/models/resnet18-…."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    configs = [timm.get_pretrained_cfg(name) for name in timm.list_models(pretrained=True)]
    config = next(each for each in configs if each.url and not each.hf_hub_id)
    for source, size, name in (
        ("torchvision/resnet18", 46_830_571, "resnet18-f37072fd.pth"),
        ("torchvision/resnet18/https://example.org/swav.pth.tar", None, "swav.pth.tar"),
        (f"timm/{config.architecture}.{config.tag}".rstrip("."), None, Path(config.url).name),
    ):
        ask = get_source(source.partition("/")[0]).weights
        found: Any = ask(ModelSpec("net", source))
        assert (found.folder, found.is_local) == (folder, False)
        assert found.size == (size if size is None else pytest.approx(size, abs=1000))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"123")
        assert ask(ModelSpec("net", source)) == Weights(folder, True, 3)


def test_licences(timm: Any, torchvision: Any) -> None:
    unknown = next(
        name
        for name in timm.list_models(pretrained=True)
        if timm.get_pretrained_cfg(name).license in (None, "unknown")
    )
    for source, licence in (
        ("timm/resnet50", "apache-2.0"),  # of its default weights
        (f"timm/{unknown}", None),
        ("torchvision/resnet50", None),
        ("open_clip/ViT-B-32/openai", None),  # the hub is not asked
        ("hf/me/net", None),
    ):
        assert ListedModel(ModelSpec("net", source)).licence == licence
    swag = ListedModel(ModelSpec("net", "torchvision/vit_b_16.IMAGENET1K_SWAG_E2E_V1"))
    assert "SWAG" in str(swag.licence)


def test_names_of_pre_trained_models(timm: Any, torchvision: Any, open_clip: Any) -> None:
    listed = {kind: get_source(kind).names("*") for kind in ("timm", "torchvision", "open_clip")}
    assert len(listed["timm"]) > 1000
    assert all(timm.get_pretrained_cfg(name).has_weights for name in listed["timm"][::50])
    assert "ViT-B-32/openai" in listed["open_clip"]
    assert "fasterrcnn_resnet50_fpn" not in listed["torchvision"]
    weights = get_source("torchvision").names("*.*")
    assert {"resnet50.IMAGENET1K_V1", "resnet50.IMAGENET1K_V2"} <= set(weights)
    assert not any(name.endswith("DEFAULT") for name in weights)
    assert {name.partition(".")[0] for name in weights} == set(listed["torchvision"])


# --- preprocessing --------------------------------------------------------------------------------


def of_timm(name: str, request: Any) -> tuple[Any, Callable[[Any], Any]]:
    timm, torch = (request.getfixturevalue(each) for each in ("timm", "torch"))
    if not timm.list_models(name, pretrained=True):
        pytest.skip(f"timm {timm.__version__} does not have {name}")
    with torch.device("meta"):
        built = built_of(f"timm/{name}")
    config = timm.data.resolve_model_data_config(built.module)
    return built.preprocessing, timm.data.create_transform(**config, is_training=False)


def of_torchvision(name: str, request: Any) -> tuple[Any, Callable[[Any], Any]]:
    torchvision, torch = (request.getfixturevalue(each) for each in ("torchvision", "torch"))
    with torch.device("meta"):
        ours = built_of(f"torchvision/{name}").preprocessing
    name, _, weights = name.partition(".")
    known = torchvision.models.get_model_weights(name)
    return ours, known[weights or "DEFAULT"].transforms()


def of_open_clip(name: str, request: Any) -> tuple[Any, Callable[[Any], Any]]:
    open_clip, torch = (request.getfixturevalue(each) for each in ("open_clip", "torch"))
    with torch.device("meta"):
        built = built_of(f"open_clip/{name}")
    config = open_clip.transform.PreprocessCfg(**built.module.preprocess_cfg)
    return built.preprocessing, open_clip.transform.image_transform_v2(config, is_train=False)


def built_of(source: str) -> Any:
    kind = source.partition("/")[0]
    return get_source(kind).build(ModelSpec("net", source), pretrained=False)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (of_timm, "resnet50.a1_in1k"),  # cut out of something larger, bicubic
        (of_timm, "vit_small_patch14_dinov2.lvd142m"),  # nothing beside the centre is cut away
        (of_timm, "deepseek_vit_412m.deepseek_v4_flash_vision_exp"),  # padded
        (of_timm, "vit_base_patch16_sapiens2.fb"),  # not square
        (of_torchvision, "resnet50.IMAGENET1K_V1"),
        (of_open_clip, "RN50/openai"),  # the shorter side fits
        (of_open_clip, "ViT-B-16-SigLIP2/webli"),  # squashed, another mean
        (of_open_clip, "MobileCLIP-S1/datacompdr"),  # bilinear
    ],
)
def test_preprocessing_is_that_of_the_library(
    images: list[Any], request: Any, of: Any, name: str
) -> None:
    ours, theirs = of(name, request)
    for image in images:
        np.testing.assert_allclose(
            ours([image])[0], theirs(image), atol=1e-6, err_msg=str(image.size)
        )


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        SQUASH,
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 224}, "crop_pct": 0.95}),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}}),
        ("BeitImageProcessor", {"do_center_crop": True, "crop_size": {"height": 99, "width": 95}}),
        ("ViTImageProcessor", {"do_normalize": False, "resample": 1}),
        ("ViTImageProcessor", {"rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1]}),
        ("BitImageProcessor",
         {"size": {"shortest_edge": 30}, "crop_size": {"height": 33, "width": 41}}),
    ],
)  # fmt: skip
def test_preprocessing_is_that_of_the_image_processor(
    transformers: Any, tmp_path: Path, images: list[Any], kind: str, settings: Any
) -> None:
    network = transformers.ViTModel(transformers.ViTConfig(**VIT))
    save_checkpoint(transformers, network, tmp_path, (kind, settings))
    ours = built_of(f"hf/{tmp_path}").preprocessing
    processor = image_processor(transformers, kind, settings)
    for image in images:
        theirs = processor(image, return_tensors="np")["pixel_values"]
        np.testing.assert_allclose(ours([image]), theirs, atol=1e-6, err_msg=str(image.size))


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("timm/resnet50.a9_in1k", "no weights 'resnet50.a9_in1k'; it has resnet50.a1_in1k, "),
        ("timm/resnet10t.c3_in1k", "is not in the cache"),
        ("torchvision/resnet5", "has no classification model 'resnet5'; did you mean "),
        ("torchvision/resnet50.V9", "no weights 'V9' for resnet50; it has IMAGENET1K_V1, IMAGE"),
        ("open_clip/ViT-B-17/openai", "has no architecture 'ViT-B-17'; did you mean "),
        ("open_clip/ViT-B-16/openia", "has no weights 'openia' for ViT-B-16; it has openai, "),
        ("open_clip/ViT-B-32/commonpool_s_text_s13m_b4k", "is not in the cache"),
        ("hf/./nowhere", "'nowhere' is not a transformers checkpoint: it has no config.json"),
        ("hf/nobody/nothing-at-all", "is not in the cache"),
        ("sentence-transformers/./nowhere", "it has no modules.json"),
    ],
)
def test_errors_are_one_line(
    timm: Any, torchvision: Any, open_clip: Any, transformers: Any, source: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_model(ModelSpec("net", source))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    if "cache" not in words:
        assert ListedModel(ModelSpec("net", source)).parameters is None


@pytest.mark.parametrize("kind", sorted(MADE))
def test_a_checksum_that_cannot_be_verified_or_is_wrong(
    timm: Any, open_clip: Any, transformers: Any, tmp_path: Path, kind: str
) -> None:
    identifiers = {"torchvision": "resnet18", "open_clip": "ViT-B-16/openai"}
    (tmp_path / "net").touch()
    spec = ModelSpec("net", f"{kind}/{identifiers.get(kind, './net')}", folder=tmp_path)
    expected = "has the sha256" if kind == "onnx" else "sha256 can be verified only for a model in"
    with pytest.raises(InputError, match=expected):
        load_model(replace(spec, sha256="0" * 64))


@pytest.mark.parametrize(
    ("zoo", "words"),
    [
        ("hf/me/*", "needs the Hugging Face Hub, and HF_HUB_OFFLINE is set; unset it, or name the"),
        ("hf/*", "must name an owner before the wildcard, as in hf/facebook/dinov2*"),
        ("sentence-transformers/all*", "are not listed anywhere; name them"),
        ("torch_hub/nowhere*:net", "no model matches"),
    ],
)
def test_patterns_that_cannot_be_listed(hub_cache: Path, zoo: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_zoo(zoo)
    assert words in str(caught.value)


@pytest.mark.parametrize("kind", ["hf", "sentence-transformers"])
def test_a_folder_that_is_named_like_a_model_of_the_hub(
    transformers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "me" / "net").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=rf"'me/net' here; write {kind}/\./me/net for it"):
        load_model(ModelSpec("net", f"{kind}/me/net"))
