"""The same images as every kind of source that :class:`oodzoo.ImageDomains` opens."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

import oodzoo
from oodzoo.data.images import decode
from oodzoo.features.config import Extraction, ExtractionConfig
from oodzoo.features.extract import run_extraction
from oodzoo.zoo.torchvision_import import import_torchvision, torchvision_installed


class Given(NamedTuple):
    """What a user gives to :class:`oodzoo.ImageDomains`."""

    source: Any
    options: Mapping[str, Any]

    def open(self) -> oodzoo.ImageDomains:
        return oodzoo.ImageDomains(self.source, **self.options)


Make = Callable[[oodzoo.ImageDomains, Path], Given]
"""Writes the images of a folder, in another form, into an empty folder."""


def folder(data: oodzoo.ImageDomains, to: Path) -> Given:
    assert data.root is not None
    return Given(data.root, {})


def csv_table(data: oodzoo.ImageDomains, to: Path) -> Given:
    """A table elsewhere, with other names of columns, and rows in another order."""
    with (to / "photos.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["site", "y", "filepath"])
        writer.writerows([s.domain, s.label, s.path] for s in reversed(data.samples))
    columns = {"path": "filepath", "label": "y", "domain": "site"}
    return Given(to / "photos.csv", {"root": data.root, "columns": columns})


def data_frame(data: oodzoo.ImageDomains, to: Path) -> Given:
    frame = pytest.importorskip("pandas").DataFrame(
        {
            "file": [s.path for s in data],
            "label": [s.label for s in data],
            "domain": [s.domain for s in data],
        }
    )
    return Given(frame, {"root": data.root, "columns": {"path": "file"}})


def hf_in_memory(data: oodzoo.ImageDomains, to: Path) -> Given:
    return Given(_hf_dataset(data), {})


def hf_on_disk(data: oodzoo.ImageDomains, to: Path) -> Given:
    """A data set of Hugging Face with a column of class labels, saved to disk."""
    datasets = pytest.importorskip("datasets")
    dataset = _hf_dataset(data).cast_column("label", datasets.ClassLabel(names=list(data.classes)))
    dataset.save_to_disk(to / "saved")
    return Given(to / "saved", {})


def _hf_dataset(data: oodzoo.ImageDomains) -> Any:
    datasets = pytest.importorskip("datasets")
    columns = {
        "image": [{"bytes": data.open(i), "path": None} for i in range(len(data))],
        "label": [s.label for s in data],
        "domain": [s.domain for s in data],
    }
    return datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())


def image_folders(data: oodzoo.ImageDomains, to: Path) -> Given:
    """One ImageFolder of torchvision for each domain."""
    pytest.importorskip("torch")
    if not torchvision_installed():
        pytest.skip("needs torchvision")
    import_torchvision(extra="torchvision", purpose="this test")
    datasets = pytest.importorskip("torchvision.datasets")
    assert data.root is not None
    return Given({d: datasets.ImageFolder(data.root / d) for d in data.domains}, {})


def torch_dataset(data: oodzoo.ImageDomains, to: Path) -> Given:
    """A map-style data set of PyTorch whose items are Pillow images with labels."""
    base: Any = pytest.importorskip("torch.utils.data").Dataset

    class Photos(base):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(data)

        def __getitem__(self, i: int) -> tuple[Any, str]:
            return Image.open(io.BytesIO(data.open(i))), data.samples[i].label

    return Given(Photos(), {"domains": [s.domain for s in data]})


def parquet(data: oodzoo.ImageDomains, to: Path) -> Given:
    """Two files with the bytes of the images, as Hugging Face writes them."""
    arrow = pytest.importorskip("pyarrow")
    files = pytest.importorskip("pyarrow.parquet")
    half = len(data) // 2
    for name, rows in (("0.parquet", range(half)), ("1.parquet", range(half, len(data)))):
        columns = {
            "image": [{"bytes": data.open(i), "path": data.samples[i].path} for i in rows],
            "label": [data.samples[i].label for i in rows],
            "domain": [data.samples[i].domain for i in rows],
        }
        files.write_table(arrow.table(columns), to / name, row_group_size=100)
    return Given(to, {})


def tars(data: oodzoo.ImageDomains, to: Path) -> Given:
    """Two archives in the form of WebDataset."""
    half = len(data) // 2
    for name, rows in (("0.tar", range(half)), ("1.tar", range(half, len(data)))):
        with tarfile.open(to / name, "w") as archive:
            for i in rows:
                sample = data.samples[i]
                about = {"label": sample.label, "domain": sample.domain}
                _add(archive, f"{i:06d}{Path(sample.path).suffix}", data.open(i))
                _add(archive, f"{i:06d}.json", json.dumps(about).encode())
    return Given(to, {})


def tar_of_a_folder(data: oodzoo.ImageDomains, to: Path) -> Given:
    """One archive of the folder itself, with the folder above it."""
    assert data.root is not None
    with tarfile.open(to / "photos.tar", "w") as archive:
        archive.add(data.root, "some/photos")
    return Given(to / "photos.tar", {})


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def numpy_pixels(data: oodzoo.ImageDomains, to: Path) -> Given:
    """Decoded images: their files cannot be known from them."""
    images = [np.asarray(decode(data.open(i))) for i in range(len(data))]
    labels = [s.label for s in data]
    return Given(images, {"labels": labels, "domains": [s.domain for s in data]})


WITH_FILES: dict[str, Make] = {
    "folder": folder,
    "CSV": csv_table,
    "DataFrame": data_frame,
    "HF in memory": hf_in_memory,
    "HF on disk": hf_on_disk,
    "ImageFolder": image_folders,
    "Parquet": parquet,
    "tars": tars,
    "tar of a folder": tar_of_a_folder,
}
"""Sources that have the bytes of the image files."""

DECODED: dict[str, Make] = {"torch Dataset": torch_dataset, "NumPy": numpy_pixels}
"""Sources that have only pixels."""


class Outcome(NamedTuple):
    """What an extraction leads to, without the times that it took."""

    labels: dict[str, list[int]]
    features: dict[str, dict[str, bytes]]
    """By model and domain; in the order of the images."""
    ranking: list[Any]


def outcome(store: oodzoo.FeatureStore) -> Outcome:
    """Collect all that must be equal, bit for bit."""
    ranked = oodzoo.rank(store)
    untimed = [replace(row, milliseconds=None, pareto_optimal=False) for row in ranked.rows]
    return Outcome(
        {domain: store.labels(domain).tolist() for domain in store.domains},
        {
            model: {
                domain: store.features(model, domain).tobytes()
                + store.logits(model, domain).tobytes()
                for domain in store.domains
            }
            for model in store.models
        },
        untimed,
    )


def extract(data: oodzoo.ImageDomains, zoo: Any, store: Path) -> Extraction:
    """Extract the features that a store lacks, and say what was done."""
    return run_extraction(data, zoo, store, ExtractionConfig(device="cpu"))[1]
