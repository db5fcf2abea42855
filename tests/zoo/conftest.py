"""Optional packages, and images of unusual sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oodzoo.core.errors import MissingPackageError
from oodzoo.core.packages import import_torchvision, optional_package, torchvision_installed


def _package(name: str, extra: str) -> Any:
    purpose = "this test"
    try:
        torch = optional_package("torch", extra=extra, purpose=purpose)
        torch.set_num_threads(1)  # threads slow down models this small
        if name != "torch" and (name != "transformers" or torchvision_installed()):
            import_torchvision(extra=extra, purpose=purpose)
        return optional_package(name, extra=extra, purpose=purpose)
    except MissingPackageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def torch() -> Any:
    return _package("torch", "torch")


@pytest.fixture(scope="session")
def timm() -> Any:
    return _package("timm", "timm")


@pytest.fixture(scope="session")
def torchvision() -> Any:
    return _package("torchvision", "torchvision")


@pytest.fixture(scope="session")
def transformers() -> Any:
    return _package("transformers", "hf")


@pytest.fixture(scope="session")
def open_clip() -> Any:
    return _package("open_clip", "open-clip")


@pytest.fixture(scope="session")
def images() -> list[Image.Image]:
    """Noise images of many sizes, so that a shift by one pixel is detected."""
    noise = np.random.default_rng(0)
    sizes = [(320, 240), (241, 333), (224, 224), (17, 9), (700, 97), (256, 257), (5, 64)]
    return [
        Image.fromarray(noise.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for width, height in sizes
    ]


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of Hugging Face, which is empty."""
    constants = pytest.importorskip("huggingface_hub.constants")
    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    return folder
