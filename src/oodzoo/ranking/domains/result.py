"""Proposed domains of a store, and how much the ranking depends on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oodzoo.core.html import html_table, html_text
from oodzoo.core.text import count, short_name
from oodzoo.data.proposals import Candidate, as_table, reasons

CAUTION = (
    "Proposed domains are a guess: leaving one out can be easier or harder than a really new "
    "domain."
)


@dataclass(frozen=True)
class Sensitivity:
    """Rankings by several proposals, compared with that by the chosen one.

    Attributes
    ----------
    chosen : str
        The proposal that the others are compared with.
    score : str
        The score that models are ranked by.
    agreement : dict of str to float or None
        Weighted Kendall's tau of the scores by each other proposal with those by the chosen one;
        None if all models are tied.
    first : dict of str to str
        The first model by each proposal.
    ranks : dict of str to (int, int)
        The best and the worst rank of each model, the random split aside.
    reference : str
        The random split, which does not count as a proposal.
    failed : dict of str to str
        Proposals that models cannot be ranked by, and why.
    """

    chosen: str
    score: str
    agreement: dict[str, float | None]
    first: dict[str, str]
    ranks: dict[str, tuple[int, int]]
    reference: str
    failed: dict[str, str]

    @property
    def firsts(self) -> dict[str, int]:
        """How often each model is the first, most often first; the random split aside."""
        counts: dict[str, int] = {}
        for name, model in self.first.items():
            if name != self.reference:
                counts[model] = counts.get(model, 0) + 1
        return dict(sorted(counts.items(), key=lambda each: -each[1]))

    @property
    def verdict(self) -> str:
        """One line: how often the first model stays the same."""
        best, total = self.first[self.chosen], sum(self.firsts.values())
        if total == 1:
            return f"There is one proposal, {self.chosen}: nothing to compare its ranking with."
        same = self.firsts[best]
        often = "all" if same == total else f"{same} of"
        return f"The first model, {best}, is the same under {often} {count(total, 'proposal')}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "chosen": self.chosen,
            "score": self.score,
            "weighted_tau": self.agreement,
            "first": self.first,
            "firsts": self.firsts,
            "ranks": {model: list(ranks) for model, ranks in self.ranks.items()},
            "reference": self.reference,
            "failed": self.failed,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class DomainProposals:
    """The result of :func:`oodzoo.propose_domains`; as a string, tables and a verdict.

    Attributes
    ----------
    proposals : tuple of Candidate
        Columns first, the best one first; then clusters, and the given domains if there are
        several. Those that cannot be used have a `reason`.
    recommended : str or None
        The proposal to use; None if there is none.
    stability : dict of int to float
        Stability of clusterings by number of clusters.
    notes : tuple of str
        What to know about the recommended domains.
    sensitivity : Sensitivity or None
        None if models were not ranked.
    """

    proposals: tuple[Candidate, ...]
    recommended: str | None
    stability: dict[int, float]
    notes: tuple[str, ...] = ()
    sensitivity: Sensitivity | None = None

    def find(self, name: str) -> Candidate | None:
        return next((each for each in self.proposals if each.name == name), None)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and rows of the table of proposals, as text."""
        return as_table(self.proposals, self.recommended, "recommended")

    def sensitivity_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and rows of the table of rankings, as text."""
        found = self.sensitivity
        header = ["ranked by", "weighted tau", "first model"]
        if found is None:
            return header, []
        rows = []
        for name, model in found.first.items():
            tau = found.agreement.get(name)
            shown = "chosen" if name == found.chosen else "-" if tau is None else f"{tau:.2f}"
            rows.append([name, shown, model])
        return header, rows

    def rank_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and rows of the table of the ranges of ranks, as text."""
        header = ["model", "first", "ranks"]
        if self.sensitivity is None:
            return header, []
        firsts = self.sensitivity.firsts
        return header, [
            [model, str(firsts.get(model, 0)), f"{low}" if low == high else f"{low}-{high}"]
            for model, (low, high) in self.sensitivity.ranks.items()
        ]

    def lines(self) -> list[str]:
        """Return why columns cannot be used, the notes, the verdict and the caution."""
        verdict = [] if self.sensitivity is None else [self.sensitivity.verdict]
        return [*reasons(self.proposals), *self.notes, *verdict, CAUTION]

    def __repr__(self) -> str:
        number = count(len(self.proposals), "proposal")
        best = "none can be used"
        if self.recommended is not None:
            best = f"recommended {short_name(self.recommended)!r}"
        return f"DomainProposals({number}, {best})"

    def _repr_html_(self) -> str:
        tables = [html_table(*table, left=table[0]) for table in self._tables()]
        lines = [f"<p>{html_text(line)}</p>" for line in self.lines()]
        return "\n".join([*tables, *lines])

    def _tables(self) -> list[tuple[list[str], list[list[str]]]]:
        found = [self.table()]
        if self.sensitivity is not None:
            found += [self.sensitivity_table(), self.rank_table()]
        return found

    def __str__(self) -> str:
        tables = self._tables()
        return "\n\n".join([*(_text(*table) for table in tables), "\n".join(self.lines())])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON document."""
        return {
            "recommended": self.recommended,
            "proposals": [each.to_dict() for each in self.proposals],
            "stability": {str(k): value for k, value in self.stability.items()},
            "notes": list(self.notes),
            "sensitivity": None if self.sensitivity is None else self.sensitivity.to_dict(),
            "caution": CAUTION,
        }


def _text(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    )
