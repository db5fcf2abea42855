"""`zood testbed`: how well scores order networks, on the paper's data and on yours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from zood.cli.app import command
from zood.terminal import Terminal

if TYPE_CHECKING:
    from zood.testbed import Comparison, TestBed
    from zood.testbed.bed import Interval


@command("testbed", example="zood testbed paper")
def testbed(
    terminal: Terminal,
    target: Annotated[
        str, typer.Argument(metavar="paper|STORE", help="The paper's figures, or a feature store.")
    ],
) -> None:
    """Judge scores by the accuracy that networks reach."""
    show_paper(terminal)


def show_paper(terminal: Terminal) -> Comparison:
    """The paper's two tables, recomputed from its figures."""
    from zood.testbed import compare, paper

    plain, headed = paper(), paper(with_head=True)
    tables = {"": compare(plain), "_with_head": compare(headed)}
    for suffix, together in tables.items():
        n = len(next(iter(together.beds.values())).models)
        what = "with a classifier head" if suffix else "all"
        _show_taus(terminal, together, "weighted_tau", f"Weighted tau, {n} networks ({what})")
    for suffix, together in tables.items():
        n = len(next(iter(together.beds.values())).models)
        what = "with a classifier head" if suffix else "all"
        _show_taus(terminal, together, "tau", f"Kendall's tau, {n} networks ({what})")
    terminal.line(
        "Below each value its 90 % interval, from resampling the networks.\n"
        "~: cannot be told apart from the best of its row, as the 90 % interval of the\n"
        "difference holds zero."
    )
    terminal.document(paper_document(tables))
    return tables[""]


def paper_document(tables: dict[str, Comparison]) -> dict[str, Any]:
    """The paper's tables for machines: plain numbers, intervals apart."""
    document: dict[str, Any] = {}
    intervals: dict[str, Any] = {}
    pairs: dict[str, Any] = {}
    means: dict[str, Any] = {}
    for suffix, together in tables.items():
        for kind, part in (("weighted_tau", "interval"), ("tau", "tau_interval")):
            document[kind + suffix] = _nested(together, kind)
            intervals[kind + suffix] = _nested(together, part)
        pairs["weighted_tau" + suffix] = {
            label: bed.indistinguishable for label, bed in together.beds.items()
        } | {"mean": together.indistinguishable}
        means["weighted_tau" + suffix] = {s: m.weighted_tau for s, m in together.means.items()}
        intervals["means_weighted_tau" + suffix] = {
            s: m.interval for s, m in together.means.items()
        }
    some = next(iter(tables[""].beds.values()))
    return document | {
        "means": means,
        "intervals": intervals,
        "indistinguishable": pairs,
        "resamples": some.resamples,
        "seed": some.seed,
    }


def _nested(together: Comparison, part: str) -> dict[str, dict[str, Any]]:
    return {
        label: {score: getattr(judged, part) for score, judged in bed.scores.items()}
        for label, bed in together.beds.items()
    }


def _show_taus(terminal: Terminal, together: Comparison, kind: str, title: str) -> None:
    scores = list(next(iter(together.beds.values())).scores)
    rows: list[list[str]] = []
    for label, bed in together.beds.items():
        rows.append([label, *(_value(bed, score, kind) for score in scores)])
        part = "interval" if kind == "weighted_tau" else "tau_interval"
        rows.append(["", *(between(getattr(bed.scores[score], part)) for score in scores)])
    if kind == "weighted_tau":
        rows.append(["mean", *(number(together.means[score].weighted_tau) for score in scores)])
        rows.append(["", *(between(together.means[score].interval) for score in scores)])
    terminal.table(["", *scores], rows, title=title)


def _value(bed: TestBed, score: str, kind: str) -> str:
    mark = "~" if kind == "weighted_tau" and bed.tied(score, bed.best) else " "
    return number(getattr(bed.scores[score], kind)) + mark


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:z.2f}"


def between(interval: Interval) -> str:
    """An interval in few characters: `.80 .95`."""
    return (
        "" if interval is None else " ".join(f"{end:z.2f}".replace("0.", ".") for end in interval)
    )
