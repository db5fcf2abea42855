"""The section "Near-duplicates": images that occur twice, nearly the same."""

from __future__ import annotations

from collections.abc import Mapping

from oodzoo.data.files import StoredFile, UnreadableImageError
from oodzoo.leaks.pairs import NearDuplicates, Pair
from oodzoo.report.blocks import Block, Column, Figure, PairGallery, Section, Table, Thumbnail
from oodzoo.report.data import thumbnail_url

SHOWN = 8
"""Pairs with thumbnails."""

SIDE = 96
"""Pixels of a thumbnail."""


def shown_pairs(leaks: NearDuplicates) -> tuple[Pair, ...]:
    """The worst pairs: those of different domains first."""
    return (*leaks.across.worst, *leaks.within.worst)[:SHOWN]


def leaks_section(leaks: NearDuplicates, files: Mapping[str, StoredFile]) -> Section:
    """The near-duplicates of a run, what to do about them, and the worst of them to look at."""
    sentences = [problem[0].upper() + problem[1:] + "." for problem in leaks.problems]
    blocks: list[Block] = []
    if shown := _thumbnails(leaks, files):
        blocks.append(PairGallery(shown))
    blocks.append(Figure("The most similar pairs", table=_table(leaks), folded=len(shown) > 0))
    lead = " ".join([*sentences, leaks.extent])
    return Section("near-duplicates", "Near-duplicate images", lead, blocks, "Duplicates")


def remark(leaks: NearDuplicates) -> str:
    """A warning for the first screen; empty without near-duplicates in different domains."""
    if not len(leaks.across):
        return ""
    return f"The results may be too optimistic: {leaks.across} are in different domains."


def _thumbnails(
    leaks: NearDuplicates, files: Mapping[str, StoredFile]
) -> list[tuple[str, tuple[Thumbnail, Thumbnail]]]:
    """Both images of each pair that can still be read, with a caption."""
    shown = []
    for pair in shown_pairs(leaks):
        try:
            urls = [thumbnail_url(files[key], SIDE) for key in pair.keys]
        except (KeyError, UnreadableImageError):
            continue
        first, second = (
            Thumbnail(url, f"{path}, {domain}")
            for url, path, domain in zip(urls, pair.paths, pair.domains, strict=True)
        )
        shown.append((_caption(pair), (first, second)))
    return shown


def _caption(pair: Pair) -> str:
    domains = " and ".join(dict.fromkeys(pair.domains))
    labels = f", labels {pair.labels[0]} and {pair.labels[1]}" if pair.labels_differ else ""
    return f"{domains}: {pair.evidence_in_words}{labels}"


def _table(leaks: NearDuplicates) -> Table:
    columns = [
        Column("Image", "first", text=True),
        Column("Domain", "first_domain", text=True),
        Column("Label", "first_label", text=True),
        Column("Near-duplicate", "second", text=True),
        Column("Domain", "second_domain", text=True),
        Column("Label", "second_label", text=True),
        Column("Evidence", "evidence", text=True),
        Column("Similarity", "similarity", 2),
        Column("Pixels", "correlation", 3),
    ]
    rows = [
        [
            *(pair.paths[0], pair.domains[0], pair.labels[0]),
            *(pair.paths[1], pair.domains[1], pair.labels[1]),
            *(pair.evidence, pair.similarity, pair.correlation),
        ]
        for pair in (*leaks.across.worst, *leaks.within.worst)
    ]
    return Table("near-duplicates", "Near-duplicate images", columns, rows)
