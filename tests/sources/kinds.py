"""The same images as every kind of source that :class:`oodzoo.ImageDomains` opens."""

from __future__ import annotations

import csv
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pytest
from PIL import Image

import oodzoo
from oodzoo.core.packages import import_torchvision, torchvision_installed
from oodzoo.data.pixels import decode


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


def save_image(
    path: Path, size: tuple[int, int], colour: Any = (9, 1, 5), kind: str = "RGB"
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(kind, size, colour).save(path)


def write_mixed(root: Path) -> Path:
    """Images of several sizes and kinds; one is copied, and one is in both domains."""
    save_image(root / "day/cat/1.png", (40, 30))
    save_image(root / "day/cat/2.jpg", (60, 50), (9, 1, 5, 0), "CMYK")
    save_image(root / "day/cat/3.jpg", (80, 10), 7, "L")
    save_image(root / "day/dog/1.png", (50, 90))
    save_image(root / "night/cat/1.png", (40, 31))
    shutil.copy(root / "night/cat/1.png", root / "night/cat/2.png")
    shutil.copy(root / "day/dog/1.png", root / "night/cat/3.png")
    save_image(root / "night/dog/1.png", (40, 32))
    return root


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


def table(kind: str) -> Make:
    """A table with the places of the files."""
    return lambda data, to: Given(TABLES[kind](columns_of(data), to), {})


def folder(data: oodzoo.ImageDomains, to: Path) -> Given:
    assert data.root is not None
    return Given(data.root, {})


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
    "CSV": table("CSV"),
    "DataFrame": table("pandas"),
    "HF in memory": table("HF in memory"),
    "HF on disk": table("HF on disk"),
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


# --- variants of these sources ----------------------------------------------------------------

VARIANTS: dict[str, Make] = {}
"""Further sources with the bytes of the image files: another form, another way to give them."""

Function = Callable[[oodzoo.ImageDomains, Path], Any]


def variant(name: str, **options: Any) -> Callable[[Function], Function]:
    """Register a function that returns a source, or a source with options."""

    def register(function: Function) -> Function:
        def make(data: oodzoo.ImageDomains, to: Path) -> Given:
            found = function(data, to)
            return found if isinstance(found, Given) else Given(found, options)

        VARIANTS[name] = make
        return function

    return register


def parts(data: oodzoo.ImageDomains) -> dict[str, dict[str, list[Any]]]:
    """The columns of each domain, without that of the domain."""
    columns = columns_of(data)
    rows = {d: [at for at, x in enumerate(columns["domain"]) if x == d] for d in data.domains}
    return {
        d: {name: [columns[name][at] for at in some] for name in ("path", "label")}
        for d, some in rows.items()
    }


@variant("HF domains")
def hf_domains(data: oodzoo.ImageDomains, to: Path) -> Any:
    splits = {domain: hf_dataset(columns, to) for domain, columns in parts(data).items()}
    return pytest.importorskip("datasets").DatasetDict(splits)


@variant("HF columns by type")
def hf_columns_by_type(data: oodzoo.ImageDomains, to: Path) -> Any:
    rows = hf_dataset(columns_of(data), to).rename_columns({"image": "img", "label": "kind"})
    rows = rows.class_encode_column("kind").class_encode_column("domain")
    return rows.add_column("n", list(range(len(data)))).with_transform(lambda _: {"img": [None]})


@variant("HF paths")
def hf_paths(data: oodzoo.ImageDomains, to: Path) -> Any:
    columns = columns_of(data)
    columns["image"] = [Path(path).relative_to(data.name).as_posix() for path in columns["path"]]
    del columns["path"]
    rows = pytest.importorskip("datasets").Dataset.from_dict(columns)
    return Given(rows, {"root": data.name})


def relative(data: oodzoo.ImageDomains) -> dict[str, list[Any]]:
    """Columns with images and the paths of the folder."""
    columns = columns_of(data)
    contents = [Path(path).read_bytes() for path in columns["path"]]
    names = [Path(path).relative_to(data.name).as_posix() for path in columns["path"]]
    return {**columns, "image": contents, "path": names}


@variant("Parquet struct")
def parquet_struct(data: oodzoo.ImageDomains, to: Path) -> Any:
    columns = relative(data)
    pairs = zip(columns["image"], columns.pop("path"), strict=True)
    image = [{"bytes": content, "path": path} for content, path in pairs]
    table = pytest.importorskip("pyarrow").table({**columns, "image": image})
    for name in ("label", "domain"):
        encoded = table[name].dictionary_encode()
        table = table.set_column(table.schema.get_field_index(name), name, encoded)
    return write_parquet(to / "x.parquet", table, row_group_size=3)


@variant("Parquet structs of paths")
def parquet_structs_of_paths(data: oodzoo.ImageDomains, to: Path) -> Any:
    """As datasets writes them if it is told not to embed files."""
    arrow, columns = pytest.importorskip("pyarrow"), relative(data)
    columns["image"] = [{"bytes": None, "path": path} for path in columns.pop("path")]
    kind = arrow.struct({"bytes": arrow.binary(), "path": arrow.string()})
    table = {k: arrow.array(v, kind if k == "image" else None) for k, v in columns.items()}
    return write_parquet(Path(data.name) / "x.parquet", table)


@variant("Series")
def series(data: oodzoo.ImageDomains, to: Path) -> Any:
    frame = polars_frame(relative(data), to)
    given = {"labels": frame["label"], "domains": frame["domain"], "root": data.name}
    return Given(frame["path"], given)


@variant("frame of bytes")
def frame_of_bytes(data: oodzoo.ImageDomains, to: Path) -> Any:
    return pandas_frame(relative(data), to)


@variant("pairs by domain")
def pairs_by_domain(data: oodzoo.ImageDomains, to: Path) -> Any:
    return {d: (columns["path"], columns["label"]) for d, columns in parts(data).items()}


@variant("ConcatDataset")
def concat_dataset(data: oodzoo.ImageDomains, to: Path) -> Any:
    torch: Any = pytest.importorskip("torch").utils.data
    folders = list(image_folders(data, to).source.values())
    n = [len(folder) for folder in folders]
    order = list(range(sum(n)))[::-1]
    domains = [domain for domain, m in zip(data.domains, n, strict=True) for _ in range(m)]
    both = torch.Subset(torch.Subset(torch.ConcatDataset(folders), order), np.array(order))
    return Given(both, {"domains": domains})
