"""Stores of numbers and of several labels: extraction, reading, sync, prune, merge, damage."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.store.tiny import CLASSES, ExactModel, write_image

from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import InputError
from oodzoo.features.config import ExtractionConfig
from oodzoo.features.extract import run_extraction
from oodzoo.leaks.space import list_samples
from oodzoo.racing.race import race
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.merge import merge_stores
from oodzoo.store.prune import prune_store
from oodzoo.store.sync import sync_store
from oodzoo.store.usage import list_contents
from oodzoo.store.writer import writing
from oodzoo.task import Task

N = 24
AGES = [20.5 + 1.25 * at for at in range(N)]
TAGS = [[name for bit, name in enumerate(CLASSES) if (at + 1) >> bit & 1] for at in range(N)]
NUMBERS, SEVERAL = Task("regression", ("age",)), Task("multilabel", CLASSES)

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a table of images and their labels."""
    for at in range(N):
        write_image(tmp_path / f"photos/{at:02d}.png", at, CLASSES[at % 3])

    def write(**columns: Any) -> Path:
        path = tmp_path / "photos/table.csv"
        rows = {
            "path": [f"{at:02d}.png" for at in range(N)],
            "domain": ["day" if at % 2 else "night" for at in range(N)],
            **columns,
        }
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(rows)
            writer.writerows(zip(*rows.values(), strict=True))
        return path

    return write


def numbers(table: Path) -> ImageDomains:
    return ImageDomains(table, columns={"label": "age"})


def extracted(dataset: ImageDomains, store: Path, *models: str) -> FeatureStore:
    zoo = [ExactModel(name) for name in models or ("m",)]
    run_extraction(dataset, zoo, store, ExtractionConfig(device="cpu"))
    return FeatureStore(store)


def test_numbers(write: Write, tmp_path: Path) -> None:
    data = numbers(write(age=AGES))
    store = extracted(data, tmp_path / "s")
    assert (store.task, store.classes) == (NUMBERS, ("age",))
    for start, domain in enumerate(("night", "day")):
        labels = store.labels(domain)
        assert labels.dtype == np.float64
        assert labels.tolist() == [[age] for age in AGES[start::2]]
        assert store.label_texts(domain) == [repr(age) for age in AGES[start::2]]
    assert store.data_fingerprint == data.fingerprint
    contents = list_contents(store.path)
    assert (contents.task, contents.classes) == (NUMBERS, 1)


def test_several_labels(write: Write, tmp_path: Path) -> None:
    table = write(label=["|".join(tags) for tags in TAGS])
    store = extracted(ImageDomains(table, task="multilabel"), tmp_path / "s")
    assert (store.task, store.classes) == (SEVERAL, CLASSES)
    expected = [[float(name in tags) for name in CLASSES] for tags in TAGS]
    assert store.labels("night").tolist() == expected[::2]
    assert store.labels("day").tolist() == expected[1::2]


def test_sync_and_prune_keep_the_task(write: Write, tmp_path: Path) -> None:
    store = extracted(numbers(write(age=AGES)), tmp_path / "s")
    before = store.data_fingerprint
    whole = [str(round(age)) for age in AGES]  # could be classes, but the store has numbers
    changes = sync_store(store.path, write(age=whole), columns={"label": "age"})
    assert (changes.relabelled, changes.task) == (sum(a != round(a) for a in AGES), None)
    changed = FeatureStore(store.path)
    assert changed.task == NUMBERS
    assert changed.labels("night")[0, 0] == round(AGES[0])
    assert changed.data_fingerprint != before
    table = write(age=AGES)
    lines = table.read_text().splitlines()
    table.write_text("\n".join(lines[:-2]))
    assert sync_store(store.path, table, columns={"label": "age"}).removed == 2
    prune_store(store.path)
    assert FeatureStore(store.path).task == NUMBERS
    assert FeatureStore(store.path).n_images == N - 2


def test_a_store_can_get_another_task(write: Write, tmp_path: Path) -> None:
    classes = write(label=[CLASSES[at % 3] for at in range(N)])
    store = extracted(ImageDomains(classes), tmp_path / "s")
    columns = {"label": "+".join(CLASSES)}
    binary = {name: [int(name in tags) for tags in TAGS] for name in CLASSES}
    changes = sync_store(store.path, write(**binary), columns=columns)
    assert changes.task == "multilabel ('bike', 'cat', 'dog')"
    assert FeatureStore(store.path).task == SEVERAL
    with pytest.raises(InputError, match="unknown task 'regresion'"):
        sync_store(store.path, write(**binary), columns=columns, task="regresion")


def test_stores_of_different_tasks_are_not_merged(write: Write, tmp_path: Path) -> None:
    one = extracted(numbers(write(age=AGES)), tmp_path / "a", "m").path
    table = write(label=["|".join(tags) for tags in TAGS])
    two = extracted(ImageDomains(table, task="multilabel"), tmp_path / "b", "n").path
    with pytest.raises(InputError, match=r"regression \('age'\), .* for multilabel \('bike', 'ca"):
        merge_stores([one, two], tmp_path / "c")
    years = ImageDomains(write(years=AGES), columns={"label": "years"})
    three = extracted(years, tmp_path / "d", "n").path
    with pytest.raises(InputError, match=r"\('age'\), .* for regression \('years'\); stores"):
        merge_stores([one, three], tmp_path / "c")
    four = extracted(numbers(write(age=AGES)), tmp_path / "e", "n").path
    merged = merge_stores([one, four], tmp_path / "c")
    assert (merged.task, merged.models) == (NUMBERS, ("m", "n"))


@pytest.mark.parametrize("label", ["tall", "1.0 2.0", "nan", '["cat"]'])
def test_damaged_labels_are_one_line(write: Write, tmp_path: Path, label: str) -> None:
    path = extracted(numbers(write(age=AGES)), tmp_path / "s").path
    with writing(path) as writer:
        day, night = writer.table.domains
        labels = [*(day.labels or [])[:-1], label]
        writer.table = replace(writer.table, domains=[replace(day, labels=labels), night])
        writer.finish()
    with pytest.raises(InputError, match=r"is damaged.* do not fit its task, regression") as caught:
        FeatureStore(path).labels("day")
    assert "\n" not in str(caught.value)


def test_samples_that_are_compared(write: Write, tmp_path: Path) -> None:
    """Numbers are compared within ranges, and shown with three digits."""
    store = extracted(numbers(write(age=[30.001 * (at + 1) for at in range(N)])), tmp_path / "s")
    samples = list_samples(store, ["m"])
    assert samples.place(0) == ("01.png", "day", "60")
    assert sorted(set(samples.strata.tolist())) == [0, 1, 2, 3, 4]
    table = write(label=["|".join(tags) for tags in TAGS])
    store = extracted(ImageDomains(table, task="multilabel"), tmp_path / "t")
    assert list_samples(store, ["m"]).place(1) == ("03.png", "day", "dog")


def test_a_race_takes_samples_of_numbers(write: Write, tmp_path: Path) -> None:
    found = race(numbers(write(age=AGES)), [ExactModel("m")], tmp_path / "s", device="cpu")
    assert found.store.task == NUMBERS
