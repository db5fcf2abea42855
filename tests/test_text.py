"""Text helpers for messages."""

from __future__ import annotations

import pytest

from oodzoo._text import count, did_you_mean, one_line


@pytest.mark.parametrize(
    ("n", "expected"), [(0, "0 models"), (1, "1 model"), (2, "2 models"), (12345, "12,345 models")]
)
def test_count(n: int, expected: str) -> None:
    assert count(n, "model") == expected


def test_an_irregular_plural() -> None:
    assert (count(1, "class", "classes"), count(3, "class", "classes")) == ("1 class", "3 classes")


def test_one_line() -> None:
    assert one_line(ValueError("two\n  lines\tof text")) == "two lines of text"
    assert one_line(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert one_line(ValueError("x" * 200)) == "x" * 200
    assert one_line(ValueError("x" * 201)) == "x" * 199 + "…"
    assert one_line(ValueError("abcdef"), limit=4) == "abc…"


def test_did_you_mean() -> None:
    assert did_you_mean("logm", ["logme", "lda"]) == "did you mean logme?"
    assert did_you_mean("resnet", ["resnet50", "resnet18"]) in (
        "did you mean resnet50 or resnet18?",
        "did you mean resnet18 or resnet50?",
    )
    assert did_you_mean("xyz", ["logme", "lda"]) == ""
    assert did_you_mean("logme", []) == ""
