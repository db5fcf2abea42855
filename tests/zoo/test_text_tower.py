"""Prompts and names of classes; text towers against the classifiers of their own libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles import zero_shot as oracle
from tests.small_clip import small_clip
from tests.zoo.data import VIT, noise

from oodzoo.core.errors import InputError
from oodzoo.extraction.columns import normalise
from oodzoo.linear.heads.linear import zero_shot_head
from oodzoo.zoo import load_model
from oodzoo.zoo.prompts import (
    PROMPTS,
    Prompts,
    TextTower,
    embed_classes,
    parse_class_names,
    read_prompts,
    texts_of,
)
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.spec import ModelSpec

CLASS_NAMES = ["dog", "alarm clock", "a very long name " * 30]


def test_the_formula() -> None:
    rng = np.random.default_rng(0)
    texts = {f"{a} {b}": rng.normal(size=5) for a in "xyz" for b in "pq"}
    tower = TextTower(lambda some: np.array([texts[text] for text in some]), 1.0)
    found = embed_classes(tower, ["x", "y", "z"], ["{} p", "{} q"])
    expected = [oracle.class_embedding([texts[f"{a} p"], texts[f"{a} q"]]) for a in "xyz"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == np.float32


def test_embeddings_that_are_not_finite() -> None:
    with pytest.raises(InputError, match="the text tower returns NaN"):
        embed_classes(TextTower(lambda texts: np.full((len(texts), 2), np.nan), 1.0), ["a"], ["{}"])


@pytest.mark.parametrize("bias", [None, -7.5])
def test_what_open_clip_classifies(
    open_clip: Any, torch: Any, tmp_path: Path, bias: float | None
) -> None:
    spec = small_clip(tmp_path, bias=bias)
    tower = get_source("open_clip").text_tower(spec, device="cpu")
    assert tower is not None
    name = f"local-dir:{spec.folder / spec.identifier.partition(':')[2]}"
    whole = open_clip.create_model(name, require_pretrained=True).eval()
    tokenize = open_clip.get_tokenizer(name)
    with torch.no_grad():
        weights = open_clip.build_zero_shot_classifier(whole, tokenize, CLASS_NAMES, PROMPTS)
    embeddings = embed_classes(tower, CLASS_NAMES, PROMPTS)
    np.testing.assert_allclose(embeddings, weights.T, atol=1e-6)
    model = load_model(spec)
    pixels = noise(4, 32)
    batch = torch.from_numpy(model.info.preprocessing.normalise(pixels))
    with torch.no_grad():
        images = whole.encode_image(batch, normalize=True)
        expected = whole.logit_scale.exp() * images @ weights + (bias or 0.0)
    head = zero_shot_head(embeddings, tower.scale, tower.bias)
    found = head.logits(normalise(model(pixels).features))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_what_transformers_classifies(
    transformers: Any, torch: Any, tmp_path: Path, kind: str
) -> None:
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 16}
    size |= {"num_hidden_layers": 1, "num_attention_heads": 2}
    vision = {**size, "image_size": 16, "patch_size": 8}
    text = {**size, "max_position_embeddings": 24, "vocab_size": 64}
    text |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    more = {"projection_dim": 16} if kind == "CLIP" else {}
    config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=vision, **more)
    whole = getattr(transformers, f"{kind}Model")(config).eval()
    whole.logit_scale.data.fill_(2.5)
    if kind == "Siglip":
        whole.logit_bias.data.fill_(-3.0)
    whole.save_pretrained(tmp_path)
    tokenizer = _tokenizer(transformers, tmp_path)
    spec = ModelSpec("model", "hf/./", folder=tmp_path)
    tower = get_source("hf").text_tower(spec, device="cpu")
    assert tower is not None
    pixels = torch.rand(3, 3, 16, 16)
    prompt = "a photo of a {}."
    tokens = tokenizer(
        [prompt.replace("{}", name) for name in CLASS_NAMES],
        padding="max_length", truncation=True, max_length=24, return_tensors="pt",
    )  # fmt: skip
    with torch.no_grad():
        expected = whole(pixel_values=pixels, **tokens).logits_per_image
        images = whole.get_image_features(pixel_values=pixels)
    images = getattr(images, "pooler_output", images).numpy()
    embeddings = embed_classes(tower, CLASS_NAMES, [prompt])
    head = zero_shot_head(embeddings, tower.scale, tower.bias)
    np.testing.assert_allclose(head.logits(normalise(images)), expected, atol=1e-4)
    assert np.ptp(expected.numpy(), axis=1).min() > 0.01  # the texts differ


def _tokenizer(transformers: Any, folder: Path) -> Any:
    """A tokeniser of letters, saved with the model."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = ["<pad>", "<s>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz."]
    vocabulary = {letter: at for at, letter in enumerate(letters)}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain,
        pad_token="</s>",
        eos_token="</s>",
        unk_token="<unk>",
        model_input_names=["input_ids", "attention_mask"],
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def test_models_without_a_text_tower(transformers: Any, tmp_path: Path) -> None:
    transformers.ViTModel(transformers.ViTConfig(**VIT)).save_pretrained(tmp_path)
    for source in ("hf/./", "onnx/m", "timm/m", "torchvision/m"):
        spec = ModelSpec("m", source, folder=tmp_path)
        assert get_source(spec.kind).text_tower(spec, device="cpu") is None


def test_names_and_prompts_of_files_and_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "names").write_text(
        "\ufeff# classes\n\nn1 = a dog, sitting\nn2=cat = feline\n", encoding="utf-8"
    )
    names = {"n1": "a dog, sitting", "n2": "cat = feline"}
    assert parse_class_names(str(tmp_path / "names")) == names
    assert parse_class_names("n1=dog,n2 = cat") == {"n1": "dog", "n2": "cat"}
    (tmp_path / "prompts").write_text("a photo of a {}.\n\n# other styles\n  art of the {}.  \n")
    assert read_prompts(tmp_path / "prompts") == ("a photo of a {}.", "art of the {}.")


def fit(**names: str) -> None:
    Prompts(names).require_classes(["a", "b", "c"])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fit(a="x", b="y"), r"lack 1 class of the data: 'c'; give"),
        (lambda: fit(a="x", b="y", c="z", cc="w"), "have 'cc', which is not a class; did you"),
        (lambda: fit(a="x", b=" ", c="z"), "the name of the class 'b' is empty"),
        (lambda: Prompts(templates=()), "there is no prompt; give at least one"),
        (lambda: Prompts(templates=("a {name}",)), r"'a {name}' has no place .*; write {} there"),
        (lambda: Prompts(templates=("a {}.", "b {}", "a {}.")), r"'a {}\.' is given twice"),
        (lambda: parse_class_names("names.txt"), "there is no file 'names.txt'"),
        (lambda: parse_class_names("n1=dog,cat"), "--class-names: 'cat' is not CLASS=TEXT"),
        (lambda: parse_class_names("n1=dog,n1=cat"), "--class-names names the class 'n1' twice"),
        (lambda: parse_class_names("bytes"), r"cannot read 'bytes': "),
        (lambda: read_prompts("empty"), r"the file 'empty': there is no prompt"),
        (lambda: texts_of(["a_b", "a b"], None), "two classes have the name 'a b'"),
    ],
)
def test_names_and_prompts_that_cannot_be_used(
    call: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
