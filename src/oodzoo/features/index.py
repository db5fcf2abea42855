"""Image index of a feature store: the image of each row.

The images of a domain have a fixed order, split into shards. The order is written before any
feature is computed and images are only ever appended, so a finished shard stays valid when images,
domains or models are added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence, Set
from urllib.parse import quote

import msgspec

from oodzoo._text import count
from oodzoo.data.listing import Sample
from oodzoo.errors import InputError

SHARD_ROWS = 256

_LONGEST_NAME = 180  # file systems allow 255 bytes; Windows counts the whole path

Key = tuple[str, str, str | None]
"""Identity of an image: its domain, path and SHA-256."""


class DomainIndex(msgspec.Struct):
    """The images of one domain, in row order, as columns of equal length."""

    name: str
    paths: list[str] = msgspec.field(name="path")
    labels: list[str] = msgspec.field(name="label")
    groups: list[str | None] = msgspec.field(name="group")
    digests: list[str | None] = msgspec.field(name="sha256")
    shards: list[int]
    """Number of images in each shard; unreadable images count here but have no row."""

    @classmethod
    def empty(cls, name: str) -> DomainIndex:
        return cls(name, [], [], [], [], [])

    @property
    def folder(self) -> str:
        """The name as a folder name: characters that a file system may reject are escaped."""
        name = quote(self.name, safe=" !#$&'()+,;=@[]^_`{}~-.")
        if name == "model.json":  # a file next to the domain folders
            return "model%2Ejson"
        if len(name) > _LONGEST_NAME:
            digest = hashlib.sha256(self.name.encode()).hexdigest()
            name = f"{name[: _LONGEST_NAME - 17]}%{digest[:16]}"
        if name[0] in ". ":  # hidden, or the parent folder
            name = f"%{ord(name[0]):02X}{name[1:]}"
        if name[-1] in ". ":  # dropped by Windows
            name = f"{name[:-1]}%{ord(name[-1]):02X}"
        return name

    def shard_range(self, shard: int) -> range:
        start = sum(self.shards[:shard])
        return range(start, start + self.shards[shard])

    def truncated(self, n: int) -> DomainIndex:
        """Return the first n images; n must be the end of a shard."""
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

    def split(self, shard_rows: int) -> None:
        """Assign the images after the last shard to new shards."""
        rest = len(self.paths) - sum(self.shards)
        while rest > 0:
            self.shards.append(min(rest, shard_rows))
            rest -= shard_rows


class ImageIndex(msgspec.Struct):
    """The images of a store, by domain; the content of images.json."""

    domains: list[DomainIndex]

    def domain(self, name: str) -> DomainIndex:
        for domain in self.domains:
            if domain.name == name:
                return domain
        known = ", ".join(repr(d.name) for d in self.domains)
        raise InputError(f"unknown domain {name!r}; expected one of {known}")

    def truncated(self, counts: Mapping[str, int]) -> ImageIndex:
        """Return the first `counts` images of each domain, with current labels."""
        return ImageIndex([d.truncated(counts[d.name]) for d in self.domains if counts.get(d.name)])

    def counts(self) -> dict[str, int]:
        return {domain.name: len(domain.paths) for domain in self.domains}

    def grown(
        self,
        samples: Sequence[Sample],
        digests: Sequence[str | None],
        skipped: Set[Key],
        shard_rows: int = SHARD_ROWS,
    ) -> ImageIndex:
        """Return this index with new images of a data set appended and all labels updated.

        Every image that has a row must still be in the data set, unchanged. The `skipped` ones
        have no row: such an image may have been repaired.
        """
        given = {(s.domain, s.path, digest): s for s, digest in zip(samples, digests, strict=True)}
        self._require_all(given, skipped)
        have = {key for domain in self.domains for key in domain.image_keys()}
        grown = {d.name: _relabelled(d, given) for d in self.domains}
        for key, sample in given.items():
            if key not in have:
                domain = grown.setdefault(sample.domain, DomainIndex.empty(sample.domain))
                domain.append(sample, key[2])
        for domain in grown.values():
            domain.split(shard_rows)
        return ImageIndex([grown[name] for name in sorted(grown)])

    def _require_all(self, given: Mapping[Key, Sample], skipped: Set[Key]) -> None:
        rows = [key for d in self.domains for key in d.image_keys() if key not in skipped]
        gone = [key for key in rows if key not in given]
        if not gone:
            return
        if len(gone) == len(rows):
            raise InputError(
                "the store contains features of another data set: none of its "
                f"{count(len(rows), 'image')} is in this one; use another store"
            )
        present = {key[:2] for key in given}
        change = "changed" if gone[0][:2] in present else "removed"
        raise InputError(
            f"{len(gone):,} of the {count(len(rows), 'image')} in the store have been removed or "
            f"changed, the first is {gone[0][1]!r} ({change}); use another store"
        )


def _relabelled(domain: DomainIndex, given: Mapping[Key, Sample]) -> DomainIndex:
    labels, groups = list(domain.labels), list(domain.groups)
    for row, key in enumerate(domain.image_keys()):
        if key in given:
            labels[row], groups[row] = given[key].label, given[key].group
    return DomainIndex(
        domain.name, list(domain.paths), labels, groups, list(domain.digests), list(domain.shards)
    )
