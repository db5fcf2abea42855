"""Images of 8 x 8 pixels, models that are exact in each row, and the content of a store.

Other processes import this module to extract features with these models.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.extraction.extract import open_unlabelled, run_extraction
from oodzoo.extraction.outcome import Extraction, ExtractionConfig
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.sync import Changes, sync_store
from oodzoo.zoo import Model, ModelInfo, Outputs
from oodzoo.zoo.model import Pixels
from oodzoo.zoo.preprocessing import square

Image.init()  # imports many modules: once here, not in every process that is forked

CLASSES = ("bike", "cat", "dog")


class ExactModel(Model):
    """Products of pixels and small whole numbers: no rounding, so batches do not matter."""

    def __init__(self, name: str, dim: int = 4, wait_for: Path | None = None) -> None:
        self.info = ModelInfo(name, square(8, (0.5,) * 3, (0.5,) * 3), dim, 2, None, name)
        self.on_cpu = True
        self._wait_for = wait_for
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
        self._weights = np.random.default_rng(seed).integers(-4, 5, (8 * 8 * 3, dim + 2))

    def prepare(self, pixels: Pixels) -> Any:
        return pixels.reshape(len(pixels), -1).astype(np.int64)

    def launch(self, prepared: Any) -> Any:
        end = time.monotonic() + 120  # a test that failed does not start it
        while self._wait_for is not None and not self._wait_for.exists():
            assert time.monotonic() < end, f"{self._wait_for} does not appear"
            time.sleep(0.001)
        return (prepared @ self._weights / 1024).astype(np.float32)

    def collect(self, launched: Any) -> Outputs:
        return Outputs(launched[:, :-2], launched[:, -2:])


def write_image(path: Path, number: int, label: str) -> Path:
    """Write the image of a number; the class is visible, not perfectly."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
    rows = slice(2 * CLASSES.index(label), 2 * CLASSES.index(label) + 2)
    pixels[rows] = pixels[rows] // 2 + 120
    Image.fromarray(pixels).save(path)
    return path


def write_images(root: Path, domains: tuple[str, ...] = ("day", "night"), n: int = 3) -> Path:
    """Write n images of each class in each domain."""
    number = 0
    for domain in domains:
        for label in CLASSES:
            for at in range(n):
                number += 1
                write_image(root / domain / label / f"{at}.png", number, label)
    return root


def write_target(root: Path, first: int, n: int = 4) -> Path:
    """Write n images without labels."""
    for number in range(first, first + n):
        write_image(root / f"{number}.png", number, CLASSES[number % 3])
    return root


def extract(
    data: str | Path,
    models: list[str],
    store: str | Path,
    *,
    unlabelled: list[str] | None = None,
    wait_for: str | None = None,
) -> Extraction:
    """Extract features; the models wait until the file `wait_for` exists."""
    signal = None if wait_for is None else Path(wait_for)
    zoo = [ExactModel(name, wait_for=signal) for name in models]
    config = ExtractionConfig(device="cpu")
    targets = open_unlabelled(unlabelled or [])
    return run_extraction(ImageDomains(data), zoo, store, config, unlabelled=targets)[1]


def extract_in_turn(datasets: list[str], models: list[str], store: str, done: str) -> None:
    """Extract data sets one after another, then create the file `done`."""
    for data in datasets:
        extract(data, models, store)
    Path(done).touch()


def sync(
    store: str | Path, data: str | Path, unlabelled: Sequence[str | Path] = (), *, yes: bool = False
) -> Changes:
    """Synchronise a store with images, some of them without labels."""
    return sync_store(store, data, unlabelled=open_unlabelled(unlabelled), yes=yes)


def content(store: str | Path) -> dict[str, Any]:
    """All that a reader sees: models, and of each domain the columns and the bytes of each row."""
    opened = FeatureStore(store)
    found: dict[str, Any] = {"models": opened.models}
    for domain in (*opened.domains, *opened.unlabelled):
        labels = None
        if domain in opened.domains:
            labels = [opened.classes[label] for label in opened.labels(domain)]
        rows = (opened.paths(domain), labels, opened.groups(domain), opened.images(domain))
        outputs = {
            f"{model} {output}": [
                row.tobytes() for row in opened.gather(model, opened.images(domain), output)
            ]
            for model in opened.models
            for output in ("features", "logits")
            if opened.has_features(model, domain) or domain in opened.domains
        }
        found[domain] = (*rows, outputs)
    return found


def ranked(store: str | Path) -> list[tuple[Any, ...]]:
    """The numbers of a ranking that do not depend on time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranking = oodzoo.rank(FeatureStore(store))
    return [
        (r.rank, r.model, r.score, r.discriminability, r.stability, r.expected_accuracy, r.folds)
        for r in ranking.rows
    ]


def complaint(function: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Call a function; return the message of its InputError, or nothing."""
    try:
        function(*arguments, **options)
    except InputError as error:
        return str(error)
    return ""


def files(store: Path) -> dict[str, str]:
    """SHA-256 of each file that must not depend on time and place."""
    return {
        path.relative_to(store).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(store.rglob("*"))
        if path.is_file() and path.name not in (".lock", "local.json")
    }
