"""Where results, messages and warnings go."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from oodzoo.cli.terminal import Terminal, paragraph_on

Captured = pytest.CaptureFixture[str]


def write_everything(terminal: Terminal) -> None:
    terminal.say("a message")
    terminal.warn("a problem")
    terminal.line("a line")
    terminal.table(["model", "n"], [["net", 3]])
    terminal.document({"n": 3})


def test_results_go_to_stdout_and_messages_to_stderr(capsys: Captured) -> None:
    write_everything(Terminal())
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "a line"
    assert out.splitlines()[-1].split() == ["net", "3"]
    assert err.splitlines() == ["a message", "warning: a problem"]


def test_with_json_stdout_holds_one_document(capsys: Captured) -> None:
    write_everything(Terminal(json=True))
    out, err = capsys.readouterr()
    assert json.loads(out) == {"n": 3}
    assert "a problem" in err


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
        terminal.warn("the end")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 * 20 + 2
    assert "warning: skipped '20.png': it is empty" in lines
    assert lines[-2:] == ["warning: the end", "warning: 1,010 more: skipped '…': it is empty"]


def test_quoted_names_with_apostrophes_are_of_one_kind(capsys: Captured) -> None:
    with Terminal() as terminal:
        for n in range(30):
            name = f"{n} isn't" if n % 2 else f"{n}"
            terminal.warn(f"the store's model {name!r} failed")
    assert capsys.readouterr().err.splitlines()[20:] == [
        "warning: 10 more: the store's model '…' failed"
    ]


def test_warnings_of_python_are_counted_too(capsys: Captured) -> None:
    with Terminal() as terminal:
        for n in range(22):
            terminal.show_warning(UserWarning(f"odd\n  {str(n)!r}"), UserWarning, "x.py", 3)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "warning: odd '0'"
    assert lines[20:] == ["warning: 2 more: odd '…'"]


def test_markup_in_names_is_printed_as_it_is(capsys: Captured) -> None:
    Terminal().line("[bold]net[/bold]")
    assert capsys.readouterr().out == "[bold]net[/bold]\n"


def test_numbers_that_json_does_not_have_are_rejected() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Terminal(json=True).document({"n": float("nan")})


def test_verbose_shows_details_and_where_warnings_arise(capsys: Captured) -> None:
    for verbose in (False, True):
        terminal = Terminal(verbose=verbose)
        terminal.detail("a detail")
        terminal.show_warning("odd", UserWarning, "some.py", 7)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["warning: odd", "a detail", "warning: odd (UserWarning of some.py:7)"]


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_names_do_not_break_in_tables(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    terminal = Terminal()
    terminal._results.width = columns
    name = "vit_small_patch14_dinov2.lvd142m"
    terminal.table(["model", *"abcdef"], [[name, *range(100_000, 600_001, 100_000)]], least="ab")
    out = capsys.readouterr().out
    assert name in out
    assert all(str(number) in out for number in range(300_000, 600_001, 100_000))
    assert max(map(len, out.splitlines())) <= columns


def test_a_column_with_a_dot_that_is_left_out_has_one(capsys: Captured) -> None:
    terminal = Terminal()
    terminal._results.width = 40
    terminal.table(["model", "trans."], [["net" * 12, "12345"]], least=["trans."])
    assert capsys.readouterr().out.splitlines()[-1] == "Not shown at this width: trans."


def test_messages_break_between_words_on_a_terminal_only() -> None:
    text = "two words of a message, and 'a/long/path/that/is/wider/than/the/line.png'"
    narrow = Console(file=io.StringIO(), force_terminal=True, width=20)
    assert paragraph_on(narrow, text) == [
        *("two words of a", "message, and"),
        "'a/long/path/that/is/wider/than/the/line.png'",
    ]
    assert paragraph_on(Console(file=io.StringIO(), width=20), text) == [text]
    assert paragraph_on(narrow, "a\x1b[31mb") == ["a\\x1b[31mb"]
