"""Measure how far a reader has to jump to follow ``oodzoo run`` through the code.

    python tools/trace_run.py [--package NAME] [--levels 7]

Runs the command in this process, on 120 of the embedded digits with three models of the embedded
zoo, and records the calls between named functions of the package. Comprehensions, generator
expressions and lambdas count as part of the function that contains them; calls that pass through
other packages (joblib, typer) link the two nearest functions of the package. The table shows

- hops: distinct pairs caller -> callee, each counted once;
- file changes: hops whose two functions are in different files;
- files: the files of the functions that were reached,

for the first levels of calls below the function of the command, and for the whole run. The level
of a hop is the least number of functions of the package on the stack from the command to it; hops
in other threads have none and count only for the whole run. Code that runs on import is left out.

To trace another version, run this file with the Python of an environment where it is installed.

Measured for version 0.1, the package ``zood``, before the modules were split into packages::

                    hops  file changes  files
    1 level            8             7      7
    2 levels          47            40     22
    3 levels         117            75     28
    4 levels         173            99     31
    5 levels         244           129     39
    6 levels         344           182     58
    7 levels         502           237     64
    whole run       1270           709    109
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, NamedTuple

MODELS = ("cnn_photos", "mlp_glyphs_augmented", "vit_letters")
N_IMAGES = 120
UNNAMED = ("<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class Function(NamedTuple):
    """A named function of the package: its file, relative to the package, and its name."""

    file: str
    name: str


COMMAND = Function("cli/run.py", "run")
IMPORT = Function("", "<module>")
"""Stands for code that runs when a module is imported, which is not counted."""

Hop = tuple[Function, Function]


class Tracer:
    """Collects the hops between functions of a package, each with its least level.

    The level of a hop is the number of functions of the package on the stack below the function
    of the command; None in threads of their own, whose stack does not contain that function.
    """

    def __init__(self, package: Path) -> None:
        self.prefix = f"{package}/"
        self.hops: dict[Hop, int | None] = {}
        self._known: dict[CodeType, Function | None] = {}

    def __enter__(self) -> Tracer:
        threading.setprofile(self._record)
        sys.setprofile(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _record(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or self._function(frame.f_code) is None:
            return
        stack = self._stack(frame)
        if len(stack) < 2 or IMPORT in stack:
            return
        hop = (stack[1], stack[0])
        level = stack.index(COMMAND) if COMMAND in stack else None
        known = self.hops.setdefault(hop, level)
        if level is not None and (known is None or level < known):
            self.hops[hop] = level

    def _stack(self, frame: FrameType | None) -> list[Function]:
        """Return the functions on the stack, innermost first, one for adjacent frames of one."""
        found: list[Function] = []
        while frame is not None:
            function = self._function(frame.f_code)
            if function is not None and (not found or function != found[-1]):
                found.append(function)
            frame = frame.f_back
        return found

    def _function(self, code: CodeType) -> Function | None:
        if code not in self._known:
            self._known[code] = self._named(code)
        return self._known[code]

    def _named(self, code: CodeType) -> Function | None:
        """Return the named function that the code belongs to; None if it is not the package's."""
        if not code.co_filename.startswith(self.prefix):
            return None
        if not code.co_flags & inspect.CO_OPTIMIZED:  # the body of a module or of a class
            return IMPORT
        parts = code.co_qualname.split(".")
        while parts[-1] in UNNAMED:
            parts.pop()
            if not parts:  # of the body of a module
                return IMPORT
            parts.pop() if parts[-1] == "<locals>" else None
        return Function(code.co_filename.removeprefix(self.prefix), ".".join(parts))


def trace(package: str) -> dict[Hop, int | None]:
    """Run the command under the tracer and return the hops with their levels."""
    module = importlib.import_module(package)
    demo = importlib.import_module(f"{package}.demo")
    cli = importlib.import_module(f"{package}.cli")
    assert module.__file__ is not None
    with TemporaryDirectory() as folder:
        zoo = Path(folder) / "zoo.toml"
        zoo.write_text(_zoo_of_three(demo.zoo_file()), encoding="utf-8")
        data = demo.write_digits(Path(folder) / "digits")
        command = ["run", data, "--zoo", zoo, "--out", Path(folder) / "job", "--limit", N_IMAGES]
        sys.argv = [package, *map(str, command)]
        printed = io.StringIO()
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            Tracer(Path(module.__file__).parent) as tracer,
        ):
            code = _exit_code(cli.main)
    if code != 0:
        sys.exit(f"the command failed with exit code {code}:\n{printed.getvalue()}")
    return tracer.hops


def _exit_code(main: Any) -> Any:
    try:
        main()
    except SystemExit as error:
        return error.code or 0
    return 0


def _zoo_of_three(file: Path) -> str:
    """Return a zoo file of three models whose relative paths are made absolute."""
    entries = file.read_text(encoding="utf-8").split("[[model]]")[1:]
    wanted = [entry for entry in entries if any(f'name = "{name}"' in entry for name in MODELS)]
    assert len(wanted) == len(MODELS)
    relative, absolute = 'source = "onnx/', f'source = "onnx/{file.parent}/'
    return "".join(f"[[model]]{entry.replace(relative, absolute)}" for entry in wanted)


def row(title: str, hops: Collection[Hop]) -> str:
    changes = sum(caller.file != callee.file for caller, callee in hops)
    files = {function.file for hop in hops for function in hop}
    return f"{title:<14}{len(hops):>6}{changes:>14}{len(files):>7}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", default="oodzoo", help="an installed package with this CLI")
    parser.add_argument("--levels", type=int, default=7, help="levels below the command function")
    options = parser.parse_args()
    hops = trace(options.package)
    print(f"{'':<14}{'hops':>6}{'file changes':>14}{'files':>7}")
    for limit in range(1, options.levels + 1):
        within = [hop for hop, level in hops.items() if level is not None and level <= limit]
        print(row(f"{limit} level{'s' * (limit > 1)}", within))
    print(row("whole run", hops))


if __name__ == "__main__":
    main()
