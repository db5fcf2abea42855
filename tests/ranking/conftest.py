from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def small_matrices(one_thread: None) -> None:
    """Run all tests of rankings on one thread."""
