"""What each domain says of each model, and which domain is hard."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from oodzoo.report.blocks import Figure, Key, Section
from oodzoo.report.charts.domains import domain_chart
from oodzoo.report.charts.frame import MOST_ROWS
from oodzoo.report.charts.heat import heat_map
from oodzoo.report.numbers import is_number, number
from oodzoo.report.table import Column, Table

Rows = list[dict[str, Any]]


def domains_section(ranking: dict[str, Any]) -> Section | None:
    """Heat maps of both terms, and the cost of each left-out domain."""
    rows: Rows = ranking["ranking"]
    domains = [fold["domain"] for fold in rows[0]["folds"]]
    if not domains:
        return None
    lead = (
        "The same figures, domain by domain. A model that is good on average can fail on one "
        "domain, and one domain can be hard for all of them."
    )
    blocks = [
        _cost(rows, domains),
        _heat(rows, domains, "discriminability", "Discriminability", 2),
        _heat(rows, domains, "stability", "Stability", 2),
    ]
    return Section("domains", "Domain by domain", lead, blocks, short="Domains")


def _cost(rows: Rows, domains: list[str]) -> Figure:
    accuracies = {
        domain: {row["model"]: float(row["folds"][at]["accuracy"]) for row in rows}
        for at, domain in enumerate(domains)
    }
    means = {domain: fmean(models.values()) for domain, models in accuracies.items()}
    overall = fmean(means.values())
    order = sorted(domains, key=means.__getitem__)
    first = rows[0]["model"]
    hard, easy = order[0], order[-1]
    finding = (
        f"{hard} is the hardest to meet unseen: over all {len(rows)} models "
        f"{number(means[hard], 1)} % there, against {number(overall, 1)} % on average; "
        f"{easy} is the easiest with {number(means[easy], 1)} %."
    )
    columns = [
        Column("Left-out domain", "domain", text=True),
        Column("Mean accuracy %", "mean_accuracy", 1),
        Column("Cost, points", "cost", 1),
        Column("Lowest %", "lowest", 1),
        Column("Highest %", "highest", 1),
        Column("Best model there", "best_model", text=True),
        Column("First model %", "first_model", 1),
    ]
    lines: list[list[Any]] = []
    for domain in order:
        models = accuracies[domain]
        top = max(models, key=models.__getitem__)
        lines.append(
            [
                domain,
                means[domain],
                overall - means[domain],
                min(models.values()),
                models[top],
                top,
                models[first],
            ]
        )
    return Figure(
        title="What each left-out domain costs",
        text=f"{finding} Cost is how many points of accuracy a domain lies below the mean of all "
        "left-out domains.",
        chart=domain_chart(accuracies, order, first, finding),
        legend=[
            Key("stroke", "line", "one model"),
            Key("neutral", "diamond", "mean of all models"),
            Key("accuracy", "circle", f"{first}, the first of the ranking"),
        ],
        table=Table("left-out-domains", "Accuracy on each left-out domain", columns, lines),
    )


def _heat(rows: Rows, domains: list[str], term: str, title: str, digits: int) -> Figure:
    values = [[fold[term] for fold in row["folds"]] for row in rows]
    cells = [
        (value, row["model"], domain)
        for row, line in zip(rows, values, strict=True)
        for domain, value in zip(domains, line, strict=True)
        if is_number(value)
    ]
    finding = f"No figures of {term}."
    if cells:
        (low, low_model, low_domain), (high, high_model, high_domain) = min(cells), max(cells)
        finding = (
            f"From {number(low, digits)} ({low_model} on {low_domain}) "
            f"to {number(high, digits)} ({high_model} on {high_domain})."
        )
    names = [row["model"] for row in rows]
    columns = [Column("Model", "model", text=True)]
    columns += [Column(domain, domain, 3) for domain in domains]
    table = Table(
        f"{term}-by-domain",
        f"{title} on each left-out domain",
        columns,
        [[name, *line] for name, line in zip(names, values, strict=True)],
    )
    note = f" The first {MOST_ROWS} models; the table holds all." if len(rows) > MOST_ROWS else ""
    return Figure(
        title=f"{title} on each left-out domain",
        text=finding + note,
        chart=heat_map(
            f"{title} by model and left-out domain", finding, names, domains, values, digits
        ),
        table=table,
    )
