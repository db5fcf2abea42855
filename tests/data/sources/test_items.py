"""Sequences of samples that are read when they are needed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np
import pytest

from oodzoo import ImageDomains, InputError
from oodzoo.data.images import decode
from oodzoo.data.sources.items import name_classes

PIXELS = np.random.default_rng(0).integers(0, 256, (8, 6, 7, 3), np.uint8)
DOMAINS = ["day"] * 4 + ["night"] * 4


class Items:
    """Samples that count how often they are read, and reject being read by two threads."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self.rows = list(rows)
        self.reads = 0
        self.busy = Lock()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        assert self.busy.acquire(blocking=False), "read by two threads"
        try:
            self.reads += 1
            row = self.rows[i]
            if isinstance(row, Exception):
                raise row
            return row() if callable(row) else row
        finally:
            self.busy.release()


def test_pairs_with_domains() -> None:
    items = Items((pixels, n % 2) for n, pixels in enumerate(PIXELS))
    data = ImageDomains(items, domains=DOMAINS)
    found = {s.path: np.asarray(decode(data.open(i))).tolist() for i, s in enumerate(data)}
    assert found == {f"{n:06d}": pixels.tolist() for n, pixels in enumerate(PIXELS)}
    assert [s.label for s in data] == ["0", "0", "1", "1"] * 2
    assert data.name == "Items"


def test_domain_and_group_in_the_samples() -> None:
    rows = [(p, f"c{n % 2}", DOMAINS[n], n // 4) for n, p in enumerate(PIXELS)]
    data = ImageDomains(Items(rows))
    assert {(s.domain, s.group) for s in data} == {("day", "0"), ("night", "1")}
    other = ImageDomains(Items(rows), domains=["a", "b"] * 4)
    assert other.domains == ("a", "b")


def test_dicts_with_other_names() -> None:
    rows = [
        {"x": p, "y": n % 2, "site": d}
        for n, (p, d) in enumerate(zip(PIXELS, DOMAINS, strict=True))
    ]
    data = ImageDomains(Items(rows), columns={"image": "x", "label": "y", "domain": "site"})
    assert (data.domains, data.classes, len(data)) == (("day", "night"), ("0", "1"), 8)


def test_an_attribute_with_labels_saves_reading_all_samples() -> None:
    items = Items((pixels, 9) for pixels in PIXELS)
    ImageDomains(items, domains=DOMAINS, labels=[0, 1] * 4)
    few = items.reads
    with_targets = Items((pixels, 9) for pixels in PIXELS)
    with_targets.targets = np.array([0, 1] * 4)  # type: ignore[attr-defined]
    with_targets.classes = ["cat", "dog"]  # type: ignore[attr-defined]
    data = ImageDomains(with_targets, domains=DOMAINS)
    assert data.classes == ("cat", "dog")
    assert with_targets.reads == few
    without = Items((pixels, n % 2) for n, pixels in enumerate(PIXELS))
    ImageDomains(without, domains=DOMAINS)
    assert without.reads == few + len(PIXELS)


def test_an_attribute_of_another_length_is_not_used() -> None:
    items = Items((pixels, n % 2) for n, pixels in enumerate(PIXELS))
    items.labels = ["cat", "dog", "bird"]  # type: ignore[attr-defined]
    assert ImageDomains(items, domains=DOMAINS).classes == ("0", "1")


def test_samples_are_read_by_one_thread_at_a_time() -> None:
    def slow() -> Any:
        time.sleep(0.002)
        return PIXELS[0], 1

    items = Items([slow] * 40)
    data = ImageDomains(items, labels=[0, 1] * 20, domains=["day", "day", "night", "night"] * 10)
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(data.open, range(40)))) == 1


def test_classes_are_named_where_all_have_names() -> None:
    assert name_classes([1, 0], ["cat", "dog"]) == ["dog", "cat"]
    assert name_classes([2, 0], ["cat", "dog"]) == [2, 0]
    assert name_classes(["x", "y"], ["cat", "dog"]) == ["x", "y"]
    assert name_classes([True, False], ["cat", "dog"]) == [True, False]
    assert name_classes([1, 0], None) == [1, 0]


def test_random_transforms_are_refused() -> None:
    rng = np.random.default_rng(0)

    def random_pixels() -> Any:
        return rng.integers(0, 256, (6, 7, 3), np.uint8), 0

    with pytest.raises(InputError, match="'Items': sample 0 gives another image each time"):
        ImageDomains(Items([random_pixels] * 8), domains=DOMAINS)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(p / 99.0, 0) for p in PIXELS], "'Items', sample 0: float pixels from"),
        ([(p, 0, "day", 1, 2) for p in PIXELS], "a sample has 5 parts; expected"),
        ([(p, 0) for p in PIXELS[:7]] + [ValueError("no\nfile")],
         "sample 7 cannot be read: ValueError: no file"),
        ([(p, 0) for p in PIXELS[:7]] + [(PIXELS[7],)], "sample 7 has other parts than the first"),
        ([(p, n % 2) for n, p in enumerate(PIXELS[:7])] + [(PIXELS[7], "a")], "mixed kinds"),
        ([{"img": p, "label": 0} for p in PIXELS], "'Items' has no column 'image'.* did you mean"),
        ([("a.png", 0) for _ in PIXELS], "'Items', sample 0: str is not an image"),
    ],
)  # fmt: skip
def test_bad_samples(rows: list[Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        ImageDomains(Items(rows), domains=DOMAINS)
    assert "\n" not in str(caught.value)


def test_columns_of_tuples_have_no_names() -> None:
    with pytest.raises(InputError, match="columns= is not used with 'Items': its samples have no"):
        ImageDomains(Items((p, 0) for p in PIXELS), columns={"label": "y"}, domains=DOMAINS)


def test_an_image_that_cannot_be_read_is_unreadable() -> None:
    items = Items((pixels, 9) for pixels in PIXELS)
    items.rows[3] = OSError("gone")
    data = ImageDomains(items, labels=[0, 1] * 4, domains=DOMAINS)
    assert data.unreadable == {"000003": "gone"}
