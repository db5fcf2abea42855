"""Handwritten digits, small models, and views of the files of a store."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.fixtures import draw_digits

from oodzoo.data.dataset import ImageDomains
from oodzoo.extraction.extract import Unlabelled, open_unlabelled, run_extraction
from oodzoo.extraction.outcome import Extraction, ExtractionConfig
from oodzoo.zoo import Model, ModelInfo, ModelSpec, Outputs, load_zoo
from oodzoo.zoo.model import Pixels
from oodzoo.zoo.preprocessing import square

PLAIN = square(32, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three domains x three classes x five digits. Tests must not change them."""
    return draw_digits(tmp_path_factory.mktemp("digits"), 5)


@pytest.fixture
def data(digits: Path, tmp_path: Path) -> Path:
    """A copy of the digits that a test may change."""
    return shutil.copytree(digits, tmp_path / "data")


@pytest.fixture(scope="session")
def zoo() -> Callable[..., list[ModelSpec]]:
    """Models of the embedded zoo, by name; without names two small ones."""
    known = {spec.name: spec for spec in load_zoo("demo")}

    def zoo(*names: str) -> list[ModelSpec]:
        return [known[name] for name in names or ("mlp_glyphs_augmented", "separable_shapes")]

    return zoo


@pytest.fixture(scope="session")
def extract() -> Callable[..., Extraction]:
    """Extract, and return the outcome."""

    def extract(
        data: Path | ImageDomains,
        zoo: list[ModelSpec | Model],
        store: Path,
        unlabelled: Unlabelled = (),
        **settings: Any,
    ) -> Extraction:
        dataset = ImageDomains(data) if isinstance(data, Path) else data
        config, targets = ExtractionConfig(**settings), open_unlabelled(unlabelled)
        return run_extraction(dataset, zoo, store, config, unlabelled=targets)[1]

    return extract


@pytest.fixture(scope="session")
def made(
    digits: Path,
    zoo: Callable[..., list[ModelSpec]],
    extract: Callable[..., Extraction],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A finished store of the digits. Tests must not change it."""
    store = tmp_path_factory.mktemp("made") / "store"
    extract(digits, zoo(), store)
    return store


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A copy of the finished store that a test may change; times of its files are kept."""
    return shutil.copytree(made, tmp_path / "store")


def _files(store: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(store.rglob("*")):
        if path.is_file() and path.name != "local.json":  # depends on time and place
            yield path.relative_to(store).as_posix(), path


@pytest.fixture(scope="session")
def tree() -> Callable[[Path], dict[str, str]]:
    """SHA-256 of each file of a store that must not depend on time and place."""
    return lambda store: {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in _files(store)
    }


@pytest.fixture(scope="session")
def stamps() -> Callable[[Path], dict[str, tuple[int, int]]]:
    """Inode and time of each shard file, which change when it is rewritten."""
    return lambda store: {
        name: (path.stat().st_ino, path.stat().st_mtime_ns)
        for name, path in _files(store)
        if path.suffix == ".npy"
    }


class FunctionModel(Model):
    """A model that is a function of the normalised batch."""

    def __init__(self, function: Callable[[NDArray[np.float32]], Any], info: ModelInfo) -> None:
        self.info = info
        self._function = function

    def prepare(self, pixels: Pixels) -> Any:
        return self.info.preprocessing.normalise(pixels)

    def launch(self, prepared: Any) -> Any:
        return self._function(prepared)

    def collect(self, launched: Any) -> Outputs:
        return Outputs(np.asarray(launched, np.float32), None)


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Model]:
    """Make a model of a function; by default its three features are the channel means."""

    def make_model(
        function: Callable[[NDArray[np.float32]], Any] = lambda batch: batch.mean(axis=(2, 3)),
        *,
        name: str = "function",
        feature_dim: int = 3,
    ) -> Model:
        return FunctionModel(function, ModelInfo(name, PLAIN, feature_dim, None, None, name))

    return make_model
