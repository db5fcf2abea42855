"""What went into a run: its data, near-duplicates, the race, and its provenance."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image, ImageOps

from oodzoo.combining.statements import proposed_line
from oodzoo.core.tables import Column, Table
from oodzoo.core.text import count, duration
from oodzoo.data.files import StoredFile, UnreadableImageError
from oodzoo.data.pixels import read
from oodzoo.ranking.racing import Dropped
from oodzoo.report.page import Block, Facts, Figure, Gallery, PairGallery, Section, Thumbnail
from oodzoo.report.record import DataSummary, Run, Stage
from oodzoo.store.leaks.similar import NearDuplicates, Pair
from oodzoo.tasks import task_of
from oodzoo.tasks.task import MEASURES

# --- the section "Data" ---------------------------------------------------------------------------

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
    table = _counts(data) if task_of(data.task).has_probabilities else _numbers(data)
    blocks.append(Figure(table.caption, table=table, folded=False))
    blocks.append(Facts([("Path", data.path), ("Fingerprint", data.fingerprint)]))
    return Section("data", "Data", lead, blocks)


def dimensions(data: DataSummary) -> str:
    """The number of domains and classes, or other outputs, in words."""
    words = task_of(data.task)
    outputs = count(len(data.classes), words.output_noun, words.output_nouns)
    return f"{count(len(data.domains), 'domain')}, {outputs}"


def _counts(data: DataSummary) -> Table:
    """How many images of each domain are of each class, or have each label."""
    words = task_of(data.task)
    columns = [Column(words.output_noun.capitalize(), words.output_noun, text=True)]
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
    return Table("counts", f"Images by {words.output_noun} and domain", columns, rows)


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
            if found := thumbnail(files, example.path, f"{example.label}, {domain}"):
                thumbnails.append(found)
        if thumbnails:
            rows.append((domain, thumbnails))
    return rows


def thumbnail(
    files: Mapping[str, StoredFile], key: str, text: str, side: int = SIDE
) -> Thumbnail | None:
    """A small square of an image as a data URL; None if it is not at hand, or cannot be read."""
    try:
        image = read(files[key])
    except (KeyError, UnreadableImageError):
        return None
    # tiny images keep their pixels
    method = Image.Resampling.NEAREST if min(image.size) < side else Image.Resampling.LANCZOS
    small = ImageOps.fit(image, (side, side), method)
    content = io.BytesIO()
    small.save(content, "JPEG", quality=72, optimize=True)
    url = f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"
    return Thumbnail(url, text)


# --- the section "Near-duplicate images" ----------------------------------------------------------

SHOWN_PAIRS = 8
"""Pairs with thumbnails."""

PAIR_SIDE = 96
"""Pixels of a thumbnail."""


def shown_pairs(leaks: NearDuplicates) -> tuple[Pair, ...]:
    """The worst pairs: those of different domains first."""
    return (*leaks.across.worst, *leaks.within.worst)[:SHOWN_PAIRS]


def leaks_section(leaks: NearDuplicates, files: Mapping[str, StoredFile]) -> Section:
    """The near-duplicates of a run, what to do about them, and the worst of them to look at."""
    sentences = [problem[0].upper() + problem[1:] + "." for problem in leaks.problems]
    blocks: list[Block] = []
    if shown := _pair_thumbnails(leaks, files):
        blocks.append(PairGallery(shown))
    blocks.append(Figure("The most similar pairs", table=_pair_table(leaks), folded=len(shown) > 0))
    lead = " ".join([*sentences, leaks.extent])
    return Section("near-duplicates", "Near-duplicate images", lead, blocks, "Duplicates")


def leaks_remark(leaks: NearDuplicates) -> str:
    """A warning for the first screen; empty without near-duplicates in different domains."""
    if not len(leaks.across):
        return ""
    return f"The results may be too optimistic: {leaks.across} are in different domains."


def _pair_thumbnails(
    leaks: NearDuplicates, files: Mapping[str, StoredFile]
) -> list[tuple[str, tuple[Thumbnail, Thumbnail]]]:
    """Both images of each pair that can still be read, with a caption."""
    shown = []
    for pair in shown_pairs(leaks):
        first, second = (
            thumbnail(files, key, f"{path}, {domain}", PAIR_SIDE)
            for key, path, domain in zip(pair.keys, pair.paths, pair.domains, strict=True)
        )
        if first and second:
            shown.append((_caption(pair), (first, second)))
    return shown


def _caption(pair: Pair) -> str:
    domains = " and ".join(dict.fromkeys(pair.domains))
    labels = f", labels {pair.labels[0]} and {pair.labels[1]}" if pair.labels_differ else ""
    return f"{domains}: {pair.evidence_in_words}{labels}"


def _pair_table(leaks: NearDuplicates) -> Table:
    columns = [
        Column("Image", "first", text=True, of=lambda pair: pair.paths[0]),
        Column("Domain", "first_domain", text=True, of=lambda pair: pair.domains[0]),
        Column("Label", "first_label", text=True, of=lambda pair: pair.labels[0]),
        Column("Near-duplicate", "second", text=True, of=lambda pair: pair.paths[1]),
        Column("Domain", "second_domain", text=True, of=lambda pair: pair.domains[1]),
        Column("Label", "second_label", text=True, of=lambda pair: pair.labels[1]),
        Column("Evidence", "evidence", text=True),
        Column("Similarity", "similarity", 2),
        Column("Pixels", "correlation", 3),
    ]
    pairs = (*leaks.across.worst, *leaks.within.worst)
    return Table.over("near-duplicates", "Near-duplicate images", columns, pairs)


# --- the section "Race" ---------------------------------------------------------------------------


def race_section(dropped: Mapping[str, Dropped]) -> Section:
    """When each model was dropped, and why."""
    name = next(iter(dropped.values())).metric
    metric = MEASURES[name]
    columns = [
        Column("Model", "model", text=True),
        Column("Round", "round", 0),
        Column("Images", "images", 0),
        Column("Rank", "rank", 0),
        Column("90 % interval", "rank_interval", 0, interval=True),
        Column(f"Expected {metric.name}, %", f"expected_{name}", 1),
        Column("Reason", "reason", text=True),
    ]
    facts = ("round", "images", "rank", "rank_interval", "expected_accuracy", "reason")
    order = sorted(dropped.items(), key=lambda item: (-item[1].round, item[1].rank))
    rows = [[model, *(getattr(each, fact) for fact in facts)] for model, each in order]
    lead = (
        f"Dropped after a look at a sample of the images: {count(len(rows), 'model')}. Rank and "
        f"expected {metric.name} are those on this sample. No other table lists these models. The "
        "sample has images of every domain, so the results of the models that are left, also those "
        "on held-out domains, are somewhat too good."
    )
    table = Table("race", "Dropped models", columns, rows)
    return Section("race", "Race", lead, [Figure("Dropped models", table, folded=False)])


# --- the section "Provenance" ---------------------------------------------------------------------


def provenance_section(run: Run) -> Section:
    """Everything needed to repeat a run."""
    blocks: list[Block] = [Facts(command=run.command)]
    parts = {"Settings": run.settings, "Versions": run.versions, "Machine": run.machine}
    blocks += [Facts(_pairs(part), title=title) for title, part in parts.items() if part]
    if run.stages:
        blocks.append(_stages(run.stages))
    return Section("provenance", "Provenance", "", blocks)


def _pairs(part: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Names and values as text, sorted by name as in `run.json`."""
    pairs = []
    for name, value in sorted(part.items()):
        if isinstance(value, dict):
            pairs += _pairs(value, f"{prefix}{name}.")
        else:
            pairs.append((f"{prefix}{name}", _text(value)))
    return pairs


def _text(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _stages(stages: Sequence[Stage]) -> Figure:
    columns = [
        Column("Stage", "stage", text=True, of=lambda stage: stage.name),
        Column("Seconds", "seconds", 1),
        Column("Reused from an earlier run", "reused"),
    ]
    return Figure(
        title="Time",
        text=f"{duration(sum(stage.seconds for stage in stages))} in total.",
        table=Table.over("times", "Seconds per stage", columns, stages),
        folded=False,
    )
