"""Summaries: rows against literal counting, label shift and overlap against their definitions."""

from __future__ import annotations

import json
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from tests.oracles import mixtures

import oodzoo
from oodzoo.core.html import html_text
from oodzoo.core.remote.objects import RemoteFile
from oodzoo.data.files import LocalFile, RemoteImage
from oodzoo.data.listing import Sample, labels_of
from oodzoo.data.summary import (
    Summary,
    label_shift,
    label_shift_by_chance,
    shift_of_labels,
    summarise,
)
from oodzoo.data.summary_rows import (
    ClassCount,
    DomainSummary,
    Extent,
    columns_and_rows,
    overlap,
    spreads,
)
from oodzoo.tasks import Task

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


@pytest.mark.parametrize("sizes", [(20, 50, 100), (300, 300, 40)])
def test_label_shift_by_chance_is_the_mean_of_random_draws(sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    q = [0.5, 0.2, 0.1, 0.1, 0.05, 0.05]
    draws = [np.stack([random.multinomial(n, q) for n in sizes]) for _ in range(2000)]
    expected = np.mean([label_shift(counts) for counts in draws], axis=0)
    approximate = np.mean([label_shift_by_chance(counts) for counts in draws], axis=0)
    assert approximate == pytest.approx(expected, rel=0.05)


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
    task = Task("regression", ("age", "twice"))
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


# --- rows -----------------------------------------------------------------------------------------


def save(path: Path, size: tuple[int, int], color: object = (9, 1, 5), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)  # type: ignore[arg-type]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Day has images of several sizes and kinds; of night, one is copied and one is of day."""
    root = tmp_path / "mixed"
    save(root / "day/cat/1.png", (40, 30))
    save(root / "day/cat/2.png", (60, 50))
    save(root / "day/cat/3.jpg", (80, 10), 7, "L")
    save(root / "day/dog/1.png", (50, 90))
    (root / "day/dog/text.png").write_text("this is no picture")
    save(root / "night/cat/1.png", (40, 31))
    shutil.copy(root / "night/cat/1.png", root / "night/cat/2.png")
    shutil.copy(root / "day/dog/1.png", root / "night/cat/3.png")
    save(root / "night/dog/1.png", (40, 32))
    return root


def test_rows(mixed: Path) -> None:
    summary = oodzoo.ImageDomains(mixed).summary()
    day, night = summary.domains
    total = summary.total
    assert [row.domain for row in (day, night, total)] == ["day", "night", "all"]
    assert [row.images for row in (day, night, total)] == [5, 4, 9]
    assert [row.classes for row in (day, night, total)] == [2, 2, 2]
    assert (day.fewest, day.most) == (ClassCount("dog", 2), ClassCount("cat", 3))
    assert (total.fewest, total.most) == (ClassCount("dog", 3), ClassCount("cat", 6))
    assert day.label_shift == pytest.approx(15)
    assert total.label_shift is None
    assert [row.unreadable for row in (day, night, total)] == [1, 0, 1]
    assert [row.copies for row in (day, night, total)] == [0, 1, 1]
    assert [row.shared for row in (day, night, total)] == [1, 1, 2]
    assert (day.width, day.height) == (Extent(40, 55, 80), Extent(10, 40, 90))
    assert night.width == Extent(40, 40, 50)
    assert total.height == Extent(10, 32, 90)
    assert (day.greyscale, night.greyscale) == (25, 0)
    assert day.formats == {"PNG": 3, "JPEG": 1}
    assert total.modes == {"RGB": 7, "L": 1}
    for row, folder in ((day, "day"), (night, "night"), (total, ".")):
        files = [file for file in (mixed / folder).rglob("*") if file.is_file()]
        assert row.n_bytes == sum(file.stat().st_size for file in files)
    assert summary.unreadable == {"day/dog/text.png": "not an image that Pillow can identify"}
    assert summary.identical == (
        ("day/dog/1.png", "night/cat/3.png"),
        ("night/cat/1.png", "night/cat/2.png"),
    )


def test_domain_without_a_readable_image(photos: Path) -> None:
    for image in (photos / "day").rglob("*.png"):
        image.write_bytes(b"")
    day, night = oodzoo.ImageDomains(photos).summary().domains
    assert (day.unreadable, day.width, day.height, day.greyscale) == (4, None, None, None)
    assert (day.formats, day.modes) == ({}, {})
    assert (night.unreadable, night.greyscale) == (0, 0)


def test_quick_summary_has_counts_and_label_shift(mixed: Path) -> None:
    quick = oodzoo.ImageDomains(mixed).summary(quick=True)
    opened = oodzoo.ImageDomains(mixed).summary()
    assert quick.counts == opened.counts
    for row, other in zip(quick.domains, opened.domains, strict=True):
        assert row.to_dict() == other.to_dict() | dict.fromkeys(
            [
                *("n_bytes", "unreadable", "copies", "shared", "width", "height"),
                *("greyscale", "formats", "modes"),
            ]
        )


def test_bytes_of_remote_files_are_known_from_their_listing() -> None:
    pairs = [("a", "x"), ("a", "y"), ("b", "x")]
    samples = [Sample(f"{n}.png", d, label) for n, (d, label) in enumerate(pairs)]
    counts = {"a": {"x": 1, "y": 1}, "b": {"x": 1, "y": 0}}
    sizes: list[int | None] = [10, 200, 3000]
    files = [RemoteImage(RemoteFile(f"memory://{n}", size, "1")) for n, size in enumerate(sizes)]
    summary = summarise(samples, files, counts)
    assert [row.n_bytes for row in (*summary.domains, summary.total)] == [210, 3000, 3210]
    files[1] = RemoteImage(RemoteFile("memory://1", None, "1"))
    assert summarise(samples, files, counts).total.n_bytes is None


# --- forms ----------------------------------------------------------------------------------------


def test_document_frame_and_text(mixed: Path) -> None:
    summary = oodzoo.ImageDomains(mixed).summary()
    document = json.loads(json.dumps(summary.to_dict()))
    assert (document["images"], document["task"]) == (9, "classification")
    assert (document["domains"], document["classes"]) == (["day", "night"], ["cat", "dog"])
    assert document["counts"]["night"] == {"cat": 3, "dog": 1}
    assert document["summary"][0]["fewest"] == {"label": "dog", "images": 2}
    assert document["summary"][0]["width"] == {"smallest": 40, "median": 55, "largest": 80}
    assert document["total"]["modes"] == {"RGB": 7, "L": 1}
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


SOUND = DomainSummary(
    domain="day",
    images=1200,
    classes=7,
    fewest=ClassCount("cat", 100),
    most=ClassCount("dog", 100),
    label_shift=0.0,
    n_bytes=2_500_000,
    unreadable=0,
    copies=0,
    shared=0,
    width=Extent(227, 227, 227),
    height=Extent(200, 200, 200),
    greyscale=0.0,
    formats={"JPEG": 1200},
    modes={"RGB": 1200},
)


def cells(*rows: DomainSummary) -> list[dict[str, str]]:
    columns, table = columns_and_rows(rows, "abcdefg")
    return [dict(zip(columns, row, strict=True)) for row in table]


def test_columns_without_anything_to_say_are_left_out() -> None:
    sound = {
        "domain": "day", "images": "1,200", "classes": "7/7", "per class": "100", "shift": "0 %",
        "size": "227×200", "bytes": "2.5 MB",
    }  # fmt: skip
    assert cells(SOUND) == [sound]
    other = replace(
        SOUND, classes=6, most=ClassCount("dog", 1200), label_shift=12.5, unreadable=1234,
        copies=2, shared=3, width=Extent(17, 227, 4032), greyscale=0.2,
    )  # fmt: skip
    first, second = cells(SOUND, other)
    empty = dict.fromkeys(("unreadable", "copies", "shared", "sides", "grey"), "")
    assert first == sound | empty
    assert second == sound | {
        "classes": "6/7", "per class": "100–1,200", "shift": "12 %", "unreadable": "1,234",
        "copies": "2", "shared": "3", "sides": "17–4032", "grey": "<1 %",
    }  # fmt: skip
    quick = DomainSummary("day", 3, 2, ClassCount("cat", 1), ClassCount("dog", 2))
    assert cells(quick) == [{"domain": "day", "images": "3", "classes": "2/7", "per class": "1–2"}]


# --- other labels than classes --------------------------------------------------------------------


def labelled(task: Task, domains: dict[str, list[str]]) -> Summary:
    samples = [
        Sample(f"{domain}/{at}", domain, label)
        for domain, labels in domains.items()
        for at, label in enumerate(labels)
    ]
    counts = {domain: dict.fromkeys(task.outputs, 0) for domain in domains}
    for sample in samples:
        for name in labels_of(task, sample.label):
            counts[sample.domain][name] += 1
    files = [LocalFile(sample.path) for sample in samples]
    return summarise(samples, files, counts, task=task)


def test_summary_of_numbers() -> None:
    task = Task("regression", ("age",))
    day, night = [f"{at}.5" for at in range(10)], [f"{at}.5" for at in range(50, 70)]
    summary = labelled(task, {"day": day, "night": night})
    head, row = (line.split() for line in str(summary).splitlines()[:2])
    assert head == ["domain", "images", "age", "age", "range"]
    assert row == ["day", "10", "5", "±", "2.87", "0.5", "to", "9.5"]
    document = summary.to_dict()
    assert (document["task"], document["classes"]) == ("regression", ["age"])
    assert document["total"]["images"] == 30
    assert document["summary"][0]["numbers"]["age"]["overlap"] == 0
    assert [issue.kind for issue in summary.issues] == ["ranges"]
    assert json.loads(json.dumps(document))["task"] == "regression"


def test_summary_of_several_labels() -> None:
    task = Task("multilabel", ("a", "b"))
    summary = labelled(task, {"day": ['["a"]', "[]", '["a", "b"]'], "night": ['["a"]', "[]"]})
    rows = [line.split() for line in str(summary).splitlines()]
    assert rows[0] == ["domain", "images", "labels", "per", "label", "no", "label", "shift"]
    assert rows[1] == ["day", "3", "2/2", "1–2", "1", "25", "%"]
    assert rows[3] == ["all", "5", "2/2", "1–3", "2"]
    assert [issue.kind for issue in summary.issues] == ["missing label"]
    assert json.loads(json.dumps(summary.to_dict()))["counts"]["night"] == {"a": 1, "b": 0}
