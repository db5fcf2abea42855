"""Execute the notebooks of `examples/`, each in an empty folder, and store their outputs.

Run it from the root of the repository after a change of a notebook or of what it shows::

    python tools/notebooks.py [NOTEBOOK...]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
SECONDS = 300
"""For one cell, on a busy machine."""


def executed(path: Path, folder: Path) -> Any:
    """Execute a notebook in a folder; raises if a cell does."""
    notebook = nbformat.read(path, as_version=4)
    # lines with times would differ each time
    environment = os.environ | {"OODZOO_PROGRESS": "0"}
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=environment)
    return notebook


def tidy(notebook: Any) -> Any:
    """Remove what differs from one execution to the next, or from one machine to another."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    return notebook


def _joined(outputs: list[Any]) -> list[Any]:
    """Join lines that were printed one after the other, but arrived in several pieces."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else {}
        if output.output_type == "stream" and last.get("name") == output.name:
            last["text"] += output.text
        else:
            joined.append(output)
    return joined


def main(names: list[str]) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for path in [Path(name) for name in names] or sorted(EXAMPLES.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, Path(folder))
        nbformat.write(tidy(notebook), path)
        print(f"{path.name}: {len(notebook.cells)} cells")


if __name__ == "__main__":
    main(sys.argv[1:])
