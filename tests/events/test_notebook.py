"""Progress in notebooks: in a real kernel, and not outside of one."""

from __future__ import annotations

from typing import Any

import pytest

from oodzoo.events import NotebookProgress

nbformat = pytest.importorskip("nbformat")
NotebookClient = pytest.importorskip("nbclient").NotebookClient
pytest.importorskip("ipykernel")


def test_what_the_line_says(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    now = [100.0]
    monkeypatch.setattr("oodzoo.core.events.listener.time.monotonic", lambda: now[0])
    monkeypatch.setattr("IPython.display.display", Line(seen).display)
    progress = NotebookProgress()
    progress.start("run")
    progress.start("extraction")
    progress.progress("extraction", 0, 8)
    assert not seen  # too early
    now[0] += 1
    progress.progress("extraction", 2, 8)
    assert seen[-1]["text/plain"] == "Extraction: 25 %, 1.0 s"
    assert '<progress value="0.250">' in seen[-1]["text/html"]
    now[0] += 3
    progress.progress("extraction", 4, 8, message="a <b>")
    assert seen[-1]["text/plain"] == "Extraction: 50 %, about 6 s left, a <b>"
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
