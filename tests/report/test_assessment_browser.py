"""The page of a test in a real browser, opened from a file and offline."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.chromium import faults
from tests.report.assessment_example import example_test

from oodzoo.assessment.result import TestResult
from oodzoo.report.assessment_page import assessment_page

OVERLAPS = (Path(__file__).parent / "overlaps.js").read_text(encoding="utf-8")


def _image() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 30)).save(content, "PNG")
    return content.getvalue()


RESULTS: dict[str, Callable[[], TestResult]] = {
    "classes": lambda: example_test(image=_image()),
    "odd": lambda: example_test(
        names=["<i>alert</i>", "x" * 90, "网络", "=1+1"],
        domains=["<img src=x onerror=alert(1)>", "z" * 80],
    ),
    "many": lambda: example_test(
        names=[f"class_{at}" for at in range(60)], domains=[f"domain {at}" for at in range(40)]
    ),
    "numbers": lambda: example_test("regression", ["age", "height"], image=_image()),
    "labels": lambda: example_test("multilabel", image=_image()),
}


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("classes", 1280, "light"),
        ("classes", 390, "dark"),
        ("odd", 390, "light"),
        ("many", 1280, "light"),
        ("numbers", 390, "dark"),
        ("labels", 390, "light"),
    ],
)
def test_the_page_is_accessible_and_nothing_overlaps(
    browser: Any, tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    file = tmp_path / "test.html"
    file.write_text(assessment_page(RESULTS[name](), "model"), encoding="utf-8")
    complaints: list[str] = []
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    try:
        shown = context.new_page()
        shown.on("console", lambda message: complaints.append(message.text))
        shown.on("pageerror", lambda error: complaints.append(str(error)))
        shown.on("requestfailed", lambda request: complaints.append(request.url))
        shown.on("dialog", lambda dialog: complaints.append(dialog.message))
        shown.goto(file.as_uri())
        box = shown.locator(".number").bounding_box()
        assert box["y"] + box["height"] < 900  # the number is on the first screen
        shown.evaluate(
            """() => {
              for (const fold of document.querySelectorAll('details')) fold.open = true;
              for (const option of document.querySelectorAll('.option')) option.hidden = false;
            }"""
        )
        assert shown.evaluate(OVERLAPS) == []
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        if scheme == "dark" or name == "classes":  # the others have the same blocks
            assert faults(shown) == []
    finally:
        context.close()
    assert complaints == []
