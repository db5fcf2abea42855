"""Time left, bars on a terminal, and lines where there is none."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from oodzoo.cli import terminal
from oodzoo.cli.terminal import left_in_words, progress_bars, progress_lines, time_left


@pytest.mark.parametrize(
    ("done", "total", "left"),
    [(1, 4, 30.0), (4, 4, 0.0), (5, 4, 0.0), (0, 4, None), (1, None, None)],
)
def test_time_left(done: int, total: int | None, left: float | None) -> None:
    assert time_left(done, total, elapsed=10.0) == left


def test_time_left_in_words() -> None:
    assert left_in_words(None) == ""
    assert left_in_words(59.4) == "59 s left"
    assert left_in_words(59.6) == "1 min 0 s left"


def test_a_bar_shows_the_time_left() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    with progress_bars(console) as bars:
        task = bars.add_task("Ranking", total=4)
        bars.update(task, completed=2)
        bars.refresh()
    assert "Ranking" in out.getvalue()
    assert "2/4" in out.getvalue()
    assert "0 s left" in out.getvalue()


def test_lines_say_how_far_work_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "SECONDS", 0.01)
    said: list[str] = []
    spoken = threading.Semaphore(0)

    def say(text: str) -> None:
        said.append(text)
        spoken.release()

    with progress_lines(say, "Ranking") as advance:
        spoken.acquire(timeout=20)
        advance(5, 1000)
        for _ in range(2):  # the first may have been on its way
            spoken.acquire(timeout=20)
    assert said[0].startswith("Ranking: running for ")
    assert said[-1].startswith("Ranking: 5 of 1,000, ")
    assert said[-1].endswith(" left")
    n = len(said)
    assert not spoken.acquire(timeout=0.05) or len(said) == n


def test_the_time_left_is_whole_next_to_a_long_name() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    with progress_bars(console, "{task.fields[speed]}") as bars:
        task = bars.add_task("mobilenet_v1_025_128_imagenet", total=1400, speed="1,062 images/s")
        bars.update(task, completed=256)
        bars.tasks[0].start_time = bars.get_time() - 600
        bars.refresh()
    assert " s left" in out.getvalue()
    assert "256/1400" in out.getvalue()
    assert "…" not in out.getvalue()
