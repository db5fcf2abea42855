"""Help texts: an option means the same in every command, and the form of the texts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from tests.conftest import Run

from oodzoo.cli import app
from oodzoo.cli.app import PANELS


def leaves(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The commands, by their names."""
    below = getattr(command, "commands", {})
    for name, each in below.items():
        yield from leaves(each, f"{path} {name}")
    if not below:
        yield path.strip(), command


COMMANDS = dict(leaves(typer.main.get_command(app)))
OPTIONS: dict[str, dict[str, Any]] = defaultdict(dict)
"""The options of every command, by their long names."""
for _name, _command in COMMANDS.items():
    for _parameter in _command.params:
        for _option in [each for each in _parameter.opts if each.startswith("--")]:
            OPTIONS[_option][_name] = _parameter

EVERYWHERE = {
    "--max-ms --max-parameters --licence --score": "run rank select fit evaluate",
    "--max-models --top-k": "run select fit evaluate",
    "--target": "run rank fit",
    "--out": "run demo rank select evaluate fit tune predict export report testbed test",
}
OF_ITS_OWN = {
    "--adapt", "--batch-size", "--device", "--domains", "--learning-rate", "--lora", "--max-hours",
    "--models", "--out", "--protocol", "--score", "--seed", "--steps", "--store", "--target",
    "--yes", "--zoo",
}  # fmt: skip
"""Options whose help differs, because what they name differs: a page, a predictor, a store."""


def test_an_option_has_one_meaning_in_every_command() -> None:
    for names, commands in EVERYWHERE.items():
        for option in names.split():
            assert set(commands.split()) <= set(OPTIONS[option]), option
    for option, found in OPTIONS.items():
        shown = [each for each in found.values() if not each.hidden]
        one = len({(each.help, each.metavar) for each in shown}) <= 1
        assert one != (option in OF_ITS_OWN), option
        assert len({(each.is_flag, each.multiple) for each in shown}) <= 1, option
    for command, option in OPTIONS["--out"].items():
        assert any(word in option.help.lower() for word in ("folder", "file", "page")), command
    assert all("feature store" in each.help for each in OPTIONS["--store"].values())
    assert all(each.help.startswith("Score to rank by") for each in OPTIONS["--score"].values())
    assert all(OPTIONS["--zoo"]["run"].help in each.help for each in OPTIONS["--zoo"].values())
    shown = [name for name, each in OPTIONS["--format"].items() if not each.hidden]
    assert shown == ["predict"]  # the form of what is printed; figures have that of their files


def test_options_are_in_panels(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = run("run", "--help").out
    lines = out.splitlines()
    heads = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert heads[0] == "Arguments"
    assert [head for head in heads if head in PANELS] == [p for p in PANELS if p in heads]
    assert "Compute" in heads
    assert lines[lines.index("Models:") + 1].startswith("  --zoo")
    assert any(line.strip().startswith("--json ") for line in lines[lines.index("Output:") :])
    assert "bool" not in out.lower()
    assert "--baselines / --no-baselines" in out
    assert "-v, --verbose" in out
    known = {each.name for command in COMMANDS.values() for each in command.params} | {"help"}
    assert {name for names in PANELS.values() for name in names} <= known


def test_values_are_named_by_what_they_are(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in COMMANDS:
        out = run(*name.split(), "--help").out
        assert not re.search(r"<\w+|\b(TEXT|INTEGER|FLOAT)\b|[{(](?:[A-Z]+|auto)[)}]", out), name
    out = run("fit", "--help").out
    for expected in ("fit [OPTIONS] STORE\n", "--max-models N ", "--max-ms MS ", "--zoo ZOO "):
        assert expected in out
    assert "[default: auto; with --top-k" in " ".join(out.split())
    assert "predict [OPTIONS] MODEL [INPUT...]" in run("predict", "--help").out
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (["--help"], ["store", "--help"]):  # summaries of commands are whole
        out = run(*arguments).out
        assert "..." not in out.partition("Commands:")[2]
        assert max(map(len, out.splitlines())) <= 80
