"""The samples of a store: their table, and the index of images, which rows of which shard they are.

The table has the path, domain, class and group of each sample. Features belong to an image, not to
a sample: images can be moved, relabelled or removed by replacing the table alone.

The index is a sequence of segments, each written once, by one process, and never changed. An image
may be listed in several shards; a model needs it in one of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from oodzoo.core.errors import InputError
from oodzoo.core.io import file_digest, is_temporary, read_json, shown, structured
from oodzoo.core.text import typed
from oodzoo.data.listing import Sample, task_line
from oodzoo.store.format import (
    IMAGES,
    MANIFEST,
    MODELS,
    SAMPLES,
    SCHEMA,
    Manifest,
    ModelRecord,
    mistaken_folder,
    model_folder,
    read_document,
    repair_advice,
    require_no_links,
)
from oodzoo.store.mirror import is_missing, write_new
from oodzoo.tasks import CLASSIFICATION, Task

if TYPE_CHECKING:  # a store is read without decoding images
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.data.sources.folder import UnlabelledImages


SHARD_ROWS = 256

GIVEN = "domain"
"""The column of the metadata with the domains that were given, where others are proposed."""


class TableDomain(msgspec.Struct, frozen=True, omit_defaults=True):
    """The samples of a domain, sorted by path, as columns of equal length.

    Attributes
    ----------
    labels : list of str or None
        The class of each sample, or its label as text, see :meth:`oodzoo.tasks.Task.encode`; None
        for a domain without labels.
    groups : list
        The group of each sample; None for a sample without one.
    images : list of str
        The identity of each image: the SHA-256 of its file. Imported features without image files
        have an identity made of their path.
    metadata : dict of str to list
        Other columns of the user's table (camera, site, date), None for a missing value: what
        domains can be proposed by. If domains are proposed, `domain` has those before.
    """

    name: str
    paths: list[str] = msgspec.field(name="path")
    labels: list[str] | None = msgspec.field(name="label")
    groups: list[str | None] = msgspec.field(name="group")
    images: list[str] = msgspec.field(name="image")
    metadata: dict[str, list[str | None]] = {}

    def __post_init__(self) -> None:
        columns = (self.labels, self.groups, self.images, *self.metadata.values())
        if any(len(column) != len(self.paths) for column in columns if column is not None):
            raise ValueError(f"the columns of the domain {self.name!r} differ in length")

    def part(self, rows: Iterable[int]) -> TableDomain:
        """Return some of the samples."""
        rows = list(rows)
        return TableDomain(
            self.name,
            [self.paths[row] for row in rows],
            None if self.labels is None else [self.labels[row] for row in rows],
            [self.groups[row] for row in rows],
            [self.images[row] for row in rows],
            {name: [column[row] for row in rows] for name, column in self.metadata.items()},
        )


class SampleTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """The samples of a store, by domain; domains with labels come first, each kind by name.

    Attributes
    ----------
    proposed : str or None
        What the domains with labels were proposed by; None if they were given.
    task : Task
        What the labels are.
    """

    domains: list[TableDomain]
    proposed: str | None = None
    task: Task = CLASSIFICATION

    def __post_init__(self) -> None:
        n, different = len(self.task.outputs), len(set(self.task.outputs))
        if self.task.one_class != (n == 0) or different < n:
            raise ValueError(f"the task {self.task.kind} has the outputs {self.task.outputs}")

    @classmethod
    def of(
        cls, dataset: ImageDomains | None, unlabelled: Sequence[UnlabelledImages] = ()
    ) -> SampleTable:
        """List the samples of a data set whose files can be read."""
        table = cls([])
        if dataset is not None:
            pairs = zip(dataset.samples, dataset.digests, strict=True)
            table = msgspec.structs.replace(
                cls.of_samples(
                    ((sample, digest) for sample, digest in pairs if digest is not None),
                    dataset.metadata,
                ),
                proposed=dataset.domains_proposed,
                task=dataset.task,
            )
        for target in unlabelled:
            found = {
                path: digest
                for path, digest in zip(target.paths, target.digests, strict=True)
                if digest is not None
            }
            names = [None] * len(found)
            domain = TableDomain(target.name, list(found), None, [*names], list(found.values()))
            table = table.replacing(domain)
        return table

    @classmethod
    def of_samples(
        cls,
        samples: Iterable[tuple[Sample, str]],
        metadata: Mapping[str, Mapping[str, str | None]] = MappingProxyType({}),
    ) -> SampleTable:
        """Make a table of samples with labels, each with the identity of its image.

        `metadata` has columns of further values by path.
        """
        by_domain: dict[str, list[tuple[Sample, str]]] = {}
        for sample, image in samples:
            by_domain.setdefault(sample.domain, []).append((sample, image))
        domains = []
        for name in sorted(by_domain):
            rows = sorted(by_domain[name], key=lambda row: row[0].path)
            paths = [sample.path for sample, _ in rows]
            domains.append(
                TableDomain(
                    name,
                    paths,
                    [sample.label for sample, _ in rows],
                    [sample.group for sample, _ in rows],
                    [image for _, image in rows],
                    {column: [values[p] for p in paths] for column, values in metadata.items()},
                )
            )
        return cls(domains)

    def samples(self) -> Iterator[tuple[Sample, str]]:
        """Yield the samples with labels, each with the identity of its image, in table order."""
        for domain in self.labelled:
            columns = (domain.paths, domain.labels or [], domain.groups, domain.images)
            for path, label, group, image in zip(*columns, strict=True):
                yield Sample(path, domain.name, label, group), image

    @property
    def labelled(self) -> list[TableDomain]:
        return [domain for domain in self.domains if domain.labels is not None]

    @property
    def unlabelled(self) -> list[TableDomain]:
        return [domain for domain in self.domains if domain.labels is None]

    def domain(self, name: str) -> TableDomain:
        for domain in self.domains:
            if domain.name == name:
                return domain
        known = ", ".join(repr(domain.name) for domain in self.domains)
        raise InputError(f"unknown domain {name!r}; expected one of {known}")

    def images(self, *, labelled: bool = False) -> Iterator[str]:
        """Yield the images of all domains, or of those with labels, in table order."""
        for domain in self.labelled if labelled else self.domains:
            yield from domain.images

    def replacing(self, domain: TableDomain) -> SampleTable:
        """Return the table with a domain without labels added or replaced."""
        if any(other.name == domain.name for other in self.labelled):
            raise InputError(
                f"the images without labels are named {domain.name!r}, as a domain with labels; "
                "give them another name with NAME=FOLDER"
            )
        others = [other for other in self.unlabelled if other.name != domain.name]
        targets = sorted([*others, domain], key=lambda target: target.name)
        return msgspec.structs.replace(self, domains=[*self.labelled, *targets])

    def keeping_unlabelled(self, old: SampleTable) -> SampleTable:
        """Return the table with the domains without labels of an old one that it lacks."""
        table = self
        for domain in old.unlabelled:
            if all(other.name != domain.name for other in self.domains):
                table = table.replacing(domain)
        return table

    def regrouped(self, domains: Mapping[str, str], proposed: str | None) -> SampleTable:
        """Return the table with other domains, by path, of the samples with labels.

        The column `domain` of the metadata keeps the domains that were given; with None for
        `proposed`, the domains are given ones and nothing is kept.
        """
        if taken := set(domains.values()) & {domain.name for domain in self.unlabelled}:
            raise InputError(
                f"the domain without labels {min(taken)!r} has the name of a proposed domain; "
                "remove it or add it under another name with oodzoo store sync"
            )
        metadata: dict[str, dict[str, str | None]] = {}
        for domain in self.labelled:
            for column, values in domain.metadata.items():
                metadata.setdefault(column, {}).update(zip(domain.paths, values, strict=True))
        metadata.pop(GIVEN, None)
        given = self.given_domains()
        if proposed is not None and given:
            metadata[GIVEN] = {**given}
        moved = ((s._replace(domain=domains[s.path]), image) for s, image in self.samples())
        made = self.of_samples(moved, metadata).domains
        return msgspec.structs.replace(self, domains=[*made, *self.unlabelled], proposed=proposed)

    def given_domains(self) -> dict[str, str]:
        """Return the domains, by path, of the samples with labels before any proposal.

        Empty if none were given.
        """
        given: dict[str, str] = {}
        for domain in self.labelled:
            names: list[str | None] = [domain.name] * len(domain.paths)
            if self.proposed is not None:
                names = domain.metadata.get(GIVEN, [None] * len(domain.paths))
            given |= {p: name for p, name in zip(domain.paths, names, strict=True) if name}
        return given if len(given) == sum(len(d.paths) for d in self.labelled) else {}

    def keeping_proposed(self, old: SampleTable) -> SampleTable | None:
        """Return the table with the proposed domains of an old one of the same samples.

        None if the old one has other samples, or given domains that differ from these.
        """
        if old.proposed is None or self.proposed is not None:
            return self
        given = {sample.path: sample.domain for sample, _ in self.samples()}
        chosen = {sample.path: sample.domain for sample, _ in old.samples()}
        if given.keys() != chosen.keys():
            return None
        kept = self.regrouped(chosen, old.proposed)
        return kept if kept.labelled == old.labelled else None

    def only(self, images: Mapping[str, object] | set[str]) -> SampleTable:
        """Return the samples of some images; domains without any are dropped."""
        domains = []
        for domain in self.domains:
            rows = [row for row, image in enumerate(domain.images) if image in images]
            if rows:
                domains.append(domain.part(rows))
        return msgspec.structs.replace(self, domains=domains)

    def places(self) -> dict[str, tuple[str, str]]:
        """Return the domain and path of each image, the first of them for a repeated one."""
        places: dict[str, tuple[str, str]] = {}
        for domain in self.domains:
            for image, path in zip(domain.images, domain.paths, strict=True):
                places.setdefault(image, (domain.name, path))
        return places

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the samples with labels, equal to that of a readable data set."""
        total = hashlib.sha256(task_line(self.task))
        rows = sorted(self.samples(), key=lambda row: (row[0].domain, row[0].label, row[0].path))
        for sample, image in rows:
            total.update(json.dumps([*sample, image], ensure_ascii=True).encode() + b"\n")
        return total.hexdigest()


def table_numbers(store: Path) -> list[str]:
    """List the numbers of the tables, in the order they were written."""
    folder = require_no_links(store, store / SAMPLES)
    return sorted(path.stem for path in folder.glob("[0-9][0-9][0-9][0-9][0-9].json"))


def table_file(store: Path, number: str) -> Path:
    return store / SAMPLES / f"{number}.json"


def add_table(store: Path, after: str | None, table: SampleTable) -> str | None:
    """Write a table under the next number; None if another process has taken it."""
    number = "00000" if after is None else f"{int(after) + 1:05d}"
    content = msgspec.json.encode({"schema": SCHEMA, **_fields(table)}, enc_hook=Task.to_document)
    path = require_no_links(store, table_file(store, number))
    return number if write_new(path, content) else None


def _fields(table: SampleTable) -> dict[str, object]:
    """Return the fields that differ from their defaults."""
    fields = ((field.name, field.default) for field in msgspec.structs.fields(table))
    return {n: getattr(table, n) for n, default in fields if getattr(table, n) != default}


def read_table(store: Path, number: str, sha256: str | None = None) -> SampleTable:
    """Read a table, and verify its checksum if it is known."""
    advice = f"restore it with `oodzoo store sync {typed(shown(store))} DATA`"
    path = table_file(store, number)
    return read_document(store, path, SampleTable, "the table of samples", sha256, advice)


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


# --- the index of images --------------------------------------------------------------------------


def images_digest(images: Sequence[str]) -> str:
    """Compute a digest of the images of a shard."""
    return hashlib.sha256("\n".join(images).encode(errors="surrogatepass")).hexdigest()[:16]


class _IndexSegment(msgspec.Struct, frozen=True):
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
    return _read_segment_document(store, name).table


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
    segment = _read_segment_document(store, name, expected)
    return expected or file_digest(segment_file(store, name)), _named(name, segment.shards)


def _read_segment_document(store: Path, name: str, expected: str | None = None) -> _IndexSegment:
    path, advice = segment_file(store, name), repair_advice(store)
    return read_document(store, path, _IndexSegment, "the index of images", expected, advice)


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


def registered_models(store: Path) -> list[str]:
    """List the models of a store, finished or not."""
    folder = require_no_links(store, store / MODELS)
    return sorted(path.parent.name for path in folder.glob("*/model.json"))


def read_model(store: Path, name: str) -> ModelRecord:
    path = require_no_links(store, model_folder(store, name) / "model.json")
    what = "the record of a model"
    return structured(read_json(path, what), ModelRecord, f"{what} {shown(path)!r}")
