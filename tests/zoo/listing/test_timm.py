from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.zoo.listing.data import cache_file

from oodzoo.errors import InputError
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.weights import Weights

NAME = "test_vit.r160_in1k"

listing: Any = get_source("timm")


def spec(where: str, **fields: Any) -> ModelSpec:
    return ModelSpec("model", f"timm/{where}", **fields)


def test_identifiers_have_pretrained_weights(timm: Any) -> None:
    found = listing.names("*")
    assert NAME in found
    assert len(found) > 1000
    assert all(timm.get_pretrained_cfg(name).has_weights for name in found[::50])


def test_licences(timm: Any) -> None:
    assert listing.licence(spec(NAME)) == "apache-2.0"
    assert listing.licence(spec("resnet50")) == "apache-2.0"  # of its default weights
    unknown = [name for name in timm.list_models(pretrained=True) if _stated(timm, name) in _NONE]
    assert unknown
    assert all(listing.licence(spec(name)) is None for name in unknown)
    with pytest.raises(InputError, match=r"timm has no weights 'resnet50\.b'"):
        listing.licence(spec("resnet50.b"))


_NONE = (None, "unknown")


def _stated(timm: Any, name: str) -> Any:
    return timm.get_pretrained_cfg(name).license


@pytest.mark.parametrize("name", [NAME, "test_resnet.r160_in1k", "resnet18"])
def test_sizes_are_those_of_the_model(timm: Any, tmp_path: Path, name: str) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    model = timm.create_model(name, pretrained=False)
    safetensors.save_file(model.state_dict(), tmp_path / "model.safetensors")
    measured = listing.measure(spec(name))
    assert measured.parameters == sum(p.numel() for p in model.parameters())
    assert measured.size == pytest.approx((tmp_path / "model.safetensors").stat().st_size, rel=0.1)


def test_the_size_of_the_input_matters(timm: Any) -> None:
    small, large = (listing.measure(spec(NAME, input_size=size)) for size in (None, 320))
    assert small.parameters < large.parameters
    assert listing.measure(spec(NAME)) == small


def test_weights_on_the_hub(timm: Any, hub_cache: Path) -> None:
    assert listing.weights(spec(NAME)) == Weights(hub_cache, False)
    cache_file(hub_cache, f"timm/{NAME}", "model.safetensors", b"12345")
    assert listing.weights(spec(NAME)) == Weights(hub_cache, True, 5)
    assert not listing.weights(spec("hf-hub:me/net")).is_local
    cache_file(hub_cache, "me/net", "model.safetensors", b"123")
    assert listing.weights(spec("hf-hub:me/net")) == Weights(hub_cache, True, 3)


def test_weights_at_a_url(timm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    configs = {name: timm.get_pretrained_cfg(name) for name in timm.list_models(pretrained=True)}
    name, config = next((n, c) for n, c in configs.items() if c.url and not c.hf_hub_id)
    folder = tmp_path / "hub" / "checkpoints"
    assert listing.weights(spec(name)) == Weights(folder, False)
    folder.mkdir(parents=True)
    (folder / Path(config.url).name).touch()
    assert listing.weights(spec(name)).is_local


def test_a_local_folder(timm: Any, tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "model.safetensors").write_bytes(b"1234")
    local = spec(f"local-dir:{tmp_path / 'net'}")
    assert listing.weights(local) == Weights(tmp_path, True, 4)
    assert listing.licence(local) is None
