"""Count the code of the project, and list the files that few others import.

    python tools/size.py [--trace]

Code is every line but blank ones, comments and docstrings. An importer is a file of the package
that imports a module or a name in it. With `--trace`, the hops and files of one ``oodzoo run`` are
counted, too (``tools/trace_run.py``), which takes a minute.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def code_lines(source: str) -> int:
    """Number of lines but blank ones, comments and docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        body = node.body if isinstance(node, documented) else []
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            skipped.update(range(body[0].lineno, (body[0].end_lineno or 0) + 1))
    lines = enumerate((line.strip() for line in source.splitlines()), start=1)
    return sum(bool(line) and line[0] != "#" and at not in skipped for at, line in lines)


def imported(source: str) -> Iterator[str]:
    """The modules, and names in them, that a file imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", action="store_true", help="also count the hops of a run")
    options = parser.parse_args()
    counts: dict[Path, int] = {}
    importers: dict[str, set[Path]] = {}
    for folder in ("src", "tests"):
        sources = {path: path.read_text() for path in sorted((ROOT / folder).rglob("*.py"))}
        lines = sum(len(source.splitlines()) for source in sources.values())
        here = {path: code_lines(source) for path, source in sources.items()}
        total = sum(here.values())
        print(f"{folder + ':':<6} {total:>7,} lines of code ({lines:,} in all), {len(here)} files")
        if folder == "src":
            counts = here
            for path, source in sources.items():
                for name in imported(source):
                    importers.setdefault(name, set()).add(path)
    found = []
    for path, size in counts.items():
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        if importing := importers.get(name):  # the others are loaded by their names
            found.append((len(importing), size, path.relative_to(ROOT)))
    print("fewest importers and lines:")
    for number, size, path in sorted(found)[:10]:
        print(f"  {number} importer, {size:>3} lines of code: {path}")
    if options.trace:
        sys.stdout.flush()
        subprocess.run([sys.executable, ROOT / "tools" / "trace_run.py"], check=True)


if __name__ == "__main__":
    main()
