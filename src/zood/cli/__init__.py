"""The command line: parse, call, print. One file for each family of commands."""

from __future__ import annotations

# ruff: noqa: F401, I001 - imported in the order in which `zood --help` lists the commands
from zood.cli import demo, run, data, models, extract, rank, select, evaluate
from zood.cli import fit, predict, report, testbed, store
from zood.cli.app import app, main

__all__ = ["app", "main"]
