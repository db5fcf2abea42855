"""Summaries: rows against literal counting, label shift and overlap against their definitions."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.oracles import mixtures
from tests.sources.kinds import write_mixed

import oodzoo
from oodzoo.core.tables import html_text
from oodzoo.data.listing import Sample
from oodzoo.data.summary import (
    ClassCount,
    DomainSummary,
    Extent,
    label_shift,
    overlap,
    shift_of_labels,
    spreads,
)
from oodzoo.tasks import task_of

tables = st.tuples(st.integers(2, 5), st.integers(2, 6)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 9)).filter(
        lambda counts: bool(counts.sum(axis=1).all())
    )
)


@given(tables)
def test_label_shift_is_that_of_the_definition(counts: np.ndarray) -> None:
    images = [(str(d), str(c)) for (d, c), n in np.ndenumerate(counts) for _ in range(int(n))]
    expected = [mixtures.label_shift(images, str(d)) for d in range(len(counts))]
    assert label_shift(counts) == pytest.approx(expected)


@given(tables)
def test_shift_of_labels_is_that_of_the_definition(counts: np.ndarray) -> None:
    sizes = counts.max(axis=1) + 1
    shift, by_chance = shift_of_labels(counts, sizes)
    for d in range(len(counts)):
        rest = [other for other in range(len(counts)) if other != d]
        differences, deviations = [], []
        for label in range(counts.shape[1]):
            elsewhere = sum(counts[o, label] for o in rest) / sum(sizes[o] for o in rest)
            differences.append(abs(counts[d, label] / sizes[d] - elsewhere))
            q = counts[:, label].sum() / sizes.sum()
            variance = q * (1 - q) * (1 / sizes[d] + 1 / sum(sizes[o] for o in rest))
            deviations.append(variance**0.5)
        assert shift[d] == pytest.approx(100 * np.mean(differences), abs=1e-9)
        assert by_chance[d] == pytest.approx(100 * (2 / np.pi) ** 0.5 * np.mean(deviations))


numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)


def quantile(values: list[float], share: float) -> float:
    """The linear interpolation between order statistics."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


@given(numbers, numbers)
def test_overlap_is_that_of_the_definition(values: list[float], others: list[float]) -> None:
    low, high = quantile(others, 0.05), quantile(others, 0.95)
    tolerance = 1e-9 * max(map(abs, others))
    surely = sum(low + tolerance <= value <= high - tolerance for value in values)
    perhaps = sum(low - tolerance <= value <= high + tolerance for value in values)
    found = overlap(np.array(values), np.array(others))
    assert found is not None
    assert 100 * surely / len(values) - 1e-9 <= found <= 100 * perhaps / len(values) + 1e-9


@given(numbers, numbers)
def test_spreads_of_two_domains(day: list[float], night: list[float]) -> None:
    task = task_of("regression", ("age", "twice"))
    samples = [
        Sample(str(at), domain, task.encode([value, 2 * value]))
        for domain, values in (("day", day), ("night", night))
        for at, value in enumerate(values)
    ]
    parts = {"day": slice(0, len(day)), "night": slice(len(day), len(samples))}
    by_domain, total = spreads(task, samples, parts)
    for values, found in ((day, by_domain["day"]), (night, by_domain["night"])):
        age = found["age"]
        assert (age.smallest, age.largest) == (min(values), max(values))
        assert age.mean == pytest.approx(statistics.fmean(values), abs=1e-6)
        assert age.deviation == pytest.approx(statistics.pstdev(values), rel=1e-6, abs=1e-6)
        assert found["twice"].largest == 2 * age.largest
    assert by_domain["day"]["age"].overlap == overlap(np.array(day), np.array(night))
    assert total["age"].smallest == min(*day, *night)
    assert total["age"].overlap is None
    assert overlap(np.array([1.0]), np.array([])) is None


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    write_mixed(tmp_path)
    (tmp_path / "day/dog/text.png").write_text("this is no picture")
    return tmp_path


def test_rows(mixed: Path) -> None:
    summary = oodzoo.ImageDomains(mixed).summary()
    sizes = {path.name: 0 for path in mixed.iterdir()}
    for path in mixed.rglob("*.*"):
        sizes[path.relative_to(mixed).parts[0]] += path.stat().st_size
    shift: Any = pytest.approx(15)
    day = DomainSummary(
        "day", 5, 2, ClassCount("dog", 2), ClassCount("cat", 3), shift, sizes["day"],
        unreadable=1, copies=0, shared=1, width=Extent(40, 55, 80), height=Extent(10, 40, 90),
        greyscale=25, formats={"PNG": 2, "JPEG": 2}, modes={"RGB": 2, "CMYK": 1, "L": 1},
    )  # fmt: skip
    night = DomainSummary(
        "night", 4, 2, ClassCount("dog", 1), ClassCount("cat", 3), shift,
        sizes["night"], unreadable=0, copies=1, shared=1, width=Extent(40, 40, 50),
        height=Extent(31, 32, 90), greyscale=0, formats={"PNG": 4}, modes={"RGB": 4},
    )  # fmt: skip
    total = DomainSummary(
        "all", 9, 2, ClassCount("dog", 3), ClassCount("cat", 6), None, sum(sizes.values()),
        unreadable=1, copies=1, shared=2, width=Extent(40, 45, 80), height=Extent(10, 32, 90),
        greyscale=12.5, formats={"PNG": 6, "JPEG": 2}, modes={"RGB": 6, "CMYK": 1, "L": 1},
    )  # fmt: skip
    assert (*summary.domains, summary.total) == (day, night, total)
    assert summary.unreadable == {"day/dog/text.png": "not an image that Pillow can identify"}
    assert summary.identical == (
        ("day/dog/1.png", "night/cat/3.png"),
        ("night/cat/1.png", "night/cat/2.png"),
    )
    quick = oodzoo.ImageDomains(mixed).summary(quick=True)
    assert quick.counts == summary.counts
    fields = ("domain", "images", "classes", "fewest", "most", "label_shift")
    for row, other in zip(quick.domains, summary.domains, strict=True):
        known = {name: getattr(other, name) for name in fields}
        assert row == DomainSummary(**known)


def test_document_frame_and_text(mixed: Path) -> None:
    summary = oodzoo.ImageDomains(mixed).summary()
    document = json.loads(json.dumps(summary.to_dict()))
    assert (document["images"], document["task"]) == (9, "classification")
    assert (document["domains"], document["classes"]) == (["day", "night"], ["cat", "dog"])
    assert document["counts"]["night"] == {"cat": 3, "dog": 1}
    assert document["summary"][0]["fewest"] == {"label": "dog", "images": 2}
    assert document["summary"][0]["width"] == {"smallest": 40, "median": 55, "largest": 80}
    assert document["total"]["modes"] == {"RGB": 6, "L": 1, "CMYK": 1}
    assert document["unreadable"] == summary.unreadable
    assert document["identical"][0] == ["day/dog/1.png", "night/cat/3.png"]
    kinds = [warning["kind"] for warning in document["warnings"]]
    assert kinds == ["unreadable", "leak", "two labels", "copies"]
    assert all(warning["advice"] for warning in document["warnings"])
    columns, rows = summary.table()
    lines = str(summary).splitlines()
    assert lines[0].split() == " ".join(columns).split()
    assert [line.split() for line in lines[1:]] == [" ".join(row).split() for row in rows]
    assert repr(summary) == "Summary(9 images, 2 domains, 4 problems)"
    assert all(html_text(str(issue)) in summary._repr_html_() for issue in summary.issues)
    assert summary._repr_html_().count("<tr>") == 1 + len(rows)
    pytest.importorskip("pandas")
    assert list(summary.to_frame()["copies"]) == [0, 1]


def test_summary_of_numbers() -> None:
    ages = [at + 0.5 for at in (*range(10), *range(50, 70))]
    domains = ["day"] * 10 + ["night"] * 20
    frame = pytest.importorskip("pandas").DataFrame({"age": ages})
    data = oodzoo.ImageDomains([b"image"] * 30, labels=frame, domains=domains)
    summary = data.summary(quick=True)
    head, row = (line.split() for line in str(summary).splitlines()[:2])
    assert head == ["domain", "images", "age", "age", "range"]
    assert row == ["day", "10", "5", "±", "2.87", "0.5", "to", "9.5"]
    document = summary.to_dict()
    assert (document["task"], document["classes"]) == ("regression", ["age"])
    assert document["total"]["images"] == 30
    assert document["summary"][0]["numbers"]["age"]["overlap"] == 0
    assert [issue.kind for issue in summary.issues] == ["ranges"]
    assert json.loads(json.dumps(document))["task"] == "regression"
