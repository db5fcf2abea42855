"""Synchronising the samples of a store with a changed data set; numbers and several labels."""

from __future__ import annotations

import csv
import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.features.data import Tree, write_table
from tests.store import tiny
from tests.store.tiny import CLASSES, ExactModel, write_image

from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.sources.folder import UnlabelledImages
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.outcome import ExtractionConfig
from oodzoo.ranking.racing import race
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.leaks.search import list_samples
from oodzoo.store.maintenance import list_contents, merge_stores
from oodzoo.store.sync import Changes, sync_store
from oodzoo.store.writer import writing
from oodzoo.tasks import task_of


@pytest.fixture
def same_as_new(tiny_store: Path, images: Path, tmp_path: Path) -> Callable[..., None]:
    """Require that the store equals a new one of the images, or of a table of them."""

    def same_as_new(source: Path = images, models: str = "ab") -> None:
        shutil.rmtree(tmp_path / "fresh", ignore_errors=True)
        tiny.extract(source, list(models), tmp_path / "fresh")
        assert tiny.content(tiny_store) == tiny.content(tmp_path / "fresh")

    return same_as_new


def rows_by_image(store: Path, model: str) -> dict[str, bytes]:
    """Return the features of a model by image."""
    opened = FeatureStore(store)
    images = sorted(opened.coverage(model).rows)
    rows = opened.gather(model, images, "features")
    return {image: row.tobytes() for image, row in zip(images, rows, strict=True)}


def counts(changes: Changes) -> dict[str, int]:
    """Return the numbers that are not zero."""
    found = dataclasses.asdict(changes)
    return {key: n for key, n in found.items() if isinstance(n, int) and n}


def rows_of(images: Path) -> list[tuple[str, ...]]:
    return [tuple(sample[:3]) for sample in ImageDomains(images)]


def move(images: Path, *pairs: str) -> None:
    for pair in pairs:
        old, new = pair.split(" ")
        (images / new).parent.mkdir(parents=True, exist_ok=True)
        (images / old).rename(images / new)


def remove(images: Path, *names: str) -> None:
    for name in names:
        path = images / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def swap(images: Path) -> None:
    one, two = images / "day/cat/0.png", images / "night/dog/1.png"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def again(images: Path) -> None:
    shutil.copy(images / "day/cat/0.png", images / "day/cat/again.png")


def rename_class(images: Path) -> None:
    move(images, "day/cat day/tiger", "night/cat night/tiger")


HISTORIES: dict[str, list[tuple[Callable[[Path], None], dict[str, int], dict[str, Any]]]] = {
    "a class, then a domain": [
        (lambda images: remove(images, "day/cat", "night/cat"), {"removed": 6}, {}),
        (lambda images: move(images, "day/bike dusk/bike"), {"moved": 3}, {}),
        (lambda images: remove(images, "night"), {"removed": 6}, {}),
    ],
    "moved": [
        (
            lambda i: move(i, "day/cat/0.png day/cat/x.png", "day/dog/0.png night/dog/x.png"),
            {"moved": 2},
            {},
        )
    ],
    "relabelled": [
        (lambda i: move(i, "day/cat/0.png day/dog/x.png"), {"moved": 1, "relabelled": 1}, {})
    ],
    "two change places": [(swap, {"moved": 2, "relabelled": 2}, {})],
    "a renamed class": [
        (rename_class, {"moved": 6, "relabelled": 6}, {"classes": {"cat": "tiger"}})
    ],
    "a renamed domain": [
        (lambda images: move(images, "day noon"), {"moved": 9}, {"domains": {"day": "noon"}})
    ],
    "an image twice, then once": [
        (again, {"added": 1}, {}),
        (lambda images: remove(images, "day/cat/0.png"), {"removed": 1}, {}),
    ],
}


@pytest.mark.parametrize("name", HISTORIES)
def test_the_store_is_that_of_the_current_images(
    tiny_store: Path, images: Path, same_as_new: Callable[..., None], name: str
) -> None:
    files = {file.name: file.read_bytes() for file in tiny_store.rglob("*.npy")}
    rows = rows_by_image(tiny_store, "a")
    for change, expected, renamed in HISTORIES[name]:
        change(images)
        changes = sync_store(tiny_store, images)
        assert counts(changes) == expected
        assert (changes.classes, changes.domains) == (
            renamed.get("classes", {}),
            renamed.get("domains", {}),
        )
        same_as_new()
        assert sync_store(tiny_store, images) == Changes()
        assert len(list((tiny_store / "samples").iterdir())) == 1  # old tables are removed
    # rows of removed images are kept until the store is pruned
    assert {file.name: file.read_bytes() for file in tiny_store.rglob("*.npy")} == files
    assert rows_by_image(tiny_store, "a") == rows


def test_files_that_cannot_be_read_or_decoded(images: Path, tmp_path: Path) -> None:
    broken = images / "day/cat/0.png"
    broken.write_bytes(broken.read_bytes()[:60])
    tiny.extract(images, ["a", "b"], tmp_path / "s")
    broken.rename(images / "day/cat/moved.png")
    assert counts(sync_store(tmp_path / "s", images)) == {"moved": 1}
    assert list(FeatureStore(tmp_path / "s").skipped) == ["day/cat/moved.png"]
    dataset = ImageDomains(images)
    remove(images, "day/dog/0.png")  # after it was listed
    changes = sync_store(tmp_path / "s", dataset)
    assert (changes.removed, list(changes.unreadable)) == (1, ["day/dog/0.png"])
    assert FeatureStore(tmp_path / "s").n_images == 16


def test_unlabelled_domains(
    tiny_store: Path, images: Path, same_as_new: Callable[..., None], tmp_path: Path
) -> None:
    """They are kept unless they are given; some models may lack them."""
    folder = tiny.write_target(tmp_path / "target", 100)
    assert tiny.sync(tiny_store, images, [folder]) == Changes(new=4)
    assert FeatureStore(tiny_store).unlabelled == ()
    tiny.extract(images, ["a"], tiny_store, unlabelled=[str(folder)])
    before = tiny.content(tiny_store)["target"]
    remove(images, "day/cat/0.png")
    assert sync_store(tiny_store, images) == Changes(removed=1)
    assert tiny.content(tiny_store)["target"] == before
    (folder / "100.png").unlink()
    (folder / "102.png").rename(folder / "001.png")
    assert tiny.sync(tiny_store, images, [folder]) == Changes(unlabelled=("target",))
    opened = FeatureStore(tiny_store)
    assert opened.paths("target") == ["001.png", "101.png", "103.png"]
    assert opened.images("target")[0] == UnlabelledImages(folder).digests[0]
    assert opened.models == ("a", "b")
    with pytest.raises(InputError, match="has no unlabelled domain 'x'; it has 'target'"):
        sync_store(tiny_store, images, drop=["x"])
    changes = sync_store(tiny_store, images, drop=["target"])
    assert changes == Changes(unlabelled=("target",))
    same_as_new()


def refused(store: Path, images: Path, message: str, tree: Tree, **options: Any) -> None:
    before = tree(store)
    with pytest.raises(InputError, match=message):
        sync_store(store, images, **options)
    assert tree(store) == before


def test_what_needs_a_confirmation(
    tiny_store: Path, images: Path, same_as_new: Callable[..., None], tmp_path: Path, tree: Tree
) -> None:
    """Most images removed, or an image in two domains; other data is always refused."""
    (tmp_path / "empty").mkdir()
    words = "has no images: all samples .* confirm with --yes"
    refused(tiny_store, tmp_path / "empty", words, tree)
    empty = shutil.copytree(tiny_store, tmp_path / "copy")
    assert sync_store(empty, tmp_path / "empty", yes=True) == Changes(removed=18)
    assert FeatureStore(empty).domains == ()
    other = tiny.write_images(tmp_path / "other", ("hill", "vale"), 2)
    for number, path in enumerate(other.rglob("*.png"), start=500):
        write_image(path, number, path.parent.name)
    for yes in (False, True):
        words = r"none of the 12 images .* another data set\?"
        refused(tiny_store, other, words, tree, yes=yes)
    table = write_table(images, [*rows_of(images), ("day/cat/none.png", "day", "cat")])
    refused(tiny_store, table, r"table.csv', line 20: no such file .*day/cat/none.png", tree)
    shutil.copy(images / "day/cat/0.png", images / "night/cat/copy.png")
    refused(tiny_store, images, r"day/cat/0.*'night/cat/copy.png' .*same image in two", tree)
    assert sync_store(tiny_store, images, yes=True) == Changes(added=1)
    same_as_new()
    remove(images, "night/dog/0.png")  # it was so before: no question
    assert sync_store(tiny_store, images) == Changes(removed=1)
    (images / "dusk/cat").mkdir(parents=True)  # a third domain is new
    shutil.copy(images / "day/cat/0.png", images / "dusk/cat/copy.png")
    refused(tiny_store, images, "same image in two", tree)
    remove(images, "dusk", "night/cat/copy.png")
    remove(images, "day/cat", "day/dog", "night/bike", "night/dog")
    refused(tiny_store, images, r"\d+ of the 1\d images .* confirm with --yes", tree)
    sync_store(tiny_store, images, yes=True)
    same_as_new()


N = 24
AGES = [20.5 + 1.25 * at for at in range(N)]
TAGS = [[name for bit, name in enumerate(CLASSES) if (at + 1) >> bit & 1] for at in range(N)]
NUMBERS, SEVERAL = task_of("regression", ("age",)), task_of("multilabel", CLASSES)

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a table of images and their labels."""
    for at in range(N):
        write_image(tmp_path / f"photos/{at:02d}.png", at, CLASSES[at % 3])

    def write(**columns: Sequence[Any]) -> Path:
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


def numbers(table: Path, column: str = "age") -> ImageDomains:
    return ImageDomains(table, columns={"label": column})


def tagged(write: Write) -> ImageDomains:
    return ImageDomains(write(label=["|".join(tags) for tags in TAGS]), task="multilabel")


def extracted(dataset: ImageDomains, store: Path, model: str = "m") -> FeatureStore:
    run_extraction(dataset, [ExactModel(model)], store, ExtractionConfig(device="cpu"))
    return FeatureStore(store)


def test_stores_of_numbers_and_of_several_labels(write: Write, tmp_path: Path) -> None:
    data = numbers(write(age=AGES))
    store = extracted(data, tmp_path / "s")
    assert (store.task, store.classes) == (NUMBERS, ("age",))
    for start, domain in enumerate(("night", "day")):
        labels = store.labels(domain)
        assert labels.dtype == np.float64
        assert labels.tolist() == [[age] for age in AGES[start::2]]
        assert store.label_texts(domain) == [repr(age) for age in AGES[start::2]]
    assert store.data_fingerprint == data.fingerprint
    found = list_contents(store.path)
    assert (found.task, found.classes) == (NUMBERS, 1)
    # near-duplicates: numbers are compared within ranges, and shown with three digits
    samples = list_samples(store, ["m"])
    assert samples.place(0) == ("01.png", "day", "21.8")
    assert sorted(set(samples.strata.tolist())) == [0, 1, 2, 3, 4]
    raced = race(data, [ExactModel("m")], tmp_path / "raced", device="cpu")
    assert raced.store.task == NUMBERS
    other = extracted(tagged(write), tmp_path / "t")
    assert (other.task, other.classes) == (SEVERAL, CLASSES)
    expected = [[float(name in tags) for name in CLASSES] for tags in TAGS]
    assert other.labels("night").tolist() == expected[::2]
    assert other.labels("day").tolist() == expected[1::2]
    assert list_samples(other, ["m"]).place(1) == ("03.png", "day", "dog")


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
    one = extracted(numbers(write(age=AGES)), tmp_path / "a").path
    other = extracted(tagged(write), tmp_path / "b", "n").path
    words = r"regression \('age'\), .* for multilabel \('bike', 'ca"
    with pytest.raises(InputError, match=words):
        merge_stores([one, other], tmp_path / "c")
    with pytest.raises(InputError, match="has labels for regression, the data for multilabel"):
        extracted(tagged(write), one, "n")
    four = extracted(numbers(write(age=AGES)), tmp_path / "e", "n").path
    merged = merge_stores([one, four], tmp_path / "c")
    assert (merged.task, merged.models) == (NUMBERS, ("m", "n"))
    with writing(one) as writer:
        day, night = writer.table.domains
        labels = [*(day.labels or [])[:-1], "tall"]
        writer.table = replace(writer.table, domains=[replace(day, labels=labels), night])
        writer.finish()
    with pytest.raises(InputError, match=r"is damaged.* do not fit its task, regression"):
        FeatureStore(one).labels("day")
