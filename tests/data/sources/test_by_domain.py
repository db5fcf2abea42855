"""Dicts of sources by domain."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.data.sources.vision import torchvision

from oodzoo import ImageDomains, InputError
from oodzoo.data.images import decode

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 7, 3), np.uint8)


def test_folders_of_classes(photos: Path) -> None:
    data = ImageDomains({"day": photos / "day", "night": str(photos / "night")})
    expected = ImageDomains(photos)
    assert data.samples == expected.samples
    assert data.files == expected.files
    assert data.digests == expected.digests


def test_images_outside_of_classes_are_an_issue(photos: Path) -> None:
    shutil.copy(photos / "day/cat/1.png", photos / "day/0.png")
    data = ImageDomains({"day": photos / "day", "night": photos / "night"})
    assert len(data) == 8
    messages = [issue.message for issue in data.quick_check()]
    assert messages == ["'day' has 1 image outside any class folder; ignored"]


def test_a_remote_folder_of_classes(photos: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.put(str(photos / "night"), "/by_domain/night", recursive=True)
    data = ImageDomains({"day": photos / "day", "night": "memory://by_domain/night"})
    assert data.samples == ImageDomains(photos).samples
    assert data.digests == ImageDomains(photos).digests


def test_pairs_of_images_and_labels() -> None:
    data = ImageDomains({1: (PIXELS, [0, 1, 0, 1]), 2: (list(PIXELS), [1, 0, 1, 0], "aabb")})
    assert data.domains == ("1", "2")
    assert [s.path for s in data][:4] == ["1/000000", "1/000002", "1/000001", "1/000003"]
    assert [s.group for s in data if s.domain == "2"] == ["aabb"] * 4
    assert np.asarray(decode(data.open(1))).tolist() == PIXELS[2].tolist()


def test_files_of_the_same_name(photos: Path) -> None:
    pairs = {}
    for domain in ("day", "night"):
        files = sorted((photos / domain).rglob("*.png"))
        pairs[domain] = (files, [path.parent.name for path in files])
    data = ImageDomains(pairs)
    assert data.samples == ImageDomains(photos).samples
    assert data.digests == ImageDomains(photos).digests


def test_data_sets_of_torch_and_of_hugging_face(photos: Path) -> None:
    folder = torchvision("datasets").ImageFolder(photos / "day")
    datasets = pytest.importorskip("datasets")
    night = [s for s in ImageDomains(photos) if s.domain == "night"]
    table = datasets.Dataset.from_dict(
        {
            "img": [str(photos / s.path) for s in night],
            "label": [s.label for s in night],
            "domain": ["ignored"] * 4,
        }
    ).cast_column("img", datasets.Image())
    data = ImageDomains({"day": folder, "night": table})
    assert data.samples == ImageDomains(photos).samples
    assert data.digests == ImageDomains(photos).digests
    saved = photos.parent / "saved"
    table.save_to_disk(saved)
    assert len(ImageDomains({"day": folder, "night": saved})) == 8


def test_data_frames(photos: Path) -> None:
    pandas = pytest.importorskip("pandas")
    expected = ImageDomains(photos)
    frames = {
        domain: pandas.DataFrame(
            [(s.path, s.label) for s in expected if s.domain == domain], columns=["file", "label"]
        )
        for domain in expected.domains
    }
    data = ImageDomains(frames, root=photos, columns={"path": "file"})
    assert data.samples == expected.samples


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"day": "nowhere", "night": "nowhere"}, "domain 'day': no such file or folder: 'nowhere'"),
        ({"day": (PIXELS, [0, 1])}, "domain 'day': labels= has 2 values, but 'ndarray' has 4"),
        ({"day": (PIXELS,)}, r"domain 'day': expected \(images, labels\).* got 1 part"),
        ({"day": 5}, "domain 'day': cannot read images from an object of type int"),
        ({"day": PIXELS}, "domain 'day': 'ndarray' has no labels"),
        ({"day": (PIXELS, [0, 1, 0, 1])}, "'dict' has one domain, 'day'"),
        ({"a": (PIXELS, [0, 1, 0, 1]), 2: (PIXELS, [0, 1, 0, 1])}, "domains of mixed kinds"),
        ({}, "'dict' has no samples"),
    ],
)
def test_bad_sources(sources: dict[Any, Any], words: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=words):
        ImageDomains(sources)


def test_a_folder_without_classes(photos: Path) -> None:
    with pytest.raises(InputError, match=r"domain 'cat': no image found in .* class/image"):
        ImageDomains({"cat": photos / "day/cat", "dog": photos / "day/dog"})


def test_options_that_the_dict_gives_itself() -> None:
    with pytest.raises(InputError, match="domains= is not used with 'dict'"):
        ImageDomains({"day": (PIXELS, [0, 1, 0, 1])}, domains=["day"] * 4)
