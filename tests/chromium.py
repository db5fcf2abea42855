"""Chromium, for the tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
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


def faults(shown: Any) -> list[str]:
    """What axe-core objects to on a page: the rule, and the first element that breaks it."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-core is not installed: make page"
    )
    found = axe.Axe().run(shown).response
    assert len(found["passes"]) > 20
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found["violations"]]
