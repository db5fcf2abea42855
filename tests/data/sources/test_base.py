"""The protocol of a source that somebody else has written."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from oodzoo.data.dataset import ImageDomains
from oodzoo.data.files import UnreadableImageError
from oodzoo.data.listing import Sample
from oodzoo.data.sources.base import ImageSource
from oodzoo.errors import InputError


class Squares:
    """Eight images of one pixel."""

    def __init__(self, samples: Any = None) -> None:
        default = [Sample(f"{n}.ppm", f"d{n % 2}", f"c{n // 2 % 2}", f"g{n}") for n in range(8)]
        self.samples = default if samples is None else samples

    def open(self, i: int) -> bytes:
        if i == 7:
            raise RuntimeError("the archive is closed")
        return b"P6 1 1 255 " + bytes([i, i, i])


def test_samples_and_bytes() -> None:
    source = Squares()
    assert isinstance(source, ImageSource)
    data = ImageDomains(source)
    assert data.name == "Squares"
    assert sorted(data.samples) == sorted(source.samples)
    for at, sample in enumerate(data.samples):
        number = int(sample.path[0])
        if number != 7:
            assert data.open(at) == source.open(number)


def test_an_error_of_the_source_is_a_property_of_its_image() -> None:
    data = ImageDomains(Squares())
    assert data.unreadable == {"7.ppm": "RuntimeError: the archive is closed"}
    with pytest.raises(UnreadableImageError, match="the archive is closed"):
        data.open([sample.path for sample in data.samples].index("7.ppm"))


def test_samples_of_another_class() -> None:
    class Mine(NamedTuple):
        label: str
        domain: str
        path: str

    samples = [Mine(f"c{n % 2}", f"d{n // 2}", str(n)) for n in range(4)]
    data = ImageDomains(Squares(samples))
    assert data.samples[0] == Sample("0", "d0", "c0", None)


def test_a_sample_without_a_label() -> None:
    class Mine(NamedTuple):
        domain: str
        path: str

    with pytest.raises(InputError, match="sample 0 of Squares has no label; it needs path, domain"):
        ImageDomains(Squares([Mine("d", "1")]))


def test_labels_domains_and_groups_are_integers() -> None:
    samples = [Sample(f"{n}", n % 2, n // 2 % 2, n) for n in range(8)]  # type: ignore[arg-type]
    data = ImageDomains(Squares(samples))
    assert (data.domains, data.classes) == (("0", "1"), ("0", "1"))
    assert data.samples[0] == Sample("0", "0", "0", "0")


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([Sample("1", "d", "c"), Sample("2", "e", 3)], "labels of mixed kinds"),  # type: ignore[arg-type]
        ([Sample("1", "d", "c"), Sample("2", "", "c")], "row 1: the domain is missing"),
        ([Sample(1, "d", "c")], "the path of sample 0 of Squares must be text, got 1"),  # type: ignore[arg-type]
        (3, "the samples of Squares must be a sequence, got int"),
    ],
)
def test_samples_that_are_refused(samples: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        ImageDomains(Squares(samples))


def test_a_path_twice() -> None:
    samples = [Sample("1.png", f"d{n % 2}", f"c{n}") for n in range(2)]
    with pytest.raises(InputError, match=r"'Squares' lists '1\.png' twice"):
        ImageDomains(Squares(samples))


def test_no_samples() -> None:
    with pytest.raises(InputError, match="'Squares' has no samples"):
        ImageDomains(Squares([]))


def test_options_that_it_has_no_use_for() -> None:
    with pytest.raises(InputError, match="columns= is not used with 'Squares'; leave it out"):
        ImageDomains(Squares(), columns={"label": "y"})
