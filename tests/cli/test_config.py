"""Every option of `oodzoo run` goes into its file, and comes back from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.conftest import Run

from oodzoo.cli import app
from oodzoo.cli.run import WritesConfig, file_options
from oodzoo.cli.run import run as run_command
from oodzoo.pipeline.config import CONFIG_FILE

OPTIONS = file_options(run_command, leave_out="config_file")
COMMAND: Any = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
COMMON = {"config_file", "json", "quiet", "verbose", "debug"}
TEXT = 'it\'s "quoted" \\ = # [ü] 25M'


def parsed(*arguments: str | Path) -> dict[str, Any]:
    """The values of all options of `oodzoo run` for a command line."""
    params: dict[str, Any] = COMMAND.make_context("run", [str(each) for each in arguments]).params
    return {name: value for name, value in params.items() if name not in COMMON}


def arguments_for(name: str) -> list[str]:
    """An option of the command line with a value that is not its default."""
    option = f"--{name.replace('_', '-')}"
    kind = OPTIONS[name].kind
    if kind == "flag":
        return ["--no-baselines"] if name == "baselines" else [option]
    if kind == "texts":
        return [option, "one, two", option, TEXT]
    return [option, {"integer": "7", "number": "2.5", "text": TEXT}[kind]]


BASE = ["a data folder", "--zoo", "demo", "--out", "job"]


def test_every_option_comes_back(tmp_path: Path) -> None:
    assert set(OPTIONS) == set(parsed(*BASE))
    default = parsed(*BASE)
    for name in OPTIONS.keys() - {"source"}:
        given = parsed(*BASE, *arguments_for(name))
        assert given[name] != default[name]
        WritesConfig(tmp_path, OPTIONS, given).start("run")
        assert parsed("--config", tmp_path / CONFIG_FILE) == given


def test_all_options_at_once_and_those_of_the_command_line_win(tmp_path: Path) -> None:
    names = [name for name in OPTIONS if name not in ("source", "zoo", "out")]
    given = parsed(*BASE, *(part for name in names for part in arguments_for(name)))
    WritesConfig(tmp_path, OPTIONS, given).start("run")
    file = tmp_path / CONFIG_FILE
    assert parsed("--config", file) == given
    assert parsed("other", "--config", file, "--seed", "3", "--baselines") == given | {
        "source": "other",
        "seed": 3,
        "baselines": True,
    }


def test_an_edited_file(tmp_path: Path) -> None:
    file = tmp_path / CONFIG_FILE
    file.write_text('data = "photos"\nzoo = ["a", "b"]\nout = "job"\ntop-k = [1, 3]\nmax_ms = 5\n')
    found = parsed("--config", file)
    assert (found["zoo"], found["top_k"], found["max_ms"]) == ("a,b", "1,3", 5.0)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("top_K = 3", "unknown option 'top_K' in 'FILE'; did you mean top_k?"),
        ("xyz = 3", "unknown option 'xyz' in 'FILE'; oodzoo run --help lists the options"),
        ("seed = '3'", "the option 'seed' in 'FILE' must be an integer, got '3'"),
        ("baselines = 1", "the option 'baselines' in 'FILE' must be true or false, got 1"),
        ("score = ['a']", "the option 'score' in 'FILE' must be text in quotes, got ['a']"),
        ("seed", "'FILE' is not a TOML file"),
    ],
)
def test_a_wrong_file_is_one_line(run: Run, tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "my.toml"
    file.write_text(f'data = "x"\nzoo = "demo"\nout = "{tmp_path / "job"}"\n{line}\n')
    complaint = run("run", "--config", file).complaint
    assert words.replace("FILE", str(file)) in complaint
    assert not (tmp_path / "job").exists()
