"""Shared options mean the same in every command."""

from __future__ import annotations

from typing import Any

import pytest
import typer.main

from oodzoo.cli import app
from oodzoo.cli.options import ZOO_HELP, compute_device, domain_weights
from oodzoo.errors import InputError


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


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["a"], "--domain-weight must be NAME=W, got 'a'"),
        (["=2"], "--domain-weight must be NAME=W, got '=2'"),
        (["a="], "--domain-weight 'a=': '' is not a number"),
        (["a=1", "a=2"], "--domain-weight names the domain 'a' twice"),
    ],
)
def test_bad_weights_of_domains(values: list[str], words: str) -> None:
    with pytest.raises(InputError, match=f"^{words}$"):
        domain_weights(values)
