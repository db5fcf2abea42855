from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oodzoo.errors import InputError
from oodzoo.zoo import torchvision as source
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import count_parameters

listing: Any = get_source("torchvision")


def spec(where: str) -> ModelSpec:
    return ModelSpec("model", f"torchvision/{where}")


def test_identifiers(torchvision: Any) -> None:
    names = listing.names("*")
    assert "resnet18" in names
    assert "fasterrcnn_resnet50_fpn" not in names
    every = listing.names("*.*")
    assert {"resnet50.IMAGENET1K_V1", "resnet50.IMAGENET1K_V2"} <= set(every)
    assert not any(name.endswith("DEFAULT") for name in every)
    assert {name.partition(".")[0] for name in every} == set(names)


def test_licences_are_mostly_unknown(torchvision: Any) -> None:
    assert listing.licence(spec("resnet50")) is None
    assert "SWAG" in str(listing.licence(spec("vit_b_16.IMAGENET1K_SWAG_E2E_V1")))
    with pytest.raises(InputError, match="no classification model 'resnet5'"):
        listing.licence(spec("resnet5"))


@pytest.mark.parametrize("name", ["resnet18", "inception_v3"])
def test_parameters_are_those_in_use(torchvision: Any, name: str) -> None:
    """Inception's second head, which torchvision counts, is for training only."""
    built = source.build(spec(name), pretrained=False)
    assert listing.measure(spec(name)).parameters == count_parameters(built.module)


def test_weights(torchvision: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    missing = listing.weights(spec("resnet18"))
    assert not missing.is_local
    # a published file: https://download.pytorch.org/models/resnet18-f37072fd.pth
    assert missing.size == pytest.approx(46_830_571, abs=1000)
    missing.folder.mkdir(parents=True)
    (missing.folder / "resnet18-f37072fd.pth").write_bytes(b"123")
    found = listing.weights(spec("resnet18"))
    assert (found.is_local, found.size) == (True, 3)
    checkpoint = listing.weights(spec("resnet18/https://example.org/swav.pth.tar"))
    assert (checkpoint.is_local, checkpoint.size) == (False, None)
    (missing.folder / "swav.pth.tar").write_bytes(b"123")
    assert listing.weights(spec("resnet18/https://example.org/swav.pth.tar")).is_local
