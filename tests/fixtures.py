"""Handwritten digits, models of the embedded zoo, and a store and a predictor made of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from sklearn.datasets import load_digits

import oodzoo
from oodzoo.demo.digits import deal_domains, draw_digit
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.outcome import ExtractionConfig
from oodzoo.zoo import ModelSpec

MODELS = ("resnet_glyphs_augmented", "separable_glyphs_colour", "mlp_glyphs_augmented")
DOMAINS = ("chalk", "marker", "paper")


def draw_digits(
    root: Path, per_cell: int, skip: int = 0, domains: tuple[str, ...] = DOMAINS
) -> Path:
    """Write digits of three classes, `per_cell` of each class in each domain, after `skip`."""
    bunch = load_digits()
    seen = {(d, c): 0 for d in domains for c in range(3)}
    dealt = deal_domains(bunch.target)
    for index, (domain, label) in enumerate(zip(dealt, bunch.target.tolist(), strict=True)):
        if (domain, label) not in seen:
            continue
        seen[domain, label] += 1
        if skip < seen[domain, label] <= skip + per_cell:
            path = root / domain / str(label) / f"digit-{index:04d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw_digit(bunch.images[index] / 16.0, domain, index)).save(path)
    return root


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> list[ModelSpec]:
    """Three models of the embedded zoo, copied into a folder."""
    folder = tmp_path_factory.mktemp("zoo")
    known = {spec.name: spec for spec in oodzoo.load_zoo("demo")}
    specs = []
    for name in MODELS:
        spec = known[name]
        shutil.copyfile(spec.file, folder / spec.file.name)
        specs.append(ModelSpec(**{**vars(spec), "folder": folder}))
    return specs


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training images, 3 domains x 3 classes x 12 digits. Tests must not change them."""
    return draw_digits(tmp_path_factory.mktemp("digits"), 12)


@pytest.fixture(scope="session")
def unseen(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Test images: four other digits of each class in each domain."""
    return sorted(draw_digits(tmp_path_factory.mktemp("unseen"), 4, skip=12).rglob("*.png"))


Extract = Callable[..., oodzoo.FeatureStore]


@pytest.fixture(scope="session")
def extract() -> Extract:
    """Extract features into a new store, and open it."""

    def extract(data: Path, zoo: list[Any], store: Path) -> oodzoo.FeatureStore:
        run_extraction(oodzoo.ImageDomains(data), zoo, store, ExtractionConfig(device="cpu"))
        return oodzoo.FeatureStore(store)

    return extract


@pytest.fixture(scope="session")
def store(
    digits: Path, zoo: list[ModelSpec], extract: Extract, tmp_path_factory: pytest.TempPathFactory
) -> oodzoo.FeatureStore:
    """A complete store of the digits. Tests must not change it."""
    return extract(digits, zoo, tmp_path_factory.mktemp("made") / "store")


@pytest.fixture(scope="session")
def predictor(store: oodzoo.FeatureStore) -> oodzoo.Predictor:
    """A predictor with two of the three models."""
    return oodzoo.fit(store, choose="selection", method="paper", top_k=2)


@pytest.fixture(scope="session")
def saved(predictor: oodzoo.Predictor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the predictor. Tests must not change it."""
    return predictor.save(tmp_path_factory.mktemp("saved") / "model")
