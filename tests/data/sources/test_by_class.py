"""Folders `root/class/image`, told from `root/domain/class/image` by the names of the classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oodzoo.data.dataset import ImageDomains
from oodzoo.data.sources.base import Options
from oodzoo.data.sources.choice import open_source
from oodzoo.data.sources.folder import is_by_class, list_by_class
from oodzoo.errors import InputError

CLASSES = ("cat", "dog")


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["cat/1.png", "dog/2.png"], True),
        (["cat/roll/1.png", "dog/roll/2.png"], True),
        (["day/cat/1.png", "day/dog/2.png"], False),
        (["cat/dog/1.png"], False),  # a domain may have the name of a class
        (["Cat/1.png", "Dog/2.png"], True),  # other names, but there are no domains
        (["x/y/1.png"], False),
        (["1.png"], False),
        ([], False),
    ],
)
def test_the_names_of_the_classes_tell(paths: list[str], expected: bool) -> None:
    assert is_by_class(paths, CLASSES) is expected


def test_a_folder_of_classes_is_one_domain_with_its_name(photos: Path) -> None:
    listing = list_by_class(photos / "day", CLASSES, ())
    assert listing is not None
    assert {(s.domain, s.label, s.path) for s in listing.samples} == {
        ("day", label, f"{label}/{name}.png") for label in CLASSES for name in "12"
    }
    assert listing.files[0].read().startswith(b"\x89PNG")


def test_images_beside_the_classes_are_reported(
    photos: Path, write_image: Callable[[Path], Path]
) -> None:
    write_image(photos / "day" / "loose.png")
    listing = list_by_class(photos / "day", CLASSES, ())
    assert listing is not None
    assert len(listing.samples) == 4
    assert "1 image outside any class folder" in str(listing.issues[0])


def test_a_folder_of_domains_stays_one(photos: Path) -> None:
    assert list_by_class(photos, CLASSES, ()) is None
    listing = open_source(str(photos), Options(classes=CLASSES))
    assert {s.domain for s in listing.samples} == {"day", "night"}
    listing = open_source(str(photos / "day"), Options(classes=CLASSES))
    assert {s.domain for s in listing.samples} == {"day"}


def test_a_url_of_classes_is_one_domain(photos: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.put(str(photos / "night"), "/by-class/night", recursive=True)
    listing = open_source("memory://by-class/night", Options(classes=CLASSES))
    assert {(s.domain, s.label) for s in listing.samples} == {("night", c) for c in CLASSES}
    assert len(listing.samples) == 4


def test_a_folder_without_domains_can_be_one_domain(photos: Path) -> None:
    one = ImageDomains(photos / "day", domains="one")
    assert (one.domains, one.classes) == (("all",), CLASSES)
    with pytest.raises(InputError, match="--domains one"):
        ImageDomains(photos / "day")
