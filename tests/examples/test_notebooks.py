"""The notebooks of `examples/` run in an empty folder, and are stored with their outputs."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

from tools.notebooks import EXAMPLES, executed, tidy  # noqa: E402

NOTEBOOKS = [EXAMPLES / f"{name}.ipynb" for name in ("arrays", "fine_tuning", "own_photos")]
EXTRAS = {"fine_tuning": "onnx2torch"}
MACHINE_PATH = re.compile(r"/(?:home|root|tmp|usr|var|work|Users)/|[A-Z]:\\\\")


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def kinds(notebook: Any) -> list[list[str]]:
    """What each cell shows: text, tables, figures."""
    return [
        [
            kind
            for output in cell.get("outputs", [])
            for kind in sorted(output.get("data", ["text"]))
        ]
        for cell in notebook.cells
    ]


def test_it_runs_and_shows_what_is_stored(path: Path, tmp_path: Path) -> None:
    if path.stem in EXTRAS and find_spec(EXTRAS[path.stem]) is None:
        pytest.skip(f"needs {EXTRAS[path.stem]}")
    notebook = tidy(executed(path, tmp_path))
    stored = nbformat.read(path, as_version=4)
    assert kinds(notebook) == kinds(stored), "run `make notebooks`"


def test_stored_outputs_say_nothing_of_a_machine(path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    assert outputs(stored)
    assert all(output.output_type != "error" for output in outputs(stored))
    for output in outputs(stored):
        shown = [output.get("text", ""), *output.get("data", {}).values()]
        texts = [text for text in shown if isinstance(text, str) and not is_image(text)]
        assert not any(MACHINE_PATH.search(text) for text in texts)
        assert output.get("name") != "stderr"


def is_image(text: str) -> bool:
    return text.startswith("iVBOR")


def test_stored_notebooks_are_tidy(path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    assert tidy(nbformat.read(path, as_version=4)) == stored, "run `make notebooks`"
    assert stored.cells[0].source.startswith("# ")
