"""The command line: parse, call, print. One file for each family of commands."""

from __future__ import annotations

# ruff: noqa: F401 - a command registers itself when its file is imported
from oodzoo.cli import (
    data,
    evaluate,
    extract,
    fit,
    predict,
    rank,
    run,
    store,
    test,
    testbed,
)
from oodzoo.cli.app import app, main

_ORDER = (
    *("demo", "run", "data", "models", "extract", "domains", "rank", "select", "evaluate", "fit"),
    *("tune", "test", "predict", "export", "report", "testbed", "import"),
)
app.registered_commands.sort(key=lambda command: _ORDER.index(command.name or ""))

__all__ = ["app", "main"]
