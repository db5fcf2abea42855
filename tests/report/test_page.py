"""The page as a whole: its sections, and that it is self-contained and safe."""

from __future__ import annotations

import base64
import csv
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.report.example import DOMAINS, example_run, without
from tests.report.reader import Reader

from oodzoo.core.errors import InputError
from oodzoo.report import page, write_report
from oodzoo.report.record import SCHEMA, Run
from oodzoo.store.documents import sealed
from oodzoo.tasks import Kind

SECTIONS = {
    "ranking": ["ranking", "domains"],
    "evaluation": ["changes", "mistakes", "combination"],
    "selection": ["features"],
    "testbed": ["scores"],
    "data": ["data"],
}
ODD = ["<script>alert(1)</script>", '"q\'" & <b>', "</style>-->", "{{7 * 1111}}", "网络", "x" * 300]


@pytest.mark.parametrize("part", SECTIONS)
def test_a_part_that_is_absent_is_left_out(run: Run, part: str) -> None:
    read = Reader(page(without(run, part)))
    assert not set(SECTIONS[part]) & set(read.sections)
    assert len(read.sections) == 9 - len(SECTIONS[part])
    assert f"#{SECTIONS[part][0]}" not in [a.get("href") for _, a in read.tags]


OTHER_TASKS: dict[Kind, tuple[str, str, str, str]] = {
    "regression": (
        "Explained variance",
        "negative for worse predictions",
        "Absolute error",
        "output",
    ),
    "multilabel": ("Average precision", "those with the label come first", "Exact match", "label"),
}


@pytest.mark.parametrize("task", OTHER_TASKS)
def test_the_words_are_those_of_the_task(task: Kind) -> None:
    metric, means, second, output = OTHER_TASKS[task]
    text = page(example_run(classes=["age", "height"], task=task))
    read = Reader(re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.DOTALL))
    seen = [read.text, *(a.get(name) or "" for _, a in read.tags for name in SHOWN), *csvs(read)]
    for word in ("accurac", "class"):
        assert not [each for each in seen if word in each.lower()], word
    key = metric.lower().replace(" ", "-")
    assert read.text.count(means) == 2  # with the ranking and with the combinations
    assert f"{second} is the " in read.text
    assert {second.lower().replace(" ", "_"), key.replace("-", "_")} <= set(read.table(key)[0])
    assert set(read.table("held-out-domains")[0]) >= {f"mean_{key.replace('-', '_')}"}
    for table in (f"{key}-by-domain", f"{key}-over-k", f"features-by-{output}"):
        assert read.table(table)


SHOWN = ("data-tip", "aria-label", "alt", "title", "download")


def csvs(read: Reader) -> list[str]:
    """All CSV files of a page."""
    links = [a["href"] or "" for _, a in read.tags if "download" in a]
    return [base64.b64decode(link.split(",")[1]).decode("utf-8-sig") for link in links]


def test_names_of_columns_are_unique(read: Reader) -> None:
    for _, attributes in read.tags:
        if "download" in attributes:
            href = attributes["href"] or ""
            header = base64.b64decode(href.split(",")[1]).decode("utf-8-sig").split("\r\n")[0]
            columns = next(csv.reader([header]))
            assert len(columns) == len(set(columns)), columns


def test_every_figure_has_a_table_and_a_csv_file(read: Reader) -> None:
    figures = [a for tag, a in read.tags if tag == "figure"]
    downloads = [a["download"] for _, a in read.tags if "download" in a]
    tables = [a["id"] for tag, a in read.tags if tag == "table"]
    assert len(figures) == len(downloads) == len(tables) == len(set(downloads))


def test_nothing_is_loaded_from_elsewhere(run: Run, read: Reader) -> None:
    for tag, attributes in read.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, value)
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _ in read.tags}
    assert not re.search(r"https?://|url\(|@import", page(run))


def test_many_models_domains_and_classes() -> None:
    text = page(example_run(200, [f"d{at}" for at in range(20)], [f"c{at}" for at in range(345)]))
    read = Reader(text)
    assert len(read.table("ranking")) == 200
    assert len(read.table("counts")) == 346
    assert "The chart shows the first 30 models; the table lists all." in text
    assert len(text) < 6_000_000


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
    rows = [
        replace(
            row,
            rank_interval=None,
            parameters=None,
            milliseconds=None,
            licence=None,
            tied=(),
            folds=tuple(replace(fold, score=None, transfer=None) for fold in row.folds),
        )
        for row in run.ranking.rows
    ]
    top_k = dict(zip(DOMAINS, (1, 2, 3, 3), strict=True))
    undefined = replace(run.testbed.scores["leep"], weighted_tau=None, interval=None, tau=None)
    less = replace(
        run,
        ranking=replace(run.ranking, score="knn", rows=tuple(rows)),
        evaluation=replace(run.evaluation, top_k=top_k, baselines={}, ablation={}),
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
    rows = [
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
    ]
    flat = replace(run.ranking, rows=tuple(rows))
    read = Reader(page(Run("oodzoo run", ranking=flat)))
    places = ("x", "y", "width", "height", "cx", "cy", "x1", "x2", "y1", "y2", "fill-opacity")
    values = [float(a[name] or 0) for _, a in read.tags for name in places if name in a]
    assert len(values) > 1000
    assert all(math.isfinite(value) for value in values)


def test_write_report(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(sealed(run.to_dict()))
    assert write_report(tmp_path) == tmp_path / "report.html"
    assert list(run.settings) != sorted(run.settings)  # as they are in the file
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page(run)
    other = write_report(tmp_path, tmp_path / "elsewhere" / "page.html")
    assert other.read_bytes() == (tmp_path / "report.html").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "elsewhere",
        "report.html",
        "run.json",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "has no run.json; give the folder"),
        ("{", "is damaged"),
        ('{"schema": 99}', "has the schema 99"),
        (f'{{"schema": {SCHEMA}, "ranking": {{}}}}', "is damaged: its content does not match"),
        (sealed({"schema": SCHEMA, "ranking": {}}).decode(), "is damaged: ranking: no 'score'"),
        (sealed({"schema": SCHEMA, "stages": [{}]}).decode(), "is damaged"),
    ],
)
def test_a_damaged_record_is_reported_in_one_line(
    tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as raised:
        write_report(tmp_path)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "report.html").exists()
