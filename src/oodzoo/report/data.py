"""The section "Data": example images, and counts by class and domain."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping

from PIL import Image, ImageOps

from oodzoo._text import count
from oodzoo.data.files import StoredFile, UnreadableImageError
from oodzoo.data.images import read
from oodzoo.record import DataSummary
from oodzoo.report.blocks import Block, Column, Facts, Figure, Gallery, Section, Table, Thumbnail
from oodzoo.report.domains_proposed import proposed_line
from oodzoo.task.words import WORDS

PER_DOMAIN = 6
IN_TOTAL = 72
SIDE = 72
"""Pixels of a thumbnail."""


def data_section(data: DataSummary, files: Mapping[str, StoredFile] | None = None) -> Section:
    """The images of a run: how many of each class and domain, and examples from their files."""
    lead = f"{count(data.images, 'image')}, {dimensions(data)}."
    if data.skipped:
        lead += f" Skipped as unreadable: {count(data.skipped, 'image')}."
    if data.domains_proposed is not None:
        lead += f" {proposed_line(data.domains_proposed)}"
    blocks: list[Block] = []
    if files and (rows := _thumbnails(data, files)):
        blocks.append(Gallery(rows))
    table = _numbers(data) if data.task == "regression" else _counts(data)
    blocks.append(Figure(table.caption, table=table, folded=False))
    blocks.append(Facts([("Path", data.path), ("Fingerprint", data.fingerprint)]))
    return Section("data", "Data", lead, blocks)


def dimensions(data: DataSummary) -> str:
    """The number of domains and classes, or other outputs, in words."""
    words = WORDS[data.task]
    outputs = count(len(data.classes), words.output, words.outputs)
    return f"{count(len(data.domains), 'domain')}, {outputs}"


def _counts(data: DataSummary) -> Table:
    """How many images of each domain are of each class, or have each label."""
    words = WORDS[data.task]
    columns = [Column(words.output.capitalize(), words.output, text=True)]
    columns += [Column(domain, domain, 0) for domain in data.domains]
    columns.append(Column("All", "all", 0))
    by_domain = data.domains.values()
    rows: list[list[str | int]] = []
    for label in data.classes:
        counts = [classes.get(label, 0) for classes in by_domain]
        rows.append([label, *counts, sum(counts)])
    totals = [sum(classes.values()) for classes in by_domain]
    if data.labels:  # an image may have none, or several
        without = [data.labels[domain].without_label or 0 for domain in data.domains]
        rows.append(["no label", *without, sum(without)])
        totals = [data.labels[domain].images for domain in data.domains]
    rows.append(["all images" if data.labels else "all classes", *totals, sum(totals)])
    return Table("counts", f"Images by {words.output} and domain", columns, rows)


def _numbers(data: DataSummary) -> Table:
    """Mean, spread and range of each number by domain."""
    columns = [
        Column("Output", "output", text=True),
        Column("Domain", "domain", text=True),
        Column("Images", "images", 0),
        Column("Mean", "mean"),
        Column("Standard deviation", "standard_deviation"),
        Column("Lowest", "lowest"),
        Column("Highest", "highest"),
        Column("In the range of others %", "overlap", 0),
    ]
    rows = [
        [name, domain, labels.images, *labels.numbers[name]]
        for name in data.classes
        for domain, labels in data.labels.items()
    ]
    return Table("numbers", "Labels by domain", columns, rows)


def _thumbnails(
    data: DataSummary, files: Mapping[str, StoredFile]
) -> list[tuple[str, list[Thumbnail]]]:
    """The first readable examples of each domain; none if the images have been removed."""
    most = max(1, min(PER_DOMAIN, IN_TOTAL // max(len(data.examples), 1)))
    rows = []
    for domain, examples in list(data.examples.items())[:IN_TOTAL]:
        thumbnails: list[Thumbnail] = []
        for example in examples:
            if len(thumbnails) == most:
                break
            try:
                url = thumbnail_url(files[example.path])
            except (KeyError, UnreadableImageError):
                continue
            thumbnails.append(Thumbnail(url, f"{example.label}, {domain}"))
        if thumbnails:
            rows.append((domain, thumbnails))
    return rows


def thumbnail_url(file: StoredFile, side: int = SIDE) -> str:
    """Read an image and encode a small square of it as a data URL."""
    image = read(file)
    # tiny images keep their pixels
    method = Image.Resampling.NEAREST if min(image.size) < side else Image.Resampling.LANCZOS
    small = ImageOps.fit(image, (side, side), method)
    content = io.BytesIO()
    small.save(content, "JPEG", quality=72, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"
