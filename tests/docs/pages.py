"""Pages of the documentation, read as programs: their files and their commands.

A code block with a caption is a file of that name. A block ``console`` has commands, which begin
with ``$``, each with what it prints to stdout; ``…`` stands for any text. Blocks of other kinds
are not run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from oodzoo.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^(`{3,})(.*)\n((?:.*\n)*?)\1$", re.MULTILINE)
_CAPTION = re.compile(r"\A(?::\w+:.*\n)*:caption: (.+)\n")
_OPTIONS = re.compile(r"\A(?::\w[\w-]*:.*\n)+\n?")


class File(NamedTuple):
    """A file that a page shows."""

    name: str
    text: str


class Command(NamedTuple):
    """A command of a page, and what it is said to print."""

    line: str
    output: str


def steps(page: str, section: str | None = None) -> Iterator[File | Command]:
    """Read the files and commands of a page, or of one of its sections, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    if section is not None:
        text = re.split(r"\n## ", text.partition(f"\n## {section}\n")[2])[0]
    for _, info, content in _BLOCK.findall(text):
        caption = _CAPTION.search(content)
        if caption and info.startswith("{code-block}"):
            yield File(caption[1], _OPTIONS.sub("", content))
        elif info.strip() == "console":
            yield from _commands(content)


def _commands(content: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        while line.endswith("\\"):
            more, _, output = output.partition("\n")
            line = line[:-1] + more.removeprefix("> ")
        yield Command(line, output.strip())


def run_page(
    folder: Path,
    page: str,
    *sections: str,
    programs: Path | None = None,
    environment: Mapping[str, str] | None = None,
    replaced: Mapping[str, str] | None = None,
    here: bool = True,
) -> None:
    """Write the files of a page, or of sections, into a folder, run its commands, compare output.

    Commands `oodzoo` that need no shell are run in this process, which has imported what takes
    long, unless `here` is false. Programs in a folder `programs` come before all others; texts in
    `replaced` are replaced in commands.
    """
    first = [] if programs is None else [str(programs)]
    found = os.pathsep.join([*first, str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **(environment or {}), "COLUMNS": "100", "PATH": found}
    done = 0
    for step in [step for section in sections or (None,) for step in steps(page, section)]:
        if isinstance(step, File):
            path = folder / step.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text, encoding="utf-8")
            continue
        line = step.line
        for old, new in (replaced or {}).items():
            line = line.replace(old, new)
        if here and line.startswith("oodzoo ") and not re.search("[|&;$]", line):
            with mock.patch.dict(os.environ, environment):
                out = run_here(folder, shlex.split(line))
        else:
            ran = subprocess.run(
                ["bash", "-c", line],
                cwd=folder,
                env=environment,
                capture_output=True,
                encoding="utf-8",
                timeout=300,
                check=False,
            )
            assert ran.returncode == 0, f"{line}\n{ran.stderr}"
            out = ran.stdout
        pattern = re.escape(step.output).replace("…", ".*")
        printed = "\n".join(each.rstrip() for each in out.strip().splitlines())
        assert re.fullmatch(pattern, printed, re.DOTALL), f"{line}\n{printed}"
        done += 1
    assert done, f"{page} has no command"


def run_here(folder: Path, words: list[str]) -> str:
    """Run a command `oodzoo` in a folder, and return what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    assert not ended.value.code, f"{words}\n{err.getvalue()}"
    return out.getvalue()
