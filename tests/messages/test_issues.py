"""Problems of a data set: what is wrong, and what its issues say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from oodzoo import ImageDomains
from oodzoo.data import issues
from oodzoo.data.issues import Spread
from oodzoo.data.listing import Issue, Sample

SAMPLES = [
    Sample("day/cat/1", "day", "cat"),
    Sample("day/cat/2", "day", "cat"),
    Sample("day/dog/1", "day", "dog"),
    Sample("night/cat/1", "night", "cat"),
    Sample("night/cat/2", "night", "cat"),
]
PAIRS = [Sample(f"{d}/{n}", d, "cat") for n in range(5) for d in ("day", "night")]
GROUPED = [Sample("a", "day", "cat", "g"), Sample("b", "day", "cat", "g")]
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
COUNTS = {
    "a": {"cat": 1, "dog": 1, "cow": 0},
    "b": {"cat": 1, "dog": 0, "cow": 0},
    "c": {"cat": 1, "dog": 1, "cow": 3},
    "d": {"cat": 0, "dog": 1, "cow": 1},
}
LABELS = {"day": {"a": 3, "b": 0, "c": 0}, "night": {"a": 2, "b": 1, "c": 0}}
CHANCE = {"a": 5.0, "b": 40.0, "c": 0.0}


def identical(samples: list[Sample], digests: Iterable[str | None]) -> list[Issue]:
    return list(issues.identical_images(samples, issues.find_identical(list(digests))))


def listed(*rows: Any) -> list[Issue]:
    return list(issues.listed(Issue(*row) for row in rows))


def spread(overlap: float | None = None) -> dict[str, dict[str, Spread]]:
    moving = Spread(2.0, 1.0, 1.0, 3.0, overlap)
    return {"day": {"age": moving}, "night": {"age": Spread(2.0, 0.0, 2.0, 2.0)}}


def similar(*domains: str) -> list[Issue]:
    """The issues of a data set whose domains have these classes, separated by spaces."""
    classes = sorted({name for domain in domains for name in domain.split()})
    counts = {
        str(at): {name: int(name in domain.split()) for name in classes}
        for at, domain in enumerate(domains)
    }
    return list(issues.similar_classes(counts))


Expected = list[tuple[str, str]]
"""Kind and message of each issue."""


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (identical(SAMPLES[:2], [EMPTY, EMPTY]), []),  # empty files are not identical
        (identical(GROUPED, "xx"), []),  # copies of one group
        (identical([*GROUPED, Sample("c", "day", "cat", "h")], "xxx"), [
            ("copies", ("3 images are identical to others of the same domain and class: 'a' = 'b' "
             "= 'c'"))]),
        (identical(SAMPLES, "abaac"), [
            ("leak", ("leak between domains: 3 images are identical to images of other domains: "
             "'day/cat/1' = 'day/dog/1' = 'night/cat/1'; leave-one-domain-out results will be too "
             "optimistic")),
            ("two labels", ("3 images are identical but labelled differently: 'day/cat/1' ('cat') "
             "= 'day/dog/1' ('dog')"))]),
        (identical(PAIRS, "0011223344"), [
            ("leak", ("leak between domains: 10 images are identical to images of other domains: "
             "'day/0' = 'night/0', 'day/1' = 'night/1', 'day/2' = 'night/2', and 2 more; "
             "leave-one-domain-out results will be too optimistic"))]),
        (issues.unreadable_images({"a": "truncated", "b": "empty", "c": "empty"}), [
            ("unreadable", "3 images cannot be read: 'b' and 1 more: empty; 'a': truncated")]),
        (issues.unreadable_images({str(n): f"reason {n}" for n in range(9)}), [
            ("unreadable", ("9 images cannot be read: '0': reason 0; '1': reason 1; '2': reason 2; "
             "and 6 more"))]),
        (listed(*(["empty class", f"'day/{n}' has no images"] for n in range(5)), ["new", "x"]), [
            ("empty class", ("'day/0' has no images; 'day/1' has no images; 'day/2' has no images; "
             "and 2 more")), ("new", "x")]),
        (issues.missing_classes(COUNTS), [
            ("one class", "domain 'b' has images of one class only, 'cat'"),
            ("missing class", ("domain 'a' has no images of class 'cow'; domain 'd' has no images "
             "of class 'cat'"))]),
        (issues.missing_labels(LABELS), [
            ("unused label", "no image has the label 'c'"),
            ("missing label", "domain 'day' has no images with the label 'b'")]),
        (issues.different_mixtures({"a": 25.0}, CHANCE), []),
        (issues.different_mixtures({"a": 26.0, "b": 50.0, "c": 35.0}, CHANCE), [
            ("label shift", ("the mixture of classes differs from that of the other domains: label "
             "shift 35 % in 'c', 26 % in 'a'"))]),
        (issues.different_sizes({"a": (32, 64), "b": (500, 127)}), []),
        (issues.different_sizes({"a": (32, 64), "c": (64, 64), "b": (500, 128)}), [
            ("sizes", ("the domains differ in size: median 32×64 in 'a' and 500×128 in 'b'; "
             "resolution alone tells them apart"))]),
        (issues.small_images(list("abcde")), [
            ("small", ("5 images with a side below 32 pixels, unlike the rest of the domain: 'a', "
             "'b', 'c', and 2 more"))]),
        (issues.shared_groups([*GROUPED, GROUPED[0]._replace(group="h")]), []),
        (issues.shared_groups([*GROUPED, Sample("2", "night", "cat", "g")]), [
            ("leak", ("leak between domains: group 'g' in several domains; leave-one-domain-out "
             "results will be too optimistic"))]),
        (issues.constant_numbers(spread()), [
            ("constant", "'age' is 2 in all images of domain 'night'")]),
        (issues.different_ranges(spread(25.0)), []),
        (issues.different_ranges(spread(24.9)), [
            ("ranges", ("ranges of numbers hardly overlap: 'age' is 1 to 3 in 'day', where 25 % of "
             "the values are as in the other domains"))]),
        (similar("House dog", "house dog"), [
            ("similar classes", "names of classes look alike: 'House' and 'house'")]),
        *((similar(f"{right} house", f"{wrong} house"), [
            ("similar classes", "names of classes look alike: " + " and ".join(map(repr, sorted(
                (right, wrong)))))])
          for right, wrong in (("dog", "dgo"), ("dog", "dogs"), ("elephant", "elefant"))),
        (similar("cat bat", "cat bat"), []),  # a domain has both, so they differ
        (similar("lot1 x", "lot2 x"), []),  # numbers tell apart
        (similar("ox dog", "ax dog"), []),  # too short to tell
        (similar("a1b a2c a3d a4e a5f a6g a7h", "A1B A2C A3D A4E A5F A6G A7H"), [
            ("similar classes", ("names of classes look alike: 'A1B' and 'a1b', 'A2C' and 'a2c', "
             "'A3D' and 'a3d', 'A4E' and 'a4e', 'A5F' and 'a5f', and 2 more"))]),
    ],
)  # fmt: skip
def test_kinds_and_messages(found: Iterable[Issue], expected: Expected) -> None:
    given = list(found)
    assert [(issue.kind, issue.message) for issue in given] == expected
    for issue in given:
        assert str(issue) == (f"{issue.message}; {issue.advice}" if issue.advice else issue.message)
        assert issue.advice or issue.kind in ("new",)


def save(path: Path, size: tuple[int, int], colour: tuple[int, int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def test_image_that_is_small_unlike_the_rest_of_its_domain(tmp_path: Path) -> None:
    for domain, side in (("day", 63), ("night", 64)):
        for label in ("cat", "dog"):
            for n in range(3):
                save(tmp_path / f"{domain}/{label}/{n}.png", (100, side), (n, ord(label[0]), side))
        save(tmp_path / f"{domain}/cat/small.png", (31, 200), (1, 1, side))
        save(tmp_path / f"{domain}/cat/large enough.png", (32, 200), (1, 1, side))
    (issue,) = ImageDomains(tmp_path).check()
    assert (issue.kind, issue.paths) == ("small", ("night/cat/small.png",))
