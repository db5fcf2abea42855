"""The application: usage errors, help, version, completion, pipes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.conftest import Outcome, Run, WriteImage

import oodzoo
from oodzoo.cli import app

SCRIPT = shutil.which("oodzoo", path=sysconfig.get_path("scripts"))
# Results do not depend on the shell that the tests are started from.
SHELL = ("COLUMNS", "FORCE_COLOR", "PYTHONIOENCODING", "PYTHONUNBUFFERED")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in SHELL}

installed = pytest.mark.skipif(SCRIPT is None, reason="the command oodzoo is not installed")


def start(*arguments: str | Path, **environment: str) -> Outcome:
    """Run the installed command, in a process of its own."""
    assert SCRIPT is not None
    done = subprocess.run(
        [SCRIPT, *map(str, arguments)],
        env=ENVIRONMENT | environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.parametrize("option", ["", "--json", "--quiet"])
def test_missing_data_is_one_line(run: Run, tmp_path: Path, option: str) -> None:
    arguments = [tmp_path / "two  spaces", *([option] if option else [])]
    assert "two  spaces'; give a folder" in run("data", *arguments).complaint


def test_debug_shows_where(run: Run, tmp_path: Path) -> None:
    outcome = run("data", tmp_path / "none", "--debug")
    assert (outcome.code, outcome.out) == (2, "")
    assert "Traceback" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("oodzoo: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["data", "x", "--nonsense"], "--nonsense"),
        (["--nonsense"], "--nonsense"),
        (["dta"], "'dta'"),
        (["data"], "'DATA'"),
        (["data", "x", "y"], "y"),
        (["data", "x", "--root"], "--root"),
        (["data", "x", "--json=maybe"], "--json"),
    ],
)
def test_wrong_use_is_one_line(run: Run, arguments: list[str], words: str) -> None:
    complaint = run(*arguments).complaint
    assert words in complaint
    assert "--help" in complaint


# --- help, version, completion, start ---------------------------------------------------------


def command_lines(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """The names of a command, and those of the commands below it."""
    yield path
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from command_lines(below, *path, name)


COMMANDS = [path for path in command_lines(typer.main.get_command(app)) if path]


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)  # typer insists on colours where it smells a CI


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"oodzoo {oodzoo.__version__}\n", "")


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_every_command(run: Run, option: str) -> None:
    outcome = run(option)
    assert (outcome.code, outcome.err) == (0, "")
    assert ("data",) in COMMANDS
    assert all(path[0] in plain(outcome.out) for path in COMMANDS)
    assert "Example: oodzoo" in plain(outcome.out)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_of_every_command(run: Run, path: tuple[str, ...]) -> None:
    outcome = run(*path, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"Example: oodzoo {' '.join(path)}" in plain(outcome.out)
    if not any(other[: len(path)] == path for other in COMMANDS if other != path):
        for option in ("--json", "--quiet", "--debug"):
            assert option in plain(outcome.out)


HEAVY = "numpy scipy sklearn onnxruntime PIL matplotlib joblib torch"


def test_import_is_light() -> None:
    wanted = f"{HEAVY} typer rich".split()
    assert python(f"import sys, oodzoo; print([m for m in {wanted} if m in sys.modules])") == "[]"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["data", "--help"]])
def test_help_and_version_load_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from oodzoo.cli import main\n"
        f"sys.argv = {['oodzoo', *arguments]}\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as ended:\n"
        "    assert not ended.code\n"
        f"print([m for m in {HEAVY.split()} if m in sys.modules])\n"
    )
    assert python(code).splitlines()[-1] == "[]"


@installed
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    outcome = start(_OODZOO_COMPLETE=f"source_{shell}")
    assert (outcome.code, outcome.err) == (0, "")
    assert "_OODZOO_COMPLETE=complete_" in outcome.out


@installed
@pytest.mark.parametrize(
    ("typed", "offered"), [("oodzoo da", "data"), ("oodzoo data --js", "--json")]
)
def test_completion(typed: str, offered: str) -> None:
    position = str(len(typed.split()) - 1)
    outcome = start(_OODZOO_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=position)
    assert (outcome.code, outcome.err) == (0, "")
    assert offered in outcome.out.split()


@installed
def test_installed_command(photos: Path, tmp_path: Path) -> None:
    outcome = start("data", photos, "--json")
    assert outcome.code == 0
    assert outcome.document["images"] == 8
    assert "no such file or folder" in start("data", tmp_path / "none").complaint


# --- pipes and terminals ----------------------------------------------------------------------


def closed_pipe(*arguments: str | Path) -> tuple[int, str]:
    """Run with a reader of stdout that has left before the first line, as `| true` would."""
    assert SCRIPT is not None
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [SCRIPT, *map(str, arguments)],
            env=ENVIRONMENT,
            stdout=writer,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr.strip()


@installed
@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_reader_that_leaves_causes_no_noise(photos: Path, option: str) -> None:
    assert closed_pipe("data", photos, option)[1] == ""


@installed
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_head_of_the_output(photos: Path, unbuffered: str) -> None:
    done = subprocess.run(
        f"{SCRIPT} data photos --json --quiet | head -1",
        shell=True,
        cwd=photos.parent,
        env=ENVIRONMENT | {"PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("{\n", "")


@installed
@pytest.mark.parametrize("arguments", [["data"], ["--version"], ["--help"]])
def test_reader_that_leaves_is_no_fault_of_ours(photos: Path, arguments: list[str]) -> None:
    source = [photos] if arguments == ["data"] else []
    assert closed_pipe(*arguments, *source) == (0, "")


@installed
def test_output_that_knows_only_ascii(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / "dämmerung/cat/1.png")
    outcome = start("data", photos, PYTHONIOENCODING="ascii")
    assert outcome.code == 0
    assert "mmerung" in outcome.out
