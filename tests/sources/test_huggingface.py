"""Data sets of Hugging Face's library `datasets`, and of the Hub."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.sources.hub_server import serving
from tests.sources.kinds import TABLES, columns_of, torchvision

from oodzoo import ImageDomains, InputError
from oodzoo.data.files import LocalFile
from oodzoo.data.pixels import decode
from oodzoo.data.sources.huggingface import ImageColumn

datasets = pytest.importorskip("datasets")


def rows(photos: Path) -> Any:
    """A Dataset of the images of a folder, in another order than its own."""
    return TABLES["HF in memory"](columns_of(ImageDomains(photos)), photos)


def roles(data: ImageDomains) -> set[tuple[str | None, str, str]]:
    return {(d, s.domain, s.label) for s, d in zip(data.samples, data.digests, strict=True)}


def require_equal(source: Any, photos: Path, **options: Any) -> ImageDomains:
    """Open a source that has the images, labels and domains of the folder."""
    data = ImageDomains(source, **options)
    assert roles(data) == roles(ImageDomains(photos))
    return data


def test_formats_selections_splits_and_saved_data_sets(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = rows(photos)
    torchvision("datasets")
    require_equal(source.with_format("torch"), photos)
    part = ImageDomains(source.shuffle(seed=1).select(range(6)))
    assert roles(part) < roles(ImageDomains(photos))
    parts = {"train": source.select(range(4)), "test": source.select(range(4, 8))}
    named = {name: part.remove_columns("domain") for name, part in parts.items()}
    assert ImageDomains(named).domains == ("test", "train")
    source.save_to_disk(tmp_path / "one", num_shards=2)
    data = require_equal(tmp_path / "one", photos, columns={"domain": "domain"})
    assert data.name == str(tmp_path / "one")
    maps = Path("/proc/self/maps")
    assert not maps.exists() or str(tmp_path / "one") in maps.read_text(encoding="utf-8")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"reading '.*one' needs .*datasets"):
        ImageDomains(tmp_path / "one")


def column(values: list[Any], feature: Any = None) -> ImageColumn:
    data = datasets.Dataset.from_dict({"image": values, "label": [0] * len(values)})
    data = data if feature is None else data.cast_column("image", feature)
    return ImageColumn(data, "image")


def test_paths_without_bytes_are_local_files(photos: Path) -> None:
    names = [sample.path for sample in ImageDomains(photos)]
    places = [str(photos / name) for name in names]
    images = column(places, datasets.Image())
    paths, files = images.files([""] * 8, "Dataset")
    assert (paths, files) == (names, [LocalFile(place) for place in places])
    assert images.open(2) == Path(places[2]).read_bytes()
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


def test_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 6, 7, 3), np.uint8)
    for feature in (datasets.Array3D((6, 7, 3), "uint8"), None):
        images = column(pixels.tolist(), feature)
        assert np.asarray(decode(images.open(1))).tolist() == pixels[1].tolist()


ADA = "hf://datasets/ada/"
LOADED = ["photos", "photos@0123456789abcdef0123456789abcdef01234567", "photos?split=train"]
LOADED += ["sizes?config=small"]
REFUSED = {
    "photos@v2": ["'ada/photos' has no revision 'v2'"],
    "photos?config=large": ["BuilderConfig 'large' not found", "choose one with ?config=NAME"],
    "sizes": ["'small', 'big'", "choose one with ?config=NAME"],
    "photos?split=val": ['Unknown split "val"', "'train', 'test'", "?split=NAME"],
    "fotos": ["'ada/fotos' does not exist on the Hugging Face Hub, or is private"],
    "gated": ["'ada/gated' is gated", "hf auth login"],
    "script": ["'ada/script' needs its own script", "refused", "@refs%2Fconvert%2Fparquet"],
    "empty": ["cannot load the data set 'ada/empty'"],
}

OPEN = """
import json, sys
import oodzoo
for url in json.loads(sys.argv[1]):
    try:
        data = oodzoo.ImageDomains(url)
        print(json.dumps([len(data), *data.domains, *data.classes, *data.digests]))
    except oodzoo.InputError as error:
        print(json.dumps(str(error)))
"""


def content(n: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (6, 5), (n, n, n)).save(buffer, "PNG")
    return buffer.getvalue()


def write_files(path: Path, numbers: range) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {
        "image": [{"bytes": content(n), "path": f"{n}.png"} for n in numbers],
        "label": [n % 2 for n in numbers],
        "domain": [("day", "night")[n // 2 % 2] for n in numbers],
    }
    features = datasets.Features(
        image=datasets.Image(),
        label=datasets.ClassLabel(names=["cat", "dog"]),
        domain=datasets.Value("string"),
    )
    datasets.Dataset.from_dict(rows, features=features).to_parquet(path)


def write_data_sets(root: Path) -> None:
    write_files(root / "ada/photos/data/train-0.parquet", range(8))
    write_files(root / "ada/photos/data/test-0.parquet", range(8, 12))
    for size in ("small", "big"):
        write_files(root / f"ada/sizes/{size}/train.parquet", range(8))
    sizes = "".join(
        f"- config_name: {size}\n  data_files: {size}/train.parquet\n" for size in ("small", "big")
    )
    card = f"---\nconfigs:\n{sizes}---"
    (root / "ada/sizes/README.md").write_text(card, encoding="utf-8")
    for name in ("gated", "script", "empty"):
        (root / "ada" / name).mkdir()
    (root / "ada/gated/.gated").touch()
    (root / "ada/empty/README.md").write_text("Nothing.", encoding="utf-8")
    (root / "ada/script/script.py").write_text("open('ran', 'w')", encoding="utf-8")


def open_urls(folder: Path, urls: list[str], **environment: str) -> list[Any]:
    """Open URLs in a process of its own: the address of the Hub is read once."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", OPEN, json.dumps(urls)],
        cwd=folder,
        env={**os.environ, "HF_HOME": str(folder / "home"), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_data_sets_of_the_hub(tmp_path: Path) -> None:
    write_data_sets(tmp_path / "hub")
    urls = [ADA + name for name in (*LOADED, *REFUSED)]
    with serving(tmp_path / "hub") as hub:
        opened = open_urls(tmp_path / "work", urls, HF_ENDPOINT=hub, HF_HUB_OFFLINE="0")
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["home"]
    whole, commit, split, config, *messages = opened
    assert whole[:5] == [12, "day", "night", "cat", "dog"]
    assert set(whole[5:]) == {hashlib.sha256(content(n)).hexdigest() for n in range(12)}
    assert (commit, split[0], config[0]) == (whole, 8, 8)
    for message, words in zip(messages, REFUSED.values(), strict=True):
        assert isinstance(message, str)
        assert "\n" not in message
        assert all(word in message for word in words), message


def test_without_a_connection(tmp_path: Path) -> None:
    (tmp_path / "ada/here").mkdir(parents=True)
    absent, here = open_urls(tmp_path, [f"{ADA}photos", f"{ADA}here"], HF_HUB_OFFLINE="1")
    assert absent.startswith("cannot reach the Hugging Face Hub for the data set 'ada/photos'")
    assert here.startswith("datasets would read the local folder 'ada/here' instead of")
