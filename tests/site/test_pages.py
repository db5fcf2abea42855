"""The built documentation in a real browser, opened from files and offline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.chromium import faults
from tests.site.built import BUILT, GENERATED
from tests.site.built import pages as read_pages

WIDTHS = (1200, 400)
SHOWN = ("index", "tutorials/own_photos", "concepts/scores", "api/report", "faq")

# Formulas that are empty, as high as a line of nothing, or that show a command of LaTeX.
BROKEN_FORMULAS = r"""() => [...document.querySelectorAll('math')].filter((math) => {
  const box = math.getBoundingClientRect();
  const shown = [...math.querySelectorAll('mi, mn, mo, mtext')].map((e) => e.textContent).join('');
  return box.width < 4 || box.height < 6 || /\\|&/.test(shown) || !shown;
}).map((math) => math.textContent)"""
# A fraction is as high as two lines only if the browser knows MathML.
FRACTIONS = """() => [...document.querySelectorAll('div.math mfrac')].map((fraction) => {
  const [above, below] = [...fraction.children].map((part) => part.getBoundingClientRect());
  return above.bottom <= below.top + 1;
})"""


@pytest.fixture(scope="module")
def view(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page; any message of the browser and any request to a network fails the test."""
    complaints: list[str] = []
    context = browser.new_context(offline=True)
    shown = context.new_page()

    def note(request: Any) -> None:
        if not request.url.startswith(("file:", "data:")):
            complaints.append(request.url)

    shown.on("console", lambda message: complaints.append(message.text))
    shown.on("pageerror", lambda error: complaints.append(str(error)))
    shown.on("requestfailed", lambda request: complaints.append(request.url))
    shown.on("request", note)

    def view(name: str, width: int = 1200, scheme: str = "light") -> Any:
        shown.emulate_media(color_scheme=scheme)
        resize(shown, width)
        shown.goto((BUILT / f"{name}.html").as_uri())
        return shown

    yield view
    context.close()
    assert complaints == []


def resize(shown: Any, width: int) -> None:
    shown.set_viewport_size({"width": width, "height": 900})


def test_no_page_scrolls_sideways(view: Callable[..., Any]) -> None:
    wide = []
    for name in set(read_pages()) - GENERATED:
        shown = view(name)
        for width in WIDTHS:
            resize(shown, width)
            if (found := shown.evaluate("document.documentElement.scrollWidth")) > width:
                wide.append((name, width, found))
    assert wide == []


@pytest.mark.parametrize("name", SHOWN)
def test_axe_finds_nothing(view: Callable[..., Any], name: str) -> None:
    for width, scheme in zip(WIDTHS, ("light", "dark"), strict=True):
        shown = view(name, width, scheme)
        assert shown.locator("h1").first.is_visible()
        assert faults(shown, ["serious", "critical"]) == []


@pytest.mark.parametrize("name", ["concepts/scores", "concepts/feature-selection", "api/selection"])
def test_formulas_are_shown(view: Callable[..., Any], name: str) -> None:
    shown = view(name)
    assert shown.locator("math").count() > 10
    assert shown.evaluate(BROKEN_FORMULAS) == []
    fractions = shown.evaluate(FRACTIONS)
    assert fractions
    assert all(fractions)


def test_the_picture_is_a_row_or_a_column(view: Callable[..., Any]) -> None:
    tops = "[...document.querySelectorAll('.flow li')].map((e) => e.getBoundingClientRect().top)"
    assert len(set(view("index").evaluate(tops))) == 1
    assert len(set(view("index", 400).evaluate(tops))) == 5
