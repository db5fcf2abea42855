from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.zoo.listing.data import cache_file

from oodzoo.errors import InputError
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.weights import Weights

listing: Any = get_source("open_clip")


def spec(where: str) -> ModelSpec:
    return ModelSpec("model", f"open_clip/{where}")


def test_identifiers(open_clip: Any) -> None:
    found = listing.names("*")
    assert "ViT-B-32/openai" in found
    assert len(found) == len(open_clip.list_pretrained())


def test_sizes(open_clip: Any, torch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    measured = listing.measure(spec("ViT-B-32/openai"))
    # of the image tower; a published file with both towers has 605,157,884 bytes
    assert measured.parameters == 87_849_216
    assert measured.size == pytest.approx(605_157_884, rel=0.001)
    assert capfd.readouterr().err == ""
    assert listing.measure(spec("ViT-B-32/laion2b_s34b_b79k")) == measured


def test_weights(open_clip: Any, hub_cache: Path) -> None:
    repository = "laion/CLIP-ViT-B-32-laion2B-s34B-b79K"
    model = spec("ViT-B-32/laion2b_s34b_b79k")
    assert listing.weights(model) == Weights(hub_cache, False)
    cache_file(hub_cache, repository, "open_clip_model.safetensors", b"12345")
    assert listing.weights(model) == Weights(hub_cache, True, 5)
    assert not listing.weights(spec("ViT-B-32/openai")).is_local
    with pytest.raises(InputError, match="open_clip has no weights 'mine' for ViT-B-32"):
        listing.weights(spec("ViT-B-32/mine"))


def test_weights_in_a_file_of_another_name(open_clip: Any, hub_cache: Path) -> None:
    model = spec("ViTamin-L-256/datacomp1b")
    cache_file(hub_cache, "jienengchen/ViTamin-L-256px", "pytorch_model.bin", b"12")
    assert listing.weights(model) == Weights(hub_cache, True, 2)


def test_a_repository_and_a_local_file(open_clip: Any, hub_cache: Path, tmp_path: Path) -> None:
    assert listing.weights(spec("hf-hub:me/clip")) == Weights(hub_cache, False)
    (tmp_path / "w.safetensors").write_bytes(b"123")
    local = spec(f"ViT-B-32/{tmp_path}/w.safetensors")
    assert listing.weights(local) == Weights(tmp_path, True, 3)
    assert listing.licence(local) is None
    assert listing.licence(spec("ViT-B-32/openai")) is None  # the hub is not asked
