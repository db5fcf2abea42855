"""Image columns of Hugging Face's data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oodzoo import ImageDomains
from oodzoo.data.files import LocalFile, ObjectImage
from oodzoo.data.images import decode
from oodzoo.data.sources.huggingface import ImageColumn, has_files

datasets = pytest.importorskip("datasets")


def column(values: list[Any], feature: Any = None) -> ImageColumn:
    data = datasets.Dataset.from_dict({"image": values, "label": [0] * len(values)})
    data = data if feature is None else data.cast_column("image", feature)
    return ImageColumn(data, "image")


def test_bytes_are_those_of_the_files(photos: Path) -> None:
    folder = ImageDomains(photos)
    contents = [folder.open(i) for i in range(len(folder))]
    cells = [{"bytes": content, "path": f"{n}.png"} for n, content in enumerate(contents)]
    for images in (
        column(cells, datasets.Image()),
        column(cells, datasets.Image(decode=False)),
        column(cells),
        column(contents),
    ):
        assert [images.open(i) for i in range(8)] == contents
    paths, files = column(cells).files([""] * 8, "Dataset")
    assert paths == [f"{n}.png" for n in range(8)]
    assert all(isinstance(file, ObjectImage) for file in files)
    assert str(files[3]) == "Dataset: 3.png"


def test_paths_without_bytes_are_local_files(photos: Path) -> None:
    places = [str(photos / sample.path) for sample in ImageDomains(photos)]
    images = column(places, datasets.Image())
    paths, files = images.files([""] * 8, "Dataset")
    assert paths == [sample.path for sample in ImageDomains(photos)]
    assert files == [LocalFile(place) for place in places]
    assert images.open(2) == Path(places[2]).read_bytes()


def test_bytes_come_before_a_file_of_the_same_name(photos: Path) -> None:
    places = [str(photos / sample.path) for sample in ImageDomains(photos)]
    cells = [{"bytes": b"other", "path": places[0]}, {"bytes": None, "path": places[1]}]
    _, files = column(cells, datasets.Image()).files(["", ""], "Dataset")
    assert [file.read() for file in files] == [b"other", Path(places[1]).read_bytes()]


@pytest.mark.parametrize(
    "names", [["a.png", "a.png"], ["a.png", None], ["a.png", "/b.png"], [None, None]]
)
def test_rows_without_a_name_of_their_own_are_numbered(names: list[Any]) -> None:
    images = column([{"bytes": b"x", "path": name} for name in names], datasets.Image())
    assert images.files(["train", "test"], "Dataset")[0] == ["train/000000", "test/000001"]
    assert images.files(["", ""], "Dataset")[0] == ["000000", "000001"]


def test_rows_that_were_selected(photos: Path) -> None:
    data = datasets.Dataset.from_dict({"image": [bytes([n]) for n in range(5)]})
    images = ImageColumn(data.select([4, 2]), "image")
    assert [images.open(i) for i in range(2)] == [b"\4", b"\2"]


def test_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 6, 7, 3), np.uint8)
    for feature in (datasets.Array3D((6, 7, 3), "uint8"), None):
        images = column(pixels.tolist(), feature)
        assert np.asarray(decode(images.open(1))).tolist() == pixels[1].tolist()


def test_columns_of_image_files() -> None:
    assert has_files(datasets.Image())
    assert has_files({"bytes": datasets.Value("binary"), "path": datasets.Value("string")})
    assert not has_files(datasets.Value("string"))
    assert not has_files({"x": datasets.Value("string")})
