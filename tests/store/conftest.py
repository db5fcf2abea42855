"""Digits, models and stores as in the tests of extraction, and small stores made without models."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.features.conftest import (
    data,
    digits,
    extract,
    made,
    make_model,
    stamps,
    store,
    tree,
    zoo,
    zoo_file,
)
from tests.features.data import Extract, MakeModel
from tests.store.data import Begin, Race, fill, letters

from oodzoo.errors import InputError

__all__ = [
    "data",
    "digits",
    "extract",
    "made",
    "make_model",
    "stamps",
    "store",
    "tree",
    "zoo",
    "zoo_file",
]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A store of two models, two domains and nine images; see `tests.store.data.value`."""
    return fill(tmp_path / "small", letters(day="abcde", night="fghi"), "m1", "m2")


@pytest.fixture
def begin(data: Path, make_model: MakeModel, extract: Extract) -> Begin:
    """Extract the digits with a model that fails: it is in the store, but not finished."""

    def fail(batch: object) -> None:
        raise RuntimeError("broken")

    def begin(store: Path) -> None:
        with pytest.raises(InputError, match="no model could be used"):
            extract(data, [make_model(fail, name="begun")], store)

    return begin


@pytest.fixture
def race(process: Callable[..., subprocess.Popen[str]]) -> Race:
    """Run a program in a process for each list of arguments; none may fail.

    They print "ready" and wait for a line of input, which all get when the last one is ready.
    """

    def race(program: str, *arguments: Sequence[str | Path]) -> None:
        children = [process(program, *some) for some in arguments]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            assert child.wait() == 0, child.communicate()[1]

    return race
