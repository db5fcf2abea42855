"""A copy of a saved predictor, another predictor, and a tiny timm model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oodzoo
from oodzoo.core.errors import MissingPackageError
from oodzoo.core.packages import import_torchvision, optional_package
from oodzoo.zoo import ModelSpec


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of the saved predictor that a test may change."""
    return shutil.copytree(saved, tmp_path / "model")


@pytest.fixture
def fit_models(digits: Path, extract: Any, tmp_path: Path) -> Callable[..., oodzoo.Predictor]:
    """Extract features of the digits, and fit a predictor to all models or some of them."""

    def fit_models(specs: list[ModelSpec], *names: str) -> oodzoo.Predictor:
        store = tmp_path / "store of models"
        extract(digits, specs, store)
        return oodzoo.fit(store, models=list(names) or [spec.name for spec in specs])

    return fit_models


@pytest.fixture(scope="session")
def other(store: oodzoo.FeatureStore) -> oodzoo.Predictor:
    """Another predictor, with one model."""
    return oodzoo.fit(store, models=["mlp_glyphs_augmented"])


@pytest.fixture(scope="session")
def timm() -> Any:
    """The package timm; skips if it is not installed."""
    try:
        torch = optional_package("torch", extra="timm", purpose="this test")
        import_torchvision(extra="timm", purpose="this test")
        timm = optional_package("timm", extra="timm", purpose="this test")
    except MissingPackageError as error:
        pytest.skip(str(error))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return timm


@pytest.fixture
def timm_spec(timm: Any, tmp_path: Path) -> Callable[..., ModelSpec]:
    """Save a timm model with random weights in a folder; returns its spec."""

    def timm_spec(architecture: str = "test_vit.r160_in1k", **stated: Any) -> ModelSpec:
        network = timm.create_model(architecture, pretrained=False)
        folder = tmp_path / "timm" / "tiny"
        timm.models._hub.save_for_hf(network, folder, safe_serialization="both")
        source = f"timm/local-dir:{folder.name}"
        return ModelSpec(name="tiny", source=source, folder=folder.parent, **stated)

    return timm_spec
