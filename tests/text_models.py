"""Small sentence-transformers encoders with random weights, made offline."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from oodzoo.core.errors import MissingPackageError
from oodzoo.core.packages import import_torchvision, optional_package, torchvision_installed

WORDS = (
    *("the", "a", "good", "bad", "fine", "poor", "film", "book", "meal", "room", "was", "is"),
    *("very", "not", "cheap", "dear", "warm", "cold", "long", "short", "and", "but", "really"),
)
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def sentence_transformers() -> Any:
    """The package; the test is skipped where it is not installed."""
    try:
        optional_package("torch", extra="torch", purpose="this test").set_num_threads(1)
        if torchvision_installed():
            import_torchvision(extra="hf", purpose="this test")
        return optional_package(
            "sentence_transformers", extra="sentence-transformers", purpose="this test"
        )
    except MissingPackageError as error:
        pytest.skip(str(error))


def save_text_model(
    folder: Path,
    *,
    seed: int = 0,
    width: int = 32,
    words: Sequence[str] = WORDS,
    pooling: str = "mean",
    prompt: str = "",
    normalise: bool = False,
) -> Any:
    """Save a BERT with random weights and a tokenizer of few words; return the encoder."""
    library = sentence_transformers()
    tokenizers, torch, transformers = map(import_module, ("tokenizers", "torch", "transformers"))
    base = folder.with_name(f"{folder.name}.transformers")
    vocabulary = {word: number for number, word in enumerate((*_SPECIAL, *words))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    named = dict(zip(("pad", "unk", "cls", "sep", "mask"), _SPECIAL, strict=True))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=64,
        **{f"{name}_token": token for name, token in named.items()},
    ).save_pretrained(base)
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=2 * width,
        max_position_embeddings=64,
    )
    transformers.BertModel(config).save_pretrained(base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names of newer versions
        models = import_module("sentence_transformers.models")
    parts = [models.Transformer(str(base)), models.Pooling(width, pooling)]
    if normalise:
        parts.append(models.Normalize())
    named_prompts = {"prompts": {"all": prompt}, "default_prompt_name": "all"} if prompt else {}
    encoder = library.SentenceTransformer(modules=parts, device="cpu", **named_prompts)
    encoder.save(str(folder), create_model_card=False)
    return encoder
