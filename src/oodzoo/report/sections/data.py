"""The data set."""

from __future__ import annotations

from typing import Any

from oodzoo.report.blocks import Facts, Figure, Gallery, Section
from oodzoo.report.numbers import number
from oodzoo.report.table import Column, Table
from oodzoo.report.thumbnails import thumbnails


def data_section(data: dict[str, Any]) -> Section:
    """How many images there are of what, and how some of them look."""
    domains: dict[str, dict[str, Any]] = data.get("domains") or {}
    classes = [str(label) for label in data.get("classes") or []]
    parts = [f"{number(data['images'])} images"] if "images" in data else []
    if domains:
        parts.append(f"{len(domains)} domains")
    if classes:
        parts.append(f"{len(classes)} classes")
    lead = f"{', '.join(parts)}." if parts else ""
    if data.get("skipped"):
        lead += f" {number(data['skipped'])} could not be read and were left out."
    blocks: list[Figure | Gallery | Facts] = []
    gallery = thumbnails(data.get("path"), list(domains))
    if gallery.rows:
        blocks.append(gallery)
    if domains:
        blocks.append(
            Figure(
                title="Images by class and domain", table=_counts(domains, classes), folded=False
            )
        )
    facts = [("Where", str(data["path"]))] if data.get("path") else []
    if data.get("fingerprint"):
        facts.append(("Fingerprint", str(data["fingerprint"])))
    if facts:
        blocks.append(Facts(facts))
    return Section("data", "The data", lead.strip(), blocks)


def _counts(domains: dict[str, dict[str, Any]], classes: list[str]) -> Table:
    columns = [Column("Class", "class", text=True)]
    columns += [Column(domain, domain, 0) for domain in domains]
    columns.append(Column("All", "all", 0))
    rows: list[list[Any]] = []
    for label in classes:
        counts = [(entry.get("classes") or {}).get(label, 0) for entry in domains.values()]
        rows.append([label, *counts, sum(counts)])
    totals = [entry.get("images", 0) for entry in domains.values()]
    rows.append(["all classes", *totals, sum(totals)])
    return Table("counts", "Images by class and domain", columns, rows)
