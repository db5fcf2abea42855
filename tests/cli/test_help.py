"""The form of help texts."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer
from tests.conftest import Run

from oodzoo.cli import app
from oodzoo.cli.help import PANELS


def test_options_are_in_panels(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("run", "--help").out.splitlines()
    heads = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert heads[0] == "Arguments"
    assert [head for head in heads if head in PANELS] == [p for p in PANELS if p in heads]
    assert "Compute" in heads
    models = lines[lines.index("Models:") + 1 :]
    assert models[0].startswith("  --zoo")
    output = lines[lines.index("Output:") :]
    assert any(line.strip().startswith("--json ") for line in output)


def test_flags_are_flags(run: Run) -> None:
    out = run("run", "--help").out
    assert "bool" not in out.lower()
    assert "--baselines / --no-baselines" in out
    assert "-v, --verbose" in out


def test_values_are_named_by_what_they_are(run: Run) -> None:
    root: Any = typer.main.get_command(app)
    for name, each in root.commands.items():
        if not hasattr(each, "commands"):
            out = run(name, "--help").out
            assert not re.search(r"<\w+|\b(TEXT|INTEGER|FLOAT)\b|[{(](?:[A-Z]+|auto)[)}]", out), (
                name
            )
    out = run("fit", "--help").out
    for expected in ("fit [OPTIONS] STORE\n", "--max-models N ", "--max-ms MS ", "--zoo ZOO "):
        assert expected in out
    assert "[default: auto; with --top-k" in " ".join(out.split())
    assert "predict [OPTIONS] MODEL [INPUT...]" in run("predict", "--help").out


def test_summaries_of_commands_are_whole(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (["--help"], ["store", "--help"]):
        out = run(*arguments).out
        assert "..." not in out.partition("Commands:")[2]
        assert max(map(len, out.splitlines())) <= 80


def test_every_panel_names_options_that_exist() -> None:
    root: Any = typer.main.get_command(app)
    commands = [*root.commands.values(), *root.commands["store"].commands.values()]
    known = {each.name for command in commands for each in command.params} | {"help"}
    assert {name for names in PANELS.values() for name in names} <= known
