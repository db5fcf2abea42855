"""Stores with near-duplicates: random features, and real images and models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from tests.fixtures import draw_digits

import oodzoo
from oodzoo.extraction.extract import open_unlabelled, run_extraction
from oodzoo.extraction.importing import import_features
from oodzoo.extraction.outcome import ExtractionConfig
from oodzoo.store.feature_store import FeatureStore


@dataclass
class Planted:
    """Features of two models; `copies` are the positions of near-duplicates."""

    models: dict[str, NDArray[np.float64]]
    domains: list[str]
    labels: list[str]
    groups: list[str]
    copies: list[tuple[int, int]]

    @property
    def paths(self) -> list[str]:
        return [f"{at:04d}.png" for at in range(len(self.domains))]

    def store(self, folder: Path, order: NDArray[Any] | None = None) -> FeatureStore:
        """Import the rows, in another order if one is given."""
        rows = np.arange(len(self.domains)) if order is None else order
        columns = {"labels": self.labels, "domains": self.domains, "paths": self.paths}
        if any(self.groups):
            columns["groups"] = self.groups
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "features.npz"
        arrays: dict[str, Any] = {name: values[rows] for name, values in self.models.items()}
        arrays |= {name: np.array(values)[rows] for name, values in columns.items()}
        np.savez(file, **arrays)
        return import_features([file], folder / "store")


def planted(seed: int = 0, per_domain: int = 40, noise: float = 0.15, alike: float = 0) -> Planted:
    """Draw images of two classes in three domains, and copies across and within domains.

    With `alike`, most images of the first domain differ by so much from another one of it.
    """
    rng = np.random.default_rng(seed)
    domains = [name for name in ("ink", "oil", "raw") for _ in range(per_domain)]
    n = len(domains)
    labels = ["ab"[at] for at in rng.integers(0, 2, n)]
    copies = [(0, per_domain), (1, 2 * per_domain + 3), (2, 7), (per_domain + 1, per_domain + 5)]
    models = {}
    for name, width in (("wide", 200), ("narrow", 100)):
        scale = rng.uniform(0.2, 3, width)
        values = rng.normal(size=(n, width)) * scale + 5
        for key in (*"ab", "ink", "oil", "raw"):  # classes and domains differ in their means
            members = np.array([key in pair for pair in zip(labels, domains, strict=True)])
            values[members] += 2 * rng.normal(size=width)
        for first, second in copies:
            values[second] = values[first] + noise * scale * rng.normal(size=width)
        for at in range(8, per_domain - 1, 2) if alike else ():
            values[at + 1] = values[at] + alike * scale * rng.normal(size=width)
        models[name] = values.astype(np.float32).astype(np.float64)
    return Planted(models, domains, labels, [""] * n, copies)


def extract_copies(folder: Path) -> Path:
    """Write digits to `data` and `target`, some of them twice, and their features to `store`."""
    data = draw_digits(folder / "data", 20)
    first, second, third = sorted((data / "chalk" / "1").glob("*.png"))[:3]
    Image.open(first).save(data / "marker" / "1" / "again.jpg", quality=90)
    (data / "paper" / "1" / "exact.png").write_bytes(second.read_bytes())
    (folder / "target").mkdir()
    Image.open(third).save(folder / "target" / "other.jpg", quality=90)
    zeros = sorted((data / "paper" / "0").glob("*.png"))
    for name, quality in (("first", 90), ("second", 70)):
        Image.open(zeros[0]).save(zeros[0].with_name(f"{name}.jpg"), quality=quality)
    zeros[0].unlink()
    for at, path in enumerate(sorted((data / "paper" / "2").glob("*.png"))[:10]):
        ImageOps.invert(Image.open(path).convert("RGB")).save(folder / "target" / f"{at}.png")
    run_extraction(
        oodzoo.ImageDomains(data),
        oodzoo.load_zoo("demo")[::3],
        folder / "store",
        ExtractionConfig(device="cpu"),
        unlabelled=open_unlabelled([str(folder / "target")]),
    )
    return folder
