"""Where results, messages and warnings go."""

from __future__ import annotations

import json

import pytest

from oodzoo.cli.terminal import Terminal

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


def test_quiet_leaves_warnings(capsys: Captured) -> None:
    write_everything(Terminal(quiet=True))
    assert capsys.readouterr().err.splitlines() == ["warning: a problem"]


def test_no_progress_without_a_terminal() -> None:
    with Terminal().progress("Work") as progress:
        assert progress is None


def test_markup_in_names_is_printed_as_it_is(capsys: Captured) -> None:
    Terminal().line("[bold]net[/bold]")
    assert capsys.readouterr().out == "[bold]net[/bold]\n"


def test_numbers_that_json_does_not_have_are_rejected() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Terminal(json=True).document({"n": float("nan")})
