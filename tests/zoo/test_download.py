from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oodzoo.core.errors import InputError
from oodzoo.zoo import load_zoo
from oodzoo.zoo.download import Download, plan_download
from oodzoo.zoo.listing import ListedModel


def download(size: int, *folders: Path) -> Download:
    return Download(("a", "b"), size * len(folders), (), 0, dict.fromkeys(folders, size))


def test_what_is_not_cached(timm: Any, torchvision: Any, tmp_path: Path, monkeypatch: Any) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    specs = load_zoo("timm/test_vit.r160_in1k,torchvision/resnet18,hf/me/net,demo/cnn_photos")
    plan = plan_download(specs)
    assert plan.models == tuple(spec.name for spec in specs[:3])
    assert plan.unknown == ("hf-me-net",)
    assert 46_830_000 < plan.size < 50_000_000
    assert str(plan) == (
        "3 models to download, about 48.3 MB, size of 1 model unknown (1 more on this machine)"
    )
    assert plan.to_dict() == {
        "models": list(plan.models),
        "size": plan.size,
        "unknown": ["hf-me-net"],
        "cached": 1,
    }


def test_layers_of_a_network_are_one_download(timm: Any, tmp_path: Path, monkeypatch: Any) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    (whole,) = load_zoo("timm/test_vit.r160_in1k")
    layers = load_zoo("timm/test_vit.r160_in1k@all")
    assert len(layers) > 2
    assert plan_download(layers) == plan_download([whole])
    assert plan_download(layers[1:]).models == (layers[1].name,)
    random = [replace(spec, pretrained=False) for spec in layers]
    plan = plan_download(random)
    assert (plan.models, plan.size, plan.n_local) == ((), 0, 1)
    assert ListedModel(random[0]).is_local
    assert not ListedModel(whole).is_local


def test_space(tmp_path: Path) -> None:
    download(1000, tmp_path).require_space()
    with pytest.raises(InputError) as caught:
        download(10**18, tmp_path / "not" / "there").require_space()
    assert str(caught.value).startswith(
        "the models to download need about 1,000,000,000.0 GB, but the disk of "
        f"'{tmp_path}/not/there' has "
    )
    assert "GB free; set HF_HOME and TORCH_HOME to another disk" in str(caught.value)


def test_folders_on_one_disk_share_its_space(tmp_path: Path) -> None:
    most = shutil.disk_usage(tmp_path).free * 2 // 3
    download(most, tmp_path / "a").require_space()
    with pytest.raises(InputError, match="need about"):
        download(most, tmp_path / "a", tmp_path / "b").require_space()
