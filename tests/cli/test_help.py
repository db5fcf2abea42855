"""Help texts, and that shared options mean the same in every command."""

from __future__ import annotations

import functools
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from types import UnionType
from typing import Any, NamedTuple, get_args

import pytest
import typer
import typer.main
from tests.conftest import Run

from oodzoo.cli import app
from oodzoo.cli.app import PANELS
from oodzoo.cli.evaluate import tune_device
from oodzoo.cli.options import ZOO_HELP, compute_device, domain_weights, top_k_of


class Option(NamedTuple):
    """An option of a command, as its function states it."""

    help: str
    metavar: str | None
    kind: Any
    hidden: bool
    named: bool


def walk(group: typer.Typer, above: str = "") -> Iterator[tuple[str, Any]]:
    """The name and the function of every command."""
    for command in group.registered_commands:
        yield f"{above}{command.name}", command.callback
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from walk(inner.typer_instance, f"{above}{inner.name} ")


@functools.cache
def all_options() -> dict[str, dict[str, Option]]:
    """The options of every command, by their long names."""
    found: dict[str, dict[str, Option]] = defaultdict(dict)
    for command, function in walk(app):
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
            kind, info = get_args(parameter.annotation) or (None, None)
            if not isinstance(info, typer.models.OptionInfo):
                continue
            # Within Annotated, typer has the first name as the default.
            stated_names = [str(each) for each in (info.default, *(info.param_decls or ()))]
            names = [each for each in stated_names if each.startswith("--")]
            for option in names or [f"--{name.replace('_', '-')}"]:
                stated = Option(
                    str(info.help), info.metavar, _plain(kind), info.hidden, named=bool(names)
                )
                found[option][command] = stated
    return found


def _plain(kind: Any) -> Any:
    """A type without None, which only says that there is a default; `str | None` is `str`."""
    kinds = [each for each in get_args(kind) if each is not type(None)]
    return kinds[0] if isinstance(kind, UnionType) and len(kinds) == 1 else kind


@pytest.mark.parametrize(
    ("options", "commands"),
    [
        (("--max-ms", "--max-parameters", "--licence", "--score"),
         ("run", "rank", "select", "fit", "evaluate")),
        (("--max-models", "--top-k"), ("run", "select", "fit", "evaluate")),
        (("--target",), ("run", "rank", "fit")),
        (("--out",), ("run", "demo", "rank", "select", "evaluate", "fit", "tune", "predict",
                      "export", "report", "testbed", "test", "store merge")),
        (("--json", "--quiet"), tuple(name for name, _ in walk(app))),
    ],
)  # fmt: skip
def test_the_same_powers_everywhere(options: tuple[str, ...], commands: tuple[str, ...]) -> None:
    for option in options:
        assert set(commands) <= set(all_options()[option])


OF_ITS_OWN = {
    "--adapt", "--batch-size", "--device", "--domains", "--learning-rate", "--lora", "--max-hours",
    "--models", "--out", "--protocol", "--score", "--seed", "--steps", "--store", "--target",
    "--yes", "--zoo",
}  # fmt: skip
"""Options whose help differs, because what they name differs: a page, a predictor, a store."""


def test_an_option_has_one_meaning_and_states_its_name() -> None:
    for option, found in all_options().items():
        shown = [each for each in found.values() if not each.hidden]
        one = len({(each.help, each.metavar) for each in shown}) <= 1
        assert one != (option in OF_ITS_OWN), option
        if option not in ("--out", "--batch-size"):  # a path or a URL; a number or auto
            assert len({each.kind for each in shown}) <= 1, option
        for command, stated in found.items():
            # Typer 0.27 takes a metavar like the name for the name: there is no such option.
            word = option.removeprefix("--").replace("-", "_")
            if (stated.metavar or "").casefold() == word:
                assert stated.named, (command, option)


def test_where_results_are_written_and_in_which_form() -> None:
    found = all_options()
    for command, option in found["--out"].items():
        assert any(word in option.help.lower() for word in ("folder", "file", "page")), command
    assert all("feature store" in option.help for option in found["--store"].values())
    assert all(each.help.startswith("Score to rank by") for each in found["--score"].values())
    shown = {command for command, option in found["--format"].items() if not option.hidden}
    assert shown == {"predict"}  # the form of what is printed; figures have that of their files


def texts(name: str) -> dict[str, str]:
    """For each command with an option or argument of this name, its help."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {
        command: parameter.help
        for command, body in commands.items()
        for parameter in body.params
        if parameter.name == name
    }


def test_one_help_text_for_one_argument() -> None:
    assert len({texts("store")[name] for name in ("rank", "select", "evaluate", "fit")}) == 1
    assert len({texts("root")[name] for name in ("data", "extract", "run")}) == 1
    zoo = texts("zoo")
    assert {"models", "extract", "run", "fit"} <= set(zoo)
    # Older versions of typer do not keep the help of arguments, which `models` has.
    assert all(ZOO_HELP in (text or ZOO_HELP) for text in zoo.values())
    assert all(zoo[command] for command in ("extract", "run", "fit"))


# --- the form of help texts ----------------------------------------------------------------------


def test_options_are_in_panels(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = run("run", "--help").out
    lines = out.splitlines()
    heads = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert heads[0] == "Arguments"
    assert [head for head in heads if head in PANELS] == [p for p in PANELS if p in heads]
    assert "Compute" in heads
    assert lines[lines.index("Models:") + 1].startswith("  --zoo")
    assert any(line.strip().startswith("--json ") for line in lines[lines.index("Output:") :])
    assert "bool" not in out.lower()
    assert "--baselines / --no-baselines" in out
    assert "-v, --verbose" in out
    root: Any = typer.main.get_command(app)
    commands = [*root.commands.values(), *root.commands["store"].commands.values()]
    known = {each.name for command in commands for each in command.params} | {"help"}
    assert {name for names in PANELS.values() for name in names} <= known


def test_values_are_named_by_what_they_are(run: Run) -> None:
    root: Any = typer.main.get_command(app)
    for name, each in root.commands.items():
        if not hasattr(each, "commands"):
            out = run(name, "--help").out
            wrong = re.search(r"<\w+|\b(TEXT|INTEGER|FLOAT)\b|[{(](?:[A-Z]+|auto)[)}]", out)
            assert not wrong, name
    out = run("fit", "--help").out
    for expected in ("fit [OPTIONS] STORE\n", "--max-models N ", "--max-ms MS ", "--zoo ZOO "):
        assert expected in out
    assert "[default: auto; with --top-k" in " ".join(out.split())
    assert "predict [OPTIONS] MODEL [INPUT...]" in run("predict", "--help").out


def test_summaries_of_commands_are_whole(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (["--help"], ["store", "--help"]):
        out = run(*arguments).out
        assert "..." not in out.partition("Commands:")[2]
        assert max(map(len, out.splitlines())) <= 80


def test_values_of_options() -> None:
    assert (compute_device("cpu"), compute_device("cuda:1")) == (None, "cuda:1")
    given = {"cpu": "cpu", "cpu,cpu": "cpu", "cuda": None, "cuda:1,cuda:0": None, None: None}
    assert {device: tune_device(device) for device in given} == given
    assert domain_weights(None) is domain_weights([]) is None
    assert domain_weights(["a=2", "b=c=0.5"]) == {"a": 2.0, "b=c": 0.5}
    assert (top_k_of("3"), top_k_of("1, 3"), top_k_of("auto")) == (3, [1, 3], "auto")
