"""The index of images, which rows of which shard they are; and what the folder of a store contains.

The index is a sequence of segments, each written once, by one process, and never changed. An image
may be listed in several shards; a model needs it in one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from oodzoo.core.errors import InputError
from oodzoo.core.io import file_digest, is_temporary, read_json, shown, structured
from oodzoo.store.documents import read_document
from oodzoo.store.files import is_missing, write_new
from oodzoo.store.manifest import Manifest, ModelRecord
from oodzoo.store.places import (
    IMAGES,
    MANIFEST,
    MODELS,
    SCHEMA,
    mistaken_folder,
    model_folder,
    repair_advice,
    require_no_links,
)
from oodzoo.store.shards import images_digest
from oodzoo.store.table import SampleTable, read_table, table_file, table_numbers

SHARD_ROWS = 256


class _Segment(msgspec.Struct, frozen=True):
    shards: list[list[str]]
    table: str | None = None


class ImageIndex:
    """The images of each shard.

    Attributes
    ----------
    shards : dict of str to list of str
        The images of each shard, by its name `<segment>-<shard>`, in the order they were added.
    segments : dict of str to str
        SHA-256 of each segment.
    """

    def __init__(
        self,
        segments: Mapping[str, str],
        shards: Mapping[str, list[str]],
        ignored: Iterable[str] = (),
    ) -> None:
        self.segments = dict(sorted(segments.items()))
        self.shards = dict(sorted(shards.items()))
        self.ignored = frozenset(ignored)
        self._digests: dict[str, str] = {}

    @classmethod
    def read(cls, store: Path, segments: Mapping[str, str | None] | None = None) -> ImageIndex:
        """Read all segments, or some with their expected checksums."""
        found: dict[str, str] = {}
        shards: dict[str, list[str]] = {}
        for name in segment_names(store) if segments is None else segments:
            expected = None if segments is None else segments[name]
            found[name], part = _read_segment(store, name, expected)
            shards |= part
        return cls(found, shards)

    def without(self, segments: Iterable[str]) -> ImageIndex:
        gone = set(segments)
        return ImageIndex(
            {name: digest for name, digest in self.segments.items() if name not in gone},
            {name: images for name, images in self.shards.items() if segment_of(name) not in gone},
            ignored=self.ignored | gone,
        )

    def digest(self, shard: str) -> str:
        """Return a digest of the images of a shard, which its records contain."""
        if shard not in self._digests:
            self._digests[shard] = images_digest(self.shards[shard])
        return self._digests[shard]

    def images(self) -> set[str]:
        return {image for images in self.shards.values() for image in images}

    def add(self, store: Path, shards: Sequence[list[str]], table: str | None = None) -> bool:
        """Write a segment; False if another process has added some, which are read instead.

        `table` is the number of the newest table, see :func:`segment_table`.
        """
        names = segment_names(store)
        new = [name for name in names if name not in self.segments and name not in self.ignored]
        if not new:
            name = f"{max(map(int, names), default=-1) + 1:05d}"
            content = msgspec.json.encode({"schema": SCHEMA, "table": table, "shards": shards})
            if write_new(require_no_links(store, segment_file(store, name)), content):
                self.segments[name] = hashlib.sha256(content).hexdigest()
                self.shards |= _named(name, shards)
                return True
            new = [name]
        for name in new:
            self.segments[name], part = _read_segment(store, name)
            self.shards |= part
        return False


def segment_table(store: Path, name: str) -> str | None:
    """Return the number of the table that was the newest when a segment was written.

    As long as it is, the extraction that added the images of the segment has not finished.
    """
    return _read_document(store, name).table


def segment_of(shard: str) -> str:
    return shard.partition("-")[0]


def cut(images: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Cut images, given with their domains, into shards; a shard has images of one domain."""
    shards: list[list[str]] = []
    last = None
    for domain, image in images:
        if domain != last or len(shards[-1]) == SHARD_ROWS:
            shards.append([])
        shards[-1].append(image)
        last = domain
    return shards


def has_lost_manifest(store: Path) -> bool:
    """Whether a folder is a store without its manifest."""
    # in this order: another process may be creating the store, the manifest first
    return bool(segment_names(store)) and not (store / MANIFEST).exists()


def segment_names(store: Path) -> list[str]:
    folder = require_no_links(store, store / IMAGES)
    return sorted(path.stem for path in folder.glob("[0-9][0-9][0-9][0-9][0-9].json"))


def segment_file(store: Path, name: str) -> Path:
    return store / IMAGES / f"{name}.json"


def _read_segment(
    store: Path, name: str, expected: str | None = None
) -> tuple[str, dict[str, list[str]]]:
    segment = _read_document(store, name, expected)
    return expected or file_digest(segment_file(store, name)), _named(name, segment.shards)


def _read_document(store: Path, name: str, expected: str | None = None) -> _Segment:
    path = require_no_links(store, segment_file(store, name))
    what = "the index of images"
    document = read_document(path, what, expected, repair_advice(store))
    return structured(document, _Segment, f"{what} {shown(path)!r}")


def _named(segment: str, shards: Sequence[list[str]]) -> dict[str, list[str]]:
    return {f"{segment}-{number:05d}": images for number, images in enumerate(shards)}


def require_store(path: Path, *, without_manifest: bool = False) -> None:
    """Reject a path that is not a store."""
    if is_missing(path):
        raise InputError(f"no such feature store: {shown(path)!r}")
    if without_manifest and has_lost_manifest(path):
        return
    is_store = (path / MANIFEST).is_file()
    if not is_store and (what := mistaken_folder(path, "store")):
        raise InputError(f"{shown(path)!r} is not a feature store: {what}")
    require_store_or_empty(path)
    if not (path / MANIFEST).is_file():
        raise InputError(f"{shown(path)!r} is not a feature store: it has no manifest.json")


def require_store_or_empty(path: Path) -> None:
    """Reject a folder with other content than that of a store."""
    if not path.is_dir() or (path / MANIFEST).is_file():
        return
    if has_lost_manifest(path):
        raise InputError(
            f"the store {shown(path)!r} has lost its manifest.json; {repair_advice(path)}"
        )
    for entry in sorted(path.iterdir()):
        if entry.name != ".lock" and not is_temporary(entry.name):
            if (path / MANIFEST).is_file():
                return  # another process has just created the store
            raise InputError(
                f"{shown(path)!r} is neither empty nor a feature store (it contains "
                f"{entry.name!r}); choose another folder"
            )


def newest_table(
    path: Path, manifest: Manifest, *, lost: bool = False
) -> tuple[str | None, SampleTable | None]:
    """Read the newest table and its number; with `lost`, None instead of a damaged one.

    The manifest has another one if a writer was killed before it wrote the manifest.
    """
    numbers = table_numbers(path)
    number = numbers[-1] if numbers else manifest.table
    if number is None:
        return None, SampleTable([])
    try:
        sha256 = manifest.samples if number == manifest.table else None
        return number, read_table(path, number, sha256)
    except InputError:
        if not lost:
            raise
        return number, None


def old_tables(store: Path, manifest: Manifest) -> list[Path]:
    """List the tables before that of the manifest."""
    numbers = [number for number in table_numbers(store) if number < (manifest.table or "")]
    return [table_file(store, number) for number in numbers]


def registered_models(store: Path) -> list[str]:
    """List the models of a store, finished or not."""
    folder = require_no_links(store, store / MODELS)
    return sorted(path.parent.name for path in folder.glob("*/model.json"))


def read_model(store: Path, name: str) -> ModelRecord:
    path = require_no_links(store, model_folder(store, name) / "model.json")
    what = "the record of a model"
    return structured(read_json(path, what), ModelRecord, f"{what} {shown(path)!r}")
