"""Digits of a domain that the predictor has not seen, and what a test of it gives."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fixtures import draw_digits

import oodzoo


@pytest.fixture(scope="session")
def new_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """36 digits of three classes in two new domains, three of them with a wrong label.

    Tests must not change them.
    """
    root = draw_digits(tmp_path_factory.mktemp("new"), 6, domains=("pencil", "tilted"))
    for domain, label, wrong in (("pencil", "0", "1"), ("pencil", "2", "1"), ("tilted", "1", "0")):
        first = min((root / domain / label).iterdir())
        first.rename(root / domain / wrong / first.name)
    return root


@pytest.fixture(scope="session")
def promised(predictor: oodzoo.Predictor) -> oodzoo.Predictor:
    """The predictor, with an accuracy on held-out domains."""
    found = copy.copy(predictor)
    found.provenance = replace(
        predictor.provenance, accuracy=97.0, accuracy_interval=(95.0, 100.0), choice="pool"
    )
    return found


@pytest.fixture(scope="session")
def result(promised: oodzoo.Predictor, new_digits: Path) -> oodzoo.TestResult:
    return oodzoo.test(promised, new_digits)
