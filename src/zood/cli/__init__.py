"""The command line: parse, call, print. One file for each family of commands."""

from __future__ import annotations

# in the order in which `zood --help` lists them
from zood.cli import data, demo, extract, models, store  # noqa: F401
from zood.cli.app import app, main

__all__ = ["app", "main"]
