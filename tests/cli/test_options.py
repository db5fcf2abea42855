"""Shared options mean the same in every command."""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Iterator
from types import UnionType
from typing import Any, NamedTuple, get_args

import pytest
import typer
import typer.main

from oodzoo.cli import app
from oodzoo.cli.options import ZOO_HELP, compute_device, domain_weights, top_k_of
from oodzoo.core.errors import InputError


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


CONSTRAINTS = ("--max-ms", "--max-parameters", "--licence")


@pytest.mark.parametrize(
    ("option", "commands"),
    [
        *((option, ("run", "rank", "select", "fit", "evaluate")) for option in CONSTRAINTS),
        ("--score", ("run", "rank", "select", "fit", "evaluate")),
        ("--max-models", ("run", "select", "fit", "evaluate")),
        ("--top-k", ("run", "select", "fit", "evaluate")),
        ("--target", ("run", "rank", "fit")),
        ("--out", ("run", "demo", "rank", "select", "evaluate", "fit", "tune", "predict", "export",
                   "report", "testbed", "test", "store merge")),
        ("--json", tuple(name for name, _ in walk(app))),
        ("--quiet", tuple(name for name, _ in walk(app))),
    ],
)  # fmt: skip
def test_the_same_powers_everywhere(option: str, commands: tuple[str, ...]) -> None:
    assert set(commands) <= set(all_options()[option])


OF_ITS_OWN = {
    "--adapt", "--batch-size", "--device", "--domains", "--learning-rate", "--lora", "--max-hours",
    "--models", "--out", "--protocol", "--score", "--seed", "--steps", "--store", "--target",
    "--yes", "--zoo",
}  # fmt: skip
"""Options whose help differs, because what they name differs: a page, a predictor, a store."""


def test_an_option_has_one_meaning() -> None:
    for option, found in all_options().items():
        shown = [each for each in found.values() if not each.hidden]
        if option not in OF_ITS_OWN:
            assert len({each.help for each in shown}) <= 1, option
            assert len({each.metavar for each in shown}) <= 1, option
        if option not in ("--out", "--batch-size"):  # a path or a URL; a number or auto
            assert len({each.kind for each in shown}) <= 1, option


def test_an_option_whose_metavar_is_its_name_states_its_name() -> None:
    """Typer 0.27 takes the metavar for the name otherwise, and there is no such option."""
    for option, found in all_options().items():
        for command, stated in found.items():
            word = option.removeprefix("--").replace("-", "_")
            if (stated.metavar or "").casefold() == word:
                assert stated.named, (command, option)


def test_the_exceptions_are_needed() -> None:
    for option in OF_ITS_OWN:
        shown = [each for each in all_options()[option].values() if not each.hidden]
        assert len({(each.help, each.metavar) for each in shown}) > 1, option


def test_where_results_are_written_and_in_which_form() -> None:
    found = all_options()
    for command, option in found["--out"].items():
        assert any(word in option.help.lower() for word in ("folder", "file", "page")), command
    for command, option in found["--store"].items():
        assert "feature store" in option.help, command
    shown = {command for command, option in found["--format"].items() if not option.hidden}
    assert shown == {"predict"}  # the form of what is printed; figures have that of their files


def test_scores_are_explained_alike() -> None:
    assert all(
        each.help.startswith("Score to rank by") for each in all_options()["--score"].values()
    )


def options(name: str) -> dict[str, str]:
    """For each command with an option or argument of this name, its help."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {
        command: parameter.help
        for command, body in commands.items()
        for parameter in body.params
        if parameter.name == name
    }


@pytest.mark.parametrize(
    ("name", "commands"),
    [("store", {"rank", "select", "evaluate", "fit"}), ("root", {"data", "extract", "run"})],
)
def test_one_help_text_for_one_option(name: str, commands: set[str]) -> None:
    texts = {text for command, text in options(name).items() if command in commands}
    assert len(texts) == 1


def test_the_forms_of_a_zoo_are_explained_wherever_one_is_given() -> None:
    texts = options("zoo")
    assert {"models", "extract", "run", "fit"} <= set(texts)
    # Older versions of typer do not keep the help of arguments, which `models` has.
    assert all(ZOO_HELP in (text or ZOO_HELP) for text in texts.values())
    assert all(texts[command] for command in ("extract", "run", "fit"))


def test_cpu_means_numpy() -> None:
    assert (compute_device("cpu"), compute_device("cuda:1")) == (None, "cuda:1")


def test_weights_of_domains() -> None:
    assert domain_weights(None) is None
    assert domain_weights([]) is None
    assert domain_weights(["a=2", "b=c=0.5"]) == {"a": 2.0, "b=c": 0.5}


def test_numbers_of_models() -> None:
    assert (top_k_of("3"), top_k_of("1, 3"), top_k_of("auto")) == (3, [1, 3], "auto")
    for wrong in ("0", "-1", "1,", "all", "3.0", "²"):
        with pytest.raises(InputError, match=f"or auto; got '{wrong}'"):
            top_k_of(wrong)
