"""transformers models; `test_weights.py` asks a hub for those of an owner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.zoo.data import SQUASH, VIT, save_checkpoint
from tests.zoo.listing.data import cache_file

from oodzoo.errors import InputError
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.weights import Weights

listing: Any = get_source("hf")


def spec(where: str) -> ModelSpec:
    return ModelSpec("model", f"hf/{where}")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("me/*", "needs the Hugging Face Hub, and HF_HUB_OFFLINE is set; unset it, or name the"),
        ("*", "must name an owner before the wildcard, as in hf/facebook/dinov2*"),
        ("m*/net", "must name an owner"),
    ],
)
def test_bad_patterns(hub_cache: Path, pattern: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        listing.names(pattern)
    assert str(caught.value).startswith(f"the zoo 'hf/{pattern}' {reason}")


def test_a_folder(transformers: Any, tmp_path: Path) -> None:
    module = transformers.ViTModel(transformers.ViTConfig(**VIT))
    save_checkpoint(transformers, module, tmp_path / "vit", SQUASH)
    local = spec(str(tmp_path / "vit"))
    assert listing.measure(local).parameters == sum(p.numel() for p in module.parameters())
    weights = listing.weights(local)
    assert (weights.folder, weights.is_local) == (tmp_path, True)
    assert (weights.size or 0) >= (tmp_path / "vit" / "model.safetensors").stat().st_size
    assert listing.licence(local) is None


def test_the_hub(transformers: Any, hub_cache: Path) -> None:
    assert listing.weights(spec("me/net")) == Weights(hub_cache, False)
    cache_file(hub_cache, "me/net", "model.safetensors", b"123")
    assert listing.weights(spec("me/net")) == Weights(hub_cache, True, 3)
    assert listing.licence(spec("me/net")) is None
    with pytest.raises(InputError, match="hf/me/net is not in the cache"):
        listing.measure(spec("me/net"))
