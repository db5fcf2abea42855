"""Which image is which row of a feature store.

The images of a domain are rows in a fixed order, cut into shards. The order is laid down before
any feature is computed and only ever grows at its end, so a finished shard stays valid when
images, domains or models are added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from oodzoo.data.listing import Sample
from oodzoo.errors import InputError

SHARD_ROWS = 256

_LONGEST_NAME = 180  # file systems stop at 255 bytes, on Windows with the whole path

Key = tuple[str, str, str | None]
"""What makes an image this image: its domain, path and digest."""


@dataclass
class DomainIndex:
    """The images of one domain in the order of their rows; columns of equal length."""

    name: str
    paths: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)
    digests: list[str | None] = field(default_factory=list)
    shards: list[int] = field(default_factory=list)
    """Number of images in each shard; an unreadable image counts here but has no row."""

    @property
    def folder(self) -> str:
        """The name as a folder: characters that a file system may refuse are escaped."""
        name = quote(self.name, safe=" !#$&'()+,;=@[]^_`{}~-.")
        if name == "model.json":  # lies beside the folders of the domains
            return "model%2Ejson"
        if len(name) > _LONGEST_NAME:
            digest = hashlib.sha256(self.name.encode()).hexdigest()
            name = f"{name[: _LONGEST_NAME - 17]}%{digest[:16]}"
        if name[0] in ". ":  # would be hidden, or lead upwards
            name = f"%{ord(name[0]):02X}{name[1:]}"
        if name[-1] in ". ":  # Windows drops these
            name = f"{name[:-1]}%{ord(name[-1]):02X}"
        return name

    def shard_range(self, shard: int) -> range:
        start = sum(self.shards[:shard])
        return range(start, start + self.shards[shard])

    def truncated(self, n: int) -> DomainIndex:
        """The first n images, which end a shard."""
        ends = [self.shard_range(shard).stop for shard in range(len(self.shards))]
        return DomainIndex(
            self.name,
            self.paths[:n],
            self.labels[:n],
            self.groups[:n],
            self.digests[:n],
            self.shards[: sum(end <= n for end in ends)],
        )

    def image_keys(self) -> Iterator[Key]:
        for path, digest in zip(self.paths, self.digests, strict=True):
            yield self.name, path, digest

    def append(self, sample: Sample, digest: str | None) -> None:
        self.paths.append(sample.path)
        self.labels.append(sample.label)
        self.groups.append(sample.group)
        self.digests.append(digest)

    def cut(self, shard_rows: int) -> None:
        """Cut the images that are in no shard yet into shards."""
        rest = len(self.paths) - sum(self.shards)
        while rest > 0:
            self.shards.append(min(rest, shard_rows))
            rest -= shard_rows


@dataclass
class ImageIndex:
    """The images of a store, by domain."""

    domains: list[DomainIndex]

    def domain(self, name: str) -> DomainIndex:
        for domain in self.domains:
            if domain.name == name:
                return domain
        known = ", ".join(repr(d.name) for d in self.domains)
        raise InputError(f"there is no domain {name!r}; there are {known}")

    def truncated(self, counts: Mapping[str, int]) -> ImageIndex:
        """The index as it was when it held this many images of each domain; labels of today."""
        return ImageIndex([d.truncated(counts[d.name]) for d in self.domains if counts.get(d.name)])

    def counts(self) -> dict[str, int]:
        return {domain.name: len(domain.paths) for domain in self.domains}

    def to_json(self) -> dict[str, Any]:
        return {
            "domains": [
                {
                    "name": d.name,
                    "path": d.paths,
                    "label": d.labels,
                    "group": d.groups,
                    "sha256": d.digests,
                    "shards": d.shards,
                }
                for d in self.domains
            ],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> ImageIndex:
        return cls(
            [
                DomainIndex(d["name"], d["path"], d["label"], d["group"], d["sha256"], d["shards"])
                for d in document["domains"]
            ]
        )

    def grown(
        self,
        samples: Sequence[Sample],
        digests: Sequence[str | None],
        skipped: Set[Key],
        shard_rows: int = SHARD_ROWS,
    ) -> ImageIndex:
        """This index with the images of a data set that it lacks, and with their labels of today.

        Every image that has a row must still be in the data set, unchanged. The `skipped` ones
        have none: such an image may have been mended.
        """
        given = {(s.domain, s.path, digest): s for s, digest in zip(samples, digests, strict=True)}
        self._require_all(given, skipped)
        have = {key for domain in self.domains for key in domain.image_keys()}
        grown = {d.name: _relabelled(d, given) for d in self.domains}
        for key, sample in given.items():
            if key not in have:
                grown.setdefault(sample.domain, DomainIndex(sample.domain)).append(sample, key[2])
        for domain in grown.values():
            domain.cut(shard_rows)
        return ImageIndex([grown[name] for name in sorted(grown)])

    def _require_all(self, given: Mapping[Key, Sample], skipped: Set[Key]) -> None:
        rows = [key for d in self.domains for key in d.image_keys() if key not in skipped]
        gone = [key for key in rows if key not in given]
        if not gone:
            return
        if len(gone) == len(rows):
            raise InputError(
                "the store holds features of another data set (none of its "
                f"{len(rows)} images is in this one); use another store"
            )
        present = {key[:2] for key in given}
        change = "changed" if gone[0][:2] in present else "no longer there"
        raise InputError(
            f"{len(gone)} of the {len(rows)} images in the store are not in this data set as they "
            f"were, the first is {gone[0][1]!r} ({change}); use another store"
        )


def _relabelled(domain: DomainIndex, given: Mapping[Key, Sample]) -> DomainIndex:
    labels, groups = list(domain.labels), list(domain.groups)
    for row, key in enumerate(domain.image_keys()):
        if key in given:
            labels[row], groups[row] = given[key].label, given[key].group
    return DomainIndex(
        domain.name, list(domain.paths), labels, groups, list(domain.digests), list(domain.shards)
    )
