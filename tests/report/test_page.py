"""The page as a whole: its sections, that it needs no other file, and where it is written."""

from __future__ import annotations

import base64
import csv
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.report.example import example_run
from tests.report.reader import Reader

from oodzoo.report import page, write_report
from oodzoo.report.record import Run, read_run
from oodzoo.store.format import sealed
from oodzoo.tasks import Kind

ODD = ["<script>alert(1)</script>", '"q\'" & <b>', "</style>-->", "{{7 * 1111}}", "网络", "x" * 300]
SHOWN = ("data-tip", "aria-label", "alt", "title", "download")


def csvs(read: Reader) -> list[str]:
    """All CSV files of a page."""
    links = [a["href"] or "" for _, a in read.tags if "download" in a]
    return [base64.b64decode(link.split(",")[1]).decode("utf-8-sig") for link in links]


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_the_words_are_those_of_the_task(task: Kind) -> None:
    text = page(example_run(5, classes=["age", "height"], task=task))
    read = Reader(re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.DOTALL))
    seen = [read.text, *(a.get(name) or "" for _, a in read.tags for name in SHOWN), *csvs(read)]
    assert not [each for each in seen if re.search("accurac|class", each.lower())]


def test_every_figure_has_a_table_and_a_csv_file_with_unique_columns(read: Reader) -> None:
    figures = [a for tag, a in read.tags if tag == "figure"]
    downloads = [a["download"] for _, a in read.tags if "download" in a]
    tables = [a["id"] for tag, a in read.tags if tag == "table"]
    assert len(figures) == len(downloads) == len(tables) == len(set(downloads))
    for content in csvs(read):
        columns = next(csv.reader([content.split("\r\n")[0]]))
        assert len(columns) == len(set(columns)), columns


def test_nothing_is_loaded_from_elsewhere(run: Run, read: Reader) -> None:
    for tag, attributes in read.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, value)
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _ in read.tags}
    assert not re.search(r"https?://|url\(|@import", page(run))


def test_many_models_domains_and_classes() -> None:
    text = page(example_run(120, [f"d{at}" for at in range(13)], [f"c{at}" for at in range(60)]))
    read = Reader(text)
    assert (len(read.table("ranking")), len(read.table("counts"))) == (120, 61)
    assert "The chart shows the first 30 models; the table lists all." in text
    assert "Held-out domain, the 12 hardest" in text
    assert text.count("<option>") == 13


def test_names_are_never_markup() -> None:
    text = page(example_run(models=ODD, domains=ODD[:4], classes=ODD[:5]))
    read = Reader(text)
    assert [tag for tag, _ in read.tags].count("script") == 1
    assert not {"b", "i"} & {tag for tag, _ in read.tags}
    assert "7777" not in read.text
    assert [row["model"] for row in read.table("ranking")] == ODD
    assert not any(name.startswith("on") for _, a in read.tags for name in a)


def test_optional_numbers_may_be_missing(run: Run) -> None:
    assert run.ranking is not None
    assert run.evaluation is not None
    assert run.testbed is not None
    absent: dict[str, Any] = dict.fromkeys(("rank_interval", "parameters", "milliseconds"))
    rows = tuple(
        replace(row, **absent, licence=None, tied=(), folds=tuple(
            replace(fold, score=None, transfer=None) for fold in row.folds
        ))
        for row in run.ranking.rows
    )  # fmt: skip
    undefined = replace(run.testbed.scores["leep"], weighted_tau=None, interval=None, tau=None)
    less = replace(
        run,
        ranking=replace(run.ranking, score="knn", rows=rows),
        evaluation=replace(run.evaluation, baselines={}, ablation={}),
        testbed=replace(run.testbed, scores=run.testbed.scores | {"leep": undefined}),
    )
    read = Reader(page(less))
    assert len(read.sections) == 9
    assert "nan" not in read.text.lower().split()
    assert "τ is undefined" in read.text
    assert read.table("ranking")[0]["parameters_million"] == ""


def test_constant_values(run: Run) -> None:
    assert run.ranking is not None
    zero: dict[str, Any] = {"transfer": 0.0, "discriminability": 0.0, "stability": 0.0}
    rows = tuple(
        replace(
            row,
            **zero,
            evidence=0.0,
            score=0.0,
            expected_accuracy=0.0,
            accuracy_interval=(0.0, 0.0),
            folds=tuple(replace(fold, **zero, accuracy=100.0) for fold in row.folds),
        )
        for row in run.ranking.rows
    )
    read = Reader(page(Run("oodzoo run", ranking=replace(run.ranking, rows=rows))))
    places = ("x", "y", "width", "height", "cx", "cy", "x1", "x2", "y1", "y2", "fill-opacity")
    values = [float(a[name] or 0) for _, a in read.tags for name in places if name in a]
    assert len(values) > 1000
    assert all(math.isfinite(value) for value in values)


def test_write_report(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(sealed(run.to_dict()))
    assert list(run.settings) != sorted(run.settings)  # as they are in the file
    assert write_report(tmp_path) == tmp_path / "report.html"
    other = write_report(tmp_path, tmp_path / "elsewhere" / "page.html")
    pages = [path.read_text(encoding="utf-8") for path in (tmp_path / "report.html", other)]
    assert pages == [page(run), page(read_run(tmp_path))]
    names = ["elsewhere", "report.html", "run.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
