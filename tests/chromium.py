"""Chromium, for the tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]
IMPACTS = ("minor", "moderate", "serious", "critical")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: make page"
    )
    with playwright.sync_playwright() as started:
        own = started.chromium.executable_path
        names = ("chromium", "chromium-browser", "google-chrome")
        found = next(filter(None, map(shutil.which, names)), own if Path(own).exists() else None)
        if found is None:
            pytest.skip("no Chromium: install it, or run `playwright install chromium`")
        browser = started.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


def faults(shown: Any, impacts: Collection[str] = IMPACTS) -> list[str]:
    """What axe-core objects to on a page: the rule, and the first element that breaks it."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-core is not installed: make page"
    )
    # without preload: it would load the style sheets again, which a page at file:// must not
    found = axe.Axe().run(shown, options={"preload": False}).response
    assert len(found["passes"]) > 20
    broken = [each for each in found["violations"] if each["impact"] in impacts]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in broken]
