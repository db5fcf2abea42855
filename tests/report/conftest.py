"""The example run, and its page as a browser parses it."""

from __future__ import annotations

import pytest
from tests.report.example import example_run
from tests.report.reader import Reader

from oodzoo.report import page
from oodzoo.report.record import Run


@pytest.fixture(scope="session")
def run() -> Run:
    return example_run()


@pytest.fixture(scope="session")
def read(run: Run) -> Reader:
    return Reader(page(run))
