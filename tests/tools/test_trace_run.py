"""The tracer counts calls between functions and files of a package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from tools.trace_run import COMMAND, Function, Tracer, row

FILES = {
    "__init__.py": "",
    "cli/__init__.py": "",
    "cli/run.py": """
from traced.work import each, outer

def run():
    outer()
    return [each(number) for number in range(3)]
""",
    "work.py": """
def on_import():
    return 1

class Late:
    number = on_import()

def each(number):
    return sorted([number], key=lambda item: deeper(item))

def deeper(item):
    return sum(leaf(part) for part in [item])

def leaf(part):
    return part

def outer():
    import traced.late
    return deeper(1)
""",
    "late.py": """
from traced.work import on_import
on_import()
""",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "traced" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "traced"


def test_hops_and_their_levels(package: Path) -> None:
    before = set(sys.modules)
    command = importlib.import_module("traced.cli.run")
    with Tracer(package) as tracer:
        command.run()
    for name in set(sys.modules) - before:
        del sys.modules[name]
    each, deeper, leaf, outer = (
        Function("work.py", name) for name in ("each", "deeper", "leaf", "outer")
    )
    # lambdas, comprehensions and generators are part of their function; imports do not count
    assert tracer.hops == {
        (COMMAND, outer): 1,
        (COMMAND, each): 1,
        (outer, deeper): 2,
        (each, deeper): 2,
        (deeper, leaf): 3,
    }
    assert row("all", tracer.hops).split() == ["all", "5", "2", "2"]
