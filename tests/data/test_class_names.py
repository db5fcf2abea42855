"""Classes whose names look alike are found, and different ones are left alone."""

from __future__ import annotations

import pytest

from oodzoo.data.issues import similar_classes


def found(*domains: str) -> list[str]:
    """The messages of a data set whose domains have these classes, separated by spaces."""
    classes = sorted({name for domain in domains for name in domain.split()})
    counts = {
        str(at): {name: int(name in domain.split()) for name in classes}
        for at, domain in enumerate(domains)
    }
    return [issue.message for issue in similar_classes(counts)]


def test_case_and_hyphens_make_no_other_name() -> None:
    assert found("House dog", "house dog") == ["names of classes look alike: 'House' and 'house'"]
    assert found("sea-lion Sea_Lion") == ["names of classes look alike: 'Sea_Lion' and 'sea-lion'"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("dog", "dgo"), ("dog", "dogs"), ("elephant", "elefant"), ("giraffe", "girafe")],
)
def test_a_typing_mistake_in_one_domain(right: str, wrong: str) -> None:
    (message,) = found(f"{right} house", f"{wrong} house")
    assert repr(right) in message
    assert repr(wrong) in message


@pytest.mark.parametrize(
    "domains",
    [
        ("cat bat", "cat bat"),  # a domain has both, so they differ
        ("cat bat", "cat"),
        ("lot1 x", "lot2 x"),  # numbers tell apart
        ("0 8", "0 9"),
        ("ox dog", "ax dog"),  # too short to tell
        ("horse", "hotel"),
    ],
)
def test_other_names_are_no_mistakes(domains: tuple[str, ...]) -> None:
    assert found(*domains) == []


def test_many_are_counted() -> None:
    names = ["ant", "bear", "camel", "duck", "eagle", "fox", "goat"]
    (message,) = found(" ".join(names), " ".join(name.upper() for name in names))
    assert message.endswith(", and 2 more")
