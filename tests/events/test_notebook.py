"""Progress in notebooks: in a real kernel, and not outside of one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from oodzoo.core.events.notebook import SWITCH
from oodzoo.events import NotebookProgress

nbformat = pytest.importorskip("nbformat")
NotebookClient = pytest.importorskip("nbclient").NotebookClient
pytest.importorskip("ipykernel")

SETUP = """
import os, time
import numpy as np
import oodzoo
from oodzoo.events import Events, Stage

rng = np.random.default_rng(0)
y, domains = np.tile([0, 1], 30), np.repeat(["a", "b", "c"], 20)
features = {name: y[:, None] + rng.normal(size=(60, 2)) for name in ("m1", "m2", "m3")}

def work(listener=None, seconds=0.8, inner=None):
    with Stage(listener, "evaluation", images=60) as stage:
        with Stage(inner, "ranking"):  # as functions do that call others without a listener
            time.sleep(seconds)
        for done in range(3):
            stage.progress(done, 4)
            time.sleep(0.25 if seconds else 0)
        stage.say("<b>without</b> photo")
        return stage
"""
CELLS = {
    "shown": "_ = work()",
    "quick": "_ = work(seconds=0); ranking = oodzoo.rank(features, y, domains); ranking",
    "off": "_ = work([], inner=None)",
    "failed": "try:\n    with Stage(None, 'tuning') as stage:\n        time.sleep(0.6)\n"
    "        stage.progress(1, 4)\n        raise ValueError\nexcept ValueError: pass",
    "switched off": f"os.environ[{SWITCH!r}] = '0'; _ = work()",
}


@pytest.fixture(scope="module")
def outputs() -> dict[str, list[Any]]:
    """The outputs of the cells, as a notebook has them in the end."""
    cells = [nbformat.v4.new_code_cell(code) for code in (SETUP, *CELLS.values())]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert not cells[0].outputs
    return {name: cell.outputs for name, cell in zip(CELLS, cells[1:], strict=True)}


def test_one_line_is_updated_and_says_at_the_end_how_long_it_took(
    outputs: dict[str, list[Any]],
) -> None:
    (line,) = outputs["shown"]  # the stage within it has no line of its own
    assert re.fullmatch(r"Evaluation: done in \d\.\d s", line.data["text/plain"])
    assert line.data["text/html"] == line.data["text/plain"]
    (line,) = outputs["failed"]
    assert line.data["text/plain"].startswith("Tuning: failed after 0.")


def test_quick_work_shows_its_result_only(outputs: dict[str, list[Any]]) -> None:
    (result,) = outputs["quick"]
    assert result.output_type == "execute_result"
    assert result.data["text/plain"].startswith("Ranking(3 models by unseen: 1 m")
    assert 'class="dataframe"' in result.data["text/html"]


def test_progress_can_be_turned_off(outputs: dict[str, list[Any]]) -> None:
    assert outputs["off"] == []
    assert outputs["switched off"] == []


def test_what_the_line_says(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    now = [100.0]
    monkeypatch.setattr("oodzoo.core.events.notebook.time.monotonic", lambda: now[0])
    monkeypatch.setattr("IPython.display.display", Line(seen).display)
    progress = NotebookProgress()
    progress.start("run")
    progress.start("extraction")
    progress.progress("extraction", 1, 8)
    assert not seen  # too early
    now[0] += 1
    progress.progress("extraction", 2, 8)
    assert seen[-1]["text/plain"] == "Extraction: 25 %, 1.0 s"
    assert '<progress value="2" max="8">' in seen[-1]["text/html"]
    now[0] += 3
    progress.progress("extraction", 4, 8, message="a <b>")
    assert seen[-1]["text/plain"] == "Extraction: 50 %, about 4.0 s left, a <b>"
    assert "a &lt;b&gt;" in seen[-1]["text/html"]
    progress.progress("extraction", 8, 8)
    assert len(seen) == 2  # shown just now
    progress.end("extraction", status="done", seconds=4.0)
    progress.end("selection", status="skipped", reason="one domain")
    now[0] += 1
    progress.start("ranking")
    assert seen[-1]["text/plain"] == "Ranking: 0.00 s"
    progress.end("ranking", status="done")
    progress.end("run", status="done")
    assert seen[-1] == {"text/plain": "Run: done in 5.0 s", "text/html": "Run: done in 5.0 s"}
    progress.start("ranking")
    progress.end("ranking", status="done")
    assert len(seen) == 4  # a listener can be used again


class Line:
    """Takes the updates of a line in the place of a kernel."""

    def __init__(self, seen: list[dict[str, str]]) -> None:
        self.seen = seen

    def display(self, bundle: dict[str, str], **options: Any) -> Line:
        self.seen.append(bundle)
        return self

    def update(self, bundle: dict[str, str], **options: Any) -> None:
        self.seen.append(bundle)
