"""After any history, a store has what a new store of the current images would have."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store import tiny
from tests.store.tiny import CLASSES, content

from oodzoo.core.errors import InputError
from oodzoo.store.checking import check_store
from oodzoo.store.format import read_manifest
from oodzoo.store.maintenance import Pruned, merge_stores, prune_store, remove_models
from oodzoo.store.shards import read_record
from oodzoo.store.table import registered_models

# set the variable to try more histories
EXAMPLES = int(os.environ.get("OODZOO_HISTORIES", "6"))


@contextmanager
def new_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


class History:
    """Images on disk, and a store that follows them.

    Images are given by a number, modulo those that there are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data, self.store, self.removed = folder / "data", folder / "store", folder / "removed"
        self.removed.mkdir()
        self.n_written = 0
        for domain in ("day", "night"):
            for label in CLASSES:
                self.add(domain, label)
                self.add(domain, label)

    def add(self, domain: str, label: str) -> None:
        self.n_written += 1
        name = f"{self.n_written * 7919 % 1000:03}-{self.n_written}.png"  # in any order
        tiny.write_image(self.data / domain / label / name, self.n_written, label)

    def edit(self, at: int) -> None:
        """Replace the content of an image file."""
        self.n_written += 1
        tiny.write_image(self._image(at), self.n_written, CLASSES[self.n_written % 3])

    def remove(self, at: int) -> None:
        if len(self._images()) > 6:
            path = self._image(at)
            path.rename(self.removed / path.name)

    def restore(self, domain: str, label: str) -> None:
        """Put a removed image back, in any place."""
        for path in sorted(self.removed.iterdir())[:1]:
            _move(path, self.data / domain / label / path.name)

    def rename(self, at: int, name: str) -> None:
        path = self._image(at)
        path.rename(path.with_name(f"{name}{path.name}"[-40:]))

    def relabel(self, at: int, label: str) -> None:
        path = self._image(at)
        _move(path, path.parents[1] / label / path.name)

    def change_domain(self, at: int, domain: str) -> None:
        path = self._image(at)
        _move(path, self.data / domain / path.parent.name / path.name)

    def rename_domain(self, at: int, name: str) -> None:
        domains = sorted({path.parents[1] for path in self._images()})
        if not (self.data / name).exists():
            domains[at % len(domains)].rename(self.data / name)

    def copy(self, at: int, name: str) -> None:
        """Add an image with the content of another one."""
        path = self._image(at)
        shutil.copyfile(path, path.with_name(f"{name}{path.name}"[-40:]))

    def _images(self) -> list[Path]:
        return sorted(self.data.glob("*/*/*.png"))

    def _image(self, at: int) -> Path:
        images = self._images()
        return images[at % len(images)]

    def update(self, models: set[str]) -> None:
        """Synchronise and extract: the store is that of the current images."""
        self.sync()
        tiny.extract(self.data, sorted(models), self.store)
        assert set(self.models) >= models
        assert content(self.store) == self._fresh()

    def extract(self, models: set[str]) -> None:
        """Extract alone, which is refused if images of the store are not in the data any more."""
        before = content(self.store) if self.models else None
        complaint = tiny.complaint(tiny.extract, self.data, sorted(models), self.store)
        if complaint:
            assert "oodzoo store sync" in complaint or "of another data set" in complaint
            assert before == content(self.store)
        else:
            assert content(self.store) == self._fresh()

    def sync(self) -> None:
        """Synchronise: the store has those of the current images that it has features of."""
        if not self.models:
            return
        before = content(self.store)
        try:
            changes = tiny.sync(self.store, self.data, yes=True)
        except InputError:
            if _images(before) & _images(self._fresh()):
                raise
            return
        seen, fresh = content(self.store), self._fresh()
        # more than before, if the images were removed that a model had no features of
        assert set(seen["models"]) >= set(before["models"])
        assert _images(seen) >= _images(before) & _images(fresh)
        assert seen == _only(fresh, _images(seen))
        assert changes.new == _n_samples(fresh) - _n_samples(seen)

    def rm(self, model: str) -> None:
        if self.store.exists() and model in registered_models(self.store):
            others = [name for name in self.models if name != model]
            remove_models(self.store, [model])
            assert self.models == others

    def prune(self) -> None:
        if self.models:
            before = content(self.store)
            prune_store(self.store)
            assert content(self.store) == before
            assert prune_store(self.store) == Pruned(0, 0)

    def merge(self, models: set[str], others: set[str]) -> None:
        """Replace the store by its merger with another one of the same images."""
        self.update(models)
        other, out = self.folder / "other", self.folder / "out"
        expected = {*self.models, *others}
        tiny.extract(self.data, sorted(others), other)
        merge_stores([self.store, other], out)
        for path in (self.store, other):
            shutil.rmtree(path)
        out.rename(self.store)
        assert set(self.models) == expected
        assert content(self.store) == self._fresh()

    def repair(self, at: int) -> None:
        """Delete a file of a shard, and repair the store."""
        if self._lose_shard(at) is not None:
            assert check_store(self.store, repair=True).damage

    def recompute(self, at: int) -> None:
        """Delete a file of a shard, and extract again without repairing the store."""
        model = self._lose_shard(at)
        if model is None:
            return
        if self.models:
            complaint = tiny.complaint(tiny.sync, self.store, self.data, yes=True)
            if complaint:  # nothing is left of the images
                assert "another data set" in complaint
                check_store(self.store, repair=True)
        tiny.extract(self.data, [model], self.store)
        assert model in self.models
        assert content(self.store) == self._fresh()
        check_store(self.store, repair=True)  # a shard of removed images is not computed again
        assert content(self.store) == self._fresh()

    def _lose_shard(self, at: int) -> str | None:
        records = sorted(self.store.glob("models/*/0*.json"))
        if not records:
            return None
        record = read_record(records[at % len(records)])
        assert record is not None
        lost = records[at % len(records)].with_name(record.features.file)
        lost.unlink()
        return lost.parent.name

    def rank(self) -> None:
        """Compare a ranking, which uses what earlier ones have left in the cache."""
        if self.models:
            self.sync()
            tiny.extract(self.data, self.models, self.store)
            with self._new() as fresh:
                assert _ranked(self.store) == _ranked(fresh)

    @property
    def models(self) -> list[str]:
        """The complete models."""
        return sorted(read_manifest(self.store).models) if self.store.exists() else []

    @contextmanager
    def _new(self) -> Iterator[Path]:
        with new_folder() as folder:
            tiny.extract(self.data, self.models, folder / "store")
            yield folder / "store"

    def _fresh(self) -> dict[str, Any]:
        with self._new() as store:
            return content(store)


def _move(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)


def _domains(seen: dict[str, Any]) -> list[str]:
    return [key for key in seen if key != "models"]


def _images(seen: dict[str, Any]) -> set[str]:
    return {image for domain in _domains(seen) for image in seen[domain][3]}


def _n_samples(seen: dict[str, Any]) -> int:
    return sum(len(seen[domain][3]) for domain in _domains(seen))


def _only(seen: dict[str, Any], images: set[str]) -> dict[str, Any]:
    """Return the content of a store with some of the images."""
    part: dict[str, Any] = {"models": seen["models"]}
    for domain in _domains(seen):
        *columns, outputs = seen[domain]
        rows = [row for row, image in enumerate(columns[3]) if image in images]
        if rows:
            part[domain] = (
                *([column[row] for row in rows] for column in columns),
                {name: [column[row] for row in rows] for name, column in outputs.items()},
            )
    return part


def _ranked(store: Path) -> object:
    """Return the numbers of a ranking, or None if these images cannot be ranked."""
    try:
        return tiny.ranked(store)
    except InputError:
        return None


at = st.integers(0, 30)
names = st.sampled_from(["a", "Z", "é", "0"])
domains = st.sampled_from(["day", "dusk", "fog", "night"])
labels = st.sampled_from(CLASSES)
models = st.sets(st.sampled_from("abc"), min_size=1)


class Step(NamedTuple):
    """A method of a history, with its arguments."""

    name: str
    arguments: tuple[Any, ...] = ()

    def __call__(self, history: History) -> None:
        getattr(history, self.name)(*self.arguments)


def step(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.just(name), st.tuples(*arguments))


changes = st.one_of(
    step("add", domains, labels),
    step("edit", at),
    step("remove", at),
    step("restore", domains, labels),
    step("rename", at, names),
    step("relabel", at, labels),
    step("change_domain", at, domains),
    step("rename_domain", at, domains),
    step("copy", at, names),
)
commands = st.one_of(
    step("update", models),
    step("extract", models),
    step("sync"),
    step("rm", st.sampled_from("abc")),
    step("prune"),
    step("merge", models, models),
    step("repair", at),
    step("recompute", at),
    step("rank"),
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.one_of(changes, commands), min_size=5, max_size=25), models)
def test_any_history(steps: list[Step], last: set[str]) -> None:
    with new_folder() as folder:
        history = History(folder)
        history.update({"a", "b"})
        for do in steps:
            do(history)
            assert not check_store(history.store).damage
        history.update(last)
        history.rank()
        assert not check_store(history.store).damage
