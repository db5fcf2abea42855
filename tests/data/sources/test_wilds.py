"""Data sets of WILDS."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

from oodzoo import ImageDomains, InputError
from oodzoo.data.images import decode

torch = pytest.importorskip("torch")

PIXELS = np.random.default_rng(0).integers(0, 256, (8, 6, 7, 3), np.uint8)


class Camelyon:
    """The part of `wilds.datasets.wilds_dataset.WILDSDataset` that is used; not PyTorch's."""

    metadata_fields = ("hospital", "slide", "y")
    metadata_map: ClassVar[dict[str, Any] | None] = {
        "y": ["normal", "tumour"],
        "hospital": np.array([7, 9]),
    }
    y_array = torch.tensor([0, 1] * 4)
    metadata_array = torch.tensor([[n // 4, n // 2, n % 2] for n in range(8)])

    def __len__(self) -> int:
        return len(self.y_array)

    def __getitem__(self, i: int) -> Any:
        return self.get_input(i), self.y_array[i], self.metadata_array[i]

    def get_input(self, i: int) -> Image.Image:
        return Image.fromarray(PIXELS[i])


class CamelyonSubset(Camelyon):
    """As WILDSSubset: `get_input` does not take its positions."""

    def __init__(self, dataset: Camelyon, indices: np.ndarray) -> None:
        self.dataset = dataset
        self.indices = indices
        self.y_array = dataset.y_array[indices]
        self.metadata_array = dataset.metadata_array[indices]

    def get_input(self, i: int) -> Image.Image:
        raise NotImplementedError


def test_a_field_of_the_metadata_is_the_domain() -> None:
    data = ImageDomains(Camelyon(), columns={"domain": "hospital", "group": "slide"})
    assert (data.domains, data.classes) == (("7", "9"), ("normal", "tumour"))
    for i, sample in enumerate(data):
        n = int(sample.path)
        assert sample.label == ["normal", "tumour"][n % 2]
        assert (sample.domain, sample.group) == ("79"[n // 4], str(n // 2))
        assert np.asarray(decode(data.open(i))).tolist() == PIXELS[n].tolist()


def test_a_subset() -> None:
    data = ImageDomains(
        CamelyonSubset(Camelyon(), np.array([7, 0, 4, 3])), columns={"domain": "hospital"}
    )
    found = {s.path: (s.domain, s.label) for s in data}
    assert found == {
        "000000": ("9", "tumour"),
        "000001": ("7", "normal"),
        "000002": ("9", "normal"),
        "000003": ("7", "tumour"),
    }
    first = next(i for i, s in enumerate(data) if s.path == "000000")
    assert np.asarray(decode(data.open(first))).tolist() == PIXELS[7].tolist()


def test_numbers_without_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Camelyon, "metadata_map", None)
    data = ImageDomains(Camelyon(), columns={"domain": "slide", "label": "hospital"})
    assert (data.domains, data.classes) == (("0", "1", "2", "3"), ("0", "1"))
    assert ImageDomains(Camelyon(), domains=["a", "b"] * 4).domains == ("a", "b")


def test_the_field_must_be_there() -> None:
    with pytest.raises(
        InputError, match=r"'Camelyon' has no column 'domain'.* 'hospital', 'slide'"
    ):
        ImageDomains(Camelyon())
    with pytest.raises(InputError, match=r"no column 'hospitals'.* did you mean hospital"):
        ImageDomains(Camelyon(), columns={"domain": "hospitals"})
