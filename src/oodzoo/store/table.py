"""The table of samples: path, domain, class and group of each image of a store.

Features belong to an image, not to a sample: images can be moved, relabelled or removed by
replacing the table alone.
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
from oodzoo.core.io import shown, structured
from oodzoo.core.text import typed
from oodzoo.data.listing import Sample, task_line
from oodzoo.store.documents import read_document
from oodzoo.store.files import write_new
from oodzoo.store.places import SAMPLES, SCHEMA, require_no_links
from oodzoo.tasks import CLASSIFICATION, Task

if TYPE_CHECKING:  # a store is read without decoding images
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.data.sources.folder import UnlabelledImages


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
        if self.task.is_classification != (n == 0) or different < n:
            raise ValueError(f"the task {self.task.kind} has the outputs {self.task.outputs}")

    @classmethod
    def of(
        cls, dataset: ImageDomains | None, unlabelled: Sequence[UnlabelledImages] = ()
    ) -> SampleTable:
        """List the samples of a data set whose files can be read."""
        samples: list[tuple[Sample, str]] = []
        if dataset is not None:
            pairs = zip(dataset.samples, dataset.digests, strict=True)
            samples = [(sample, digest) for sample, digest in pairs if digest is not None]
        table = cls.of_samples(samples, {} if dataset is None else dataset.metadata)
        if dataset is not None:
            table = msgspec.structs.replace(
                table, proposed=dataset.domains_proposed, task=dataset.task
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
            domains.append(
                TableDomain(
                    name,
                    [sample.path for sample, _ in rows],
                    [sample.label for sample, _ in rows],
                    [sample.group for sample, _ in rows],
                    [image for _, image in rows],
                    {
                        column: [values[sample.path] for sample, _ in rows]
                        for column, values in metadata.items()
                    },
                )
            )
        return cls(domains)

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
        parts: dict[str, list[tuple[str, TableDomain, int]]] = {}
        for domain in self.labelled:
            for row, path in enumerate(domain.paths):
                parts.setdefault(domains[path], []).append((path, domain, row))
        if taken := parts.keys() & {domain.name for domain in self.unlabelled}:
            raise InputError(
                f"the domain without labels {min(taken)!r} has the name of a proposed domain; "
                "remove it or add it under another name with oodzoo store sync"
            )
        given = self.given_domains()
        made = []
        for name in sorted(parts):
            rows = sorted(parts[name], key=lambda row: row[0])
            metadata = {
                column: [domain.metadata[column][at] for _, domain, at in rows]
                for column in rows[0][1].metadata
                if column != GIVEN
            }
            if proposed is not None and given:
                metadata[GIVEN] = [given[path] for path, _, _ in rows]
            made.append(
                TableDomain(
                    name,
                    [path for path, _, _ in rows],
                    [(domain.labels or [])[at] for _, domain, at in rows],
                    [domain.groups[at] for _, domain, at in rows],
                    [domain.images[at] for _, domain, at in rows],
                    metadata,
                )
            )
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
        given = {p: domain.name for domain in self.labelled for p in domain.paths}
        chosen = {p: domain.name for domain in old.labelled for p in domain.paths}
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
        rows = [
            [path, domain.name, label, group, image]
            for domain in self.labelled
            for path, label, group, image in zip(
                domain.paths, domain.labels or [], domain.groups, domain.images, strict=True
            )
        ]
        for row in sorted(rows, key=lambda row: (row[1], row[2], row[0])):
            total.update(json.dumps(row, ensure_ascii=True).encode() + b"\n")
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
    content = msgspec.json.encode({"schema": SCHEMA, **_fields(table)})
    path = require_no_links(store, table_file(store, number))
    return number if write_new(path, content) else None


def _fields(table: SampleTable) -> dict[str, object]:
    """Return the fields that differ from their defaults."""
    fields = ((field.name, field.default) for field in msgspec.structs.fields(table))
    return {n: getattr(table, n) for n, default in fields if getattr(table, n) != default}


def read_table(store: Path, number: str, sha256: str | None = None) -> SampleTable:
    """Read a table, and verify its checksum if it is known."""
    path = require_no_links(store, table_file(store, number))
    what = "the table of samples"
    advice = f"restore it with `oodzoo store sync {typed(shown(store))} DATA`"
    document = read_document(path, what, sha256, advice)
    return structured(document, SampleTable, f"{what} {shown(path)!r}")
