"""Handwritten digits, a store of them, and a predictor; real models throughout."""

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
from oodzoo.errors import MissingPackageError
from oodzoo.features.extract import Settings, run_extraction
from oodzoo.zoo import ModelSpec
from oodzoo.zoo.packages import optional_package
from oodzoo.zoo.torchvision_import import import_torchvision

MODELS = ("resnet_glyphs_augmented", "separable_glyphs_colour", "mlp_glyphs_augmented")
DOMAINS = ("chalk", "marker", "paper")


def _drawn(root: Path, per_cell: int, skip: int = 0, domains: tuple[str, ...] = DOMAINS) -> Path:
    """So many digits of each of three classes in each domain, after leaving out the first ones."""
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
def drawn() -> Callable[..., Path]:
    return _drawn


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> list[ModelSpec]:
    """Three models of the embedded zoo, in a folder of their own."""
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
    """Three domains x three classes x twelve digits to learn from; nobody changes them."""
    return _drawn(tmp_path_factory.mktemp("digits"), 12)


@pytest.fixture(scope="session")
def unseen(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four other digits of each cell."""
    return sorted(_drawn(tmp_path_factory.mktemp("unseen"), 4, skip=12).rglob("*.png"))


Extract = Callable[..., oodzoo.FeatureStore]


@pytest.fixture(scope="session")
def extract() -> Extract:
    def extract(data: Path, zoo: list[Any], store: Path) -> oodzoo.FeatureStore:
        run_extraction(oodzoo.ImageDomains(data), zoo, store, Settings(device="cpu"))
        return oodzoo.FeatureStore(store)

    return extract


@pytest.fixture(scope="session")
def store(
    digits: Path, zoo: list[ModelSpec], extract: Extract, tmp_path_factory: pytest.TempPathFactory
) -> oodzoo.FeatureStore:
    """A finished store of the digits; nobody changes it."""
    return extract(digits, zoo, tmp_path_factory.mktemp("made") / "store")


@pytest.fixture(scope="session")
def predictor(store: oodzoo.FeatureStore) -> oodzoo.Predictor:
    """Fitted with two of the three models."""
    return oodzoo.fit(store, top_k=2)


@pytest.fixture(scope="session")
def saved(predictor: oodzoo.Predictor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the predictor; nobody changes it."""
    return predictor.save(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    """A copy of the folder that a test may change."""
    return shutil.copytree(saved, tmp_path / "model")


@pytest.fixture(scope="session")
def timm() -> Any:
    """The package, or a skip that says what is missing."""
    try:
        torch = optional_package("torch", extra="timm", purpose="this test")
        import_torchvision(extra="timm", purpose="this test")
        timm = optional_package("timm", extra="timm", purpose="this test")
    except MissingPackageError as error:
        pytest.skip(str(error))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return timm
