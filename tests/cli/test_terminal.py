"""Where results, messages and warnings go; tables at several widths; progress."""

from __future__ import annotations

import io
import json
import threading

import pytest
from rich.cells import cell_len
from rich.console import Console

from oodzoo.cli import terminal
from oodzoo.cli.options import Bar
from oodzoo.cli.terminal import (
    Bars,
    Meter,
    Part,
    Terminal,
    column_widths,
    fit_table,
    needed_width,
    progress_lines,
)

Captured = pytest.CaptureFixture[str]


def write_everything(terminal: Terminal) -> None:
    terminal.say("a message")
    terminal.warn("a problem")
    terminal.line("[bold]a line[/bold]")
    terminal.table(["model", "n"], [["net", 3]])
    terminal.document({"n": 3})


def test_results_go_to_stdout_and_messages_to_stderr(capsys: Captured) -> None:
    write_everything(Terminal())
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "[bold]a line[/bold]"
    assert out.splitlines()[-1].split() == ["net", "3"]
    assert err.splitlines() == ["a message", "warning: a problem"]
    write_everything(Terminal(json=True))
    out, err = capsys.readouterr()
    assert json.loads(out) == {"n": 3}
    assert "a problem" in err
    with pytest.raises(ValueError, match="JSON"):
        Terminal(json=True).document({"n": float("nan")})


@pytest.mark.parametrize(
    ("n", "line"),
    [(1, "1 warning; run without -q to see it"), (2, "2 warnings; run without -q to see them")],
)
def test_quiet_counts_warnings(capsys: Captured, n: int, line: str) -> None:
    with Terminal(quiet=True) as terminal:
        for _ in range(n):
            write_everything(terminal)
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err.splitlines() == [line]


def test_many_warnings_of_a_kind_are_abbreviated(capsys: Captured) -> None:
    with Terminal() as terminal:
        for n in range(1, 1031):
            terminal.warn(f"skipped {f'{n}.png'!r}: it is empty")
            if n <= 20:
                terminal.warn(f"image {n}")
        for n in range(30):  # quoted names with apostrophes are of one kind
            name = f"{n} isn't" if n % 2 else f"{n}"
            terminal.warn(f"the store's model {name!r} failed")
        for n in range(22):
            terminal.show_warning(UserWarning(f"odd\n  {str(n)!r}"), UserWarning, "x.py", 3)
        terminal.warn("the end")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4 * 20 + 4
    assert "warning: skipped '20.png': it is empty" in lines
    assert "warning: odd '0'" in lines
    assert lines[-4:] == [
        "warning: the end",
        "warning: 1,010 more: skipped '…': it is empty",
        "warning: 10 more: the store's model '…' failed",
        "warning: 2 more: odd '…'",
    ]


def test_verbose_shows_details_and_where_warnings_arise(capsys: Captured) -> None:
    for verbose in (False, True):
        terminal = Terminal(verbose=verbose)
        terminal.detail("a detail")
        terminal.show_warning("odd", UserWarning, "some.py", 7)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["warning: odd", "a detail", "warning: odd (UserWarning of some.py:7)"]


# --- tables --------------------------------------------------------------------------------------

COLUMNS = ["rank", "model", "acc. %", "90 %", "d", "ms"]
ROWS = [
    [1, "vit_small_patch14_dinov2.lvd142m", 94.4, "87-100", 384, 12.3],
    [2, "resnet50.a1_in1k", 9.5, "0-20", 2048, 4.1],
]


def test_a_table_gives_up_columns_then_is_divided_then_listed() -> None:
    least: list[str] = ["d", "ms"]
    for width, dropped in ((60, ["d"]), (55, ["d", "ms"])):
        assert fit_table(COLUMNS, ROWS, left=2, width=width, least=least).dropped == dropped
    divided = fit_table(COLUMNS, ROWS, left=2, width=50, least=())
    assert [part.columns for part in divided.parts] == [
        ["rank", "model", "acc. %"],
        ["rank", "model", "90 %", "d"],
        ["rank", "model", "ms"],
    ]
    listed = fit_table(COLUMNS, ROWS, left=2, width=30, least=["d"])
    assert (divided.dropped, listed.dropped, listed.parts) == ([], [], [])
    assert listed.lines[:3] == [
        "1  vit_small_patch14_dinov2.lvd142m",
        "  acc. % 94.4  90 % 87-100",
        "  d 384  ms 12.3",
    ]


def test_nothing_is_lost_or_cut_at_any_width() -> None:
    for width in range(12, 90, 3):
        fitted = fit_table(COLUMNS, ROWS, left=2, width=width, least=["d"])
        for part in fitted.parts:
            assert needed_width(part.columns, part.rows, part.left) <= width
        cells = [cell for part in fitted.parts for row in part.rows for cell in row]
        text = " ".join(cells + fitted.lines)
        for row in ROWS:
            for name, cell in zip(COLUMNS, row, strict=True):
                assert name in fitted.dropped or str(cell) in text


def test_text_may_be_broken_between_words_and_the_widest_gives_way() -> None:
    rows = [["net", "trained on many images", "1"]]
    columns = ["model", "pretraining", "d"]
    assert needed_width(columns, rows, 2) == 5 + 1 + 11 + 1 + 1
    assert needed_width(columns, rows, 1) == 5 + 1 + 22 + 1 + 1
    assert needed_width(["名前"], [["漢字"]], 1) == cell_len("漢字") == 4
    part = Part(["model", "pretraining", "parameters"], [["a" * 20, "b c d e " * 5, "1"]], 2)
    for width, widths in ((200, [20, 40, 10]), (50, [20, 18, 10]), (10, [20, 11, 10])):
        assert column_widths(part, width) == widths  # no narrower than words


# --- progress ------------------------------------------------------------------------------------


def test_a_bar_shows_the_time_left_next_to_a_long_name(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("oodzoo.core.events.progress.time.monotonic", lambda: now[0])
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    with Bars(console, "{task.fields[speed]}") as bars:
        meter = bars.add("mobilenet_v1_025_128_imagenet", speed="1,062 images/s")
        now[0] += 600
        meter(256, 1400)
    assert "44 min 42 s left" in out.getvalue()
    assert "256/1400" in out.getvalue()
    assert "…" not in out.getvalue()


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
    assert said[-1].startswith("Ranking: 5 of 1,000 (0 %), running for ")


def test_a_bar_follows_all_stages_that_know_their_total() -> None:
    seen: list[tuple[int, int]] = []
    said: list[str] = []
    bar = Bar(Meter(lambda meter: seen.append((meter.done, meter.total))), said.append)
    bar.progress("evaluation", 0, 0, message="reading")
    bar.progress("ranking", 3, 4)
    bar.end("ranking", status="done", seconds=1.0)
    bar.progress("evaluation", 1, 2)
    assert seen == [(3, 4), (1, 2)]
    bar.progress("ranking", 3, 4)  # a part of the step of the evaluation
    bar.end("evaluation", status="done", seconds=75)
    assert seen == [(3, 4), (1, 2)]
    assert said == ["reading", "ranking: 1.0 s", "evaluation: 1 min 15 s"]
