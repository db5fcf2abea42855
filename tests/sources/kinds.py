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
from uuid import uuid4

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


def torchvision(part: str) -> Any:
    """Import a part of torchvision, or skip the test or module that needs it."""
    pytest.importorskip("torch")
    if not torchvision_installed():
        pytest.skip("needs torchvision", allow_module_level=True)
    import_torchvision(extra="torchvision", purpose="this test")
    return pytest.importorskip(f"torchvision.{part}")


def write_tar(
    path: Path, members: Mapping[str, bytes], kind: int = tarfile.PAX_FORMAT, **options: Any
) -> Path:
    with tarfile.open(path, "w", format=kind, **options) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def write_parquet(path: Path, columns: Any, **options: Any) -> Path:
    arrow = pytest.importorskip("pyarrow")
    table = columns if isinstance(columns, arrow.Table) else arrow.table(columns)
    pytest.importorskip("pyarrow.parquet").write_table(table, path, **options)
    return path


# --- tables: a column `path` with places of files, and any others -----------------------------

Columns = Mapping[str, list[Any]]


def csv_file(columns: Columns, to: Path) -> Any:
    with (to / "photos.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return to / "photos.csv"


def pandas_frame(columns: Columns, to: Path) -> Any:
    return pytest.importorskip("pandas").DataFrame(dict(columns))


def polars_frame(columns: Columns, to: Path) -> Any:
    return pytest.importorskip("polars").DataFrame(dict(columns), strict=False)


def with_images(columns: Columns) -> dict[str, list[Any]]:
    """The columns with images, as Hugging Face writes them, in place of paths."""
    rest = dict(columns)
    places = [Path(path) for path in rest.pop("path")]
    names = ["-".join(path.parts[-3:]) for path in places]
    pairs = zip(places, names, strict=True)
    return {"image": [{"bytes": p.read_bytes(), "path": name} for p, name in pairs], **rest}


def parquet_of_paths(columns: Columns, to: Path) -> Any:
    return write_parquet(to / "photos.parquet", dict(columns))


def parquet_of_images(columns: Columns, to: Path) -> Any:
    return write_parquet(to / "photos.parquet", with_images(columns), row_group_size=3)


def hf_dataset(columns: Columns, to: Path) -> Any:
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict(with_images(columns)).cast_column("image", datasets.Image())


def hf_saved(columns: Columns, to: Path) -> Any:
    hf_dataset(columns, to).save_to_disk(to / "saved")
    return to / "saved"


def dicts(columns: Columns, to: Path) -> Any:
    names = ["image" if name == "path" else name for name in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


TABLES: dict[str, Callable[[Columns, Path], Any]] = {
    "CSV": csv_file,
    "pandas": pandas_frame,
    "polars": polars_frame,
    "Parquet of paths": parquet_of_paths,
    "Parquet": parquet_of_images,
    "HF in memory": hf_dataset,
    "HF on disk": hf_saved,
    "dicts": dicts,
}
"""Tables by kind: each is written into a folder from the same columns."""


# --- data sets in another form ----------------------------------------------------------------

Make = Callable[[oodzoo.ImageDomains, Path], Given]
"""Writes the images of a folder, in another form, into an empty folder."""


def columns_of(data: oodzoo.ImageDomains) -> dict[str, list[Any]]:
    """The columns of a table, in another order than that of the samples."""
    samples = data.samples[::-1]
    return {
        "path": [str(Path(data.name) / sample.path) for sample in samples],
        "label": [sample.label for sample in samples],
        "domain": [sample.domain for sample in samples],
    }


def folder(data: oodzoo.ImageDomains, to: Path) -> Given:
    assert data.root is not None
    return Given(data.root, {})


def csv_table(data: oodzoo.ImageDomains, to: Path) -> Given:
    """A table elsewhere, with other names of columns, and rows in another order."""
    columns = {
        "site": [s.domain for s in data.samples[::-1]],
        "y": [s.label for s in data.samples[::-1]],
        "filepath": [s.path for s in data.samples[::-1]],
    }
    names = {"path": "filepath", "label": "y", "domain": "site"}
    return Given(csv_file(columns, to), {"root": data.root, "columns": names})


def data_frame(data: oodzoo.ImageDomains, to: Path) -> Given:
    columns = columns_of(data)
    columns["file"] = columns.pop("path")
    return Given(pandas_frame(columns, to), {"root": data.root, "columns": {"path": "file"}})


def hf_in_memory(data: oodzoo.ImageDomains, to: Path) -> Given:
    return Given(hf_dataset(columns_of(data), to), {})


def hf_on_disk(data: oodzoo.ImageDomains, to: Path) -> Given:
    """A data set of Hugging Face with a column of class labels, saved to disk."""
    datasets = pytest.importorskip("datasets")
    dataset = hf_dataset(columns_of(data), to)
    labelled = dataset.cast_column("label", datasets.ClassLabel(names=list(data.classes)))
    labelled.save_to_disk(to / "saved")
    return Given(to / "saved", {})


def image_folders(data: oodzoo.ImageDomains, to: Path) -> Given:
    """One ImageFolder of torchvision for each domain."""
    image_folder = torchvision("datasets").ImageFolder
    assert data.root is not None
    return Given({d: image_folder(data.root / d) for d in data.domains}, {})


def class_folders(data: oodzoo.ImageDomains, to: Path) -> Given:
    """The folder of each domain."""
    assert data.root is not None
    return Given({d: str(data.root / d) for d in data.domains}, {})


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
    """Two files with the bytes of the images."""
    half, columns = len(data) // 2, columns_of(data)
    for n, part in enumerate((slice(half), slice(half, None))):
        rows = with_images({name: values[part] for name, values in columns.items()})
        write_parquet(to / f"{n}.parquet", rows, row_group_size=100)
    return Given(to, {})


def tars(data: oodzoo.ImageDomains, to: Path) -> Given:
    """Two archives in the form of WebDataset."""
    half = len(data) // 2
    for n, rows in enumerate((range(half), range(half, len(data)))):
        members = {}
        for i in rows:
            about = {"label": data.samples[i].label, "domain": data.samples[i].domain}
            members[f"{i:06d}{Path(data.samples[i].path).suffix}"] = data.open(i)
            members[f"{i:06d}.json"] = json.dumps(about).encode()
        write_tar(to / f"{n}.tar", members)
    return Given(to, {})


def tar_of_a_folder(data: oodzoo.ImageDomains, to: Path) -> Given:
    """One archive of the folder itself, with the folder above it."""
    assert data.root is not None
    with tarfile.open(to / "photos.tar", "w") as archive:
        archive.add(data.root, "some/photos")
    return Given(to / "photos.tar", {})


def byte_strings(data: oodzoo.ImageDomains, to: Path) -> Given:
    labels, domains = ([getattr(s, role) for s in data] for role in ("label", "domain"))
    return Given([data.open(i) for i in range(len(data))], {"labels": labels, "domains": domains})


def url(data: oodzoo.ImageDomains, to: Path) -> Given:
    """A folder at a URL, in memory."""
    memory = pytest.importorskip("fsspec").filesystem("memory")
    name = uuid4().hex
    memory.put(data.name, f"/{name}/photos", recursive=True)
    return Given(f"memory://{name}/photos", {})


def source_of_a_user(data: oodzoo.ImageDomains, to: Path) -> Given:
    """An object with `samples` and `open(i)`: here another data set."""
    return Given(data, {})


def numpy_pixels(data: oodzoo.ImageDomains, to: Path) -> Given:
    """Decoded images: their files cannot be known from them."""
    given = byte_strings(data, to)
    return given._replace(source=[np.asarray(decode(content)) for content in given.source])


WITH_FILES: dict[str, Make] = {
    "folder": folder,
    "CSV": csv_table,
    "DataFrame": data_frame,
    "HF in memory": hf_in_memory,
    "HF on disk": hf_on_disk,
    "ImageFolder": image_folders,
    "class folders": class_folders,
    "Parquet": parquet,
    "tars": tars,
    "tar of a folder": tar_of_a_folder,
    "bytes": byte_strings,
    "URL": url,
    "object": source_of_a_user,
}
"""Sources that have the bytes of the image files."""

DECODED: dict[str, Make] = {"torch Dataset": torch_dataset, "NumPy": numpy_pixels}
"""Sources that have only pixels."""


# --- outcomes ---------------------------------------------------------------------------------


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
