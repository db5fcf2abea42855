"""The index of images: which images the rows of each shard belong to.

The index is a sequence of segments, each written once, by one process, and never changed. An image
may be listed in several shards; a model needs it in one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from oodzoo.core.io import file_digest, shown, structured
from oodzoo.store.documents import read_document
from oodzoo.store.files import write_new
from oodzoo.store.places import IMAGES, MANIFEST, SCHEMA, repair_advice, require_no_links
from oodzoo.store.shards import images_digest

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
