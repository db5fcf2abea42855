"""Domains and labels from paths, by the rules of a folder."""

from __future__ import annotations

import pytest

from oodzoo.data.files import EmbeddedFile
from oodzoo.data.listing import Listing
from oodzoo.data.sources.folder import list_by_path
from oodzoo.errors import InputError


def listed(*paths: str) -> Listing:
    return list_by_path("x", [(path, EmbeddedFile(path.encode())) for path in paths], "root")


def test_domain_and_class_come_first() -> None:
    listing = listed("day/cat/1.png", "v1.0/dog/deep/er/2.png")
    assert listing.samples == [
        ("day/cat/1.png", "day", "cat", None),
        ("v1.0/dog/deep/er/2.png", "v1.0", "dog", None),
    ]
    assert [file.read() for file in listing.files] == [b"day/cat/1.png", b"v1.0/dog/deep/er/2.png"]
    assert not listing.issues


def test_empty_parts_of_a_path_are_no_names() -> None:
    assert listed("/day//cat/1.png").samples == [("/day//cat/1.png", "day", "cat", None)]


def test_images_outside_any_class_are_noted_and_those_beside_domains_ignored() -> None:
    listing = listed("day/cat/1.png", "v1.0/stray.png", "v1.0/more.png", "overview.png")
    assert len(listing.samples) == 1
    (issue,) = listing.issues
    assert (issue.kind, issue.message[:18]) == ("no class", "'v1.0' has 2 image")


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["1.png"], "no image found in 'x': expected root/domain/class/image$"),
        (["cat/1.png"], "; found 1 one level too high, as in root/class/image$"),
    ],
)
def test_no_image_in_a_class(paths: list[str], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        listed(*paths)
