"""The options of a command as a file: read by `--config`, written into the folder of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

import typer

from oodzoo.core.errors import InputError
from oodzoo.core.events import Listener

if TYPE_CHECKING:
    from oodzoo.pipeline.config import Option, Value

_SEVERAL = {"zoo", "top_k", "licence"}
"""Texts of several parts, separated by commas."""

_KINDS: dict[Any, Any] = {
    str: "text",
    Path: "text",
    int: "integer",
    float: "number",
    bool: "flag",
    list[str]: "texts",
}


def file_options(body: Callable[..., None], leave_out: str) -> dict[str, Option]:
    """The options of a command as they are in a file, by the names of its parameters.

    Parameters
    ----------
    body : callable
        A function registered with :func:`oodzoo.cli.app.command`.
    leave_out : str
        The option that names the file.
    """
    from oodzoo.pipeline.config import Option

    options = {}
    for name, parameter in inspect.signature(body, eval_str=True).parameters.items():
        if name == leave_out or not (annotated := get_args(parameter.annotation)):
            continue  # the terminal and the context are not annotated
        kind, info = annotated
        if info.hidden:
            continue
        (plain,) = [kind] if kind in _KINDS else [k for k in get_args(kind) if k is not NoneType]
        is_argument = isinstance(info, typer.models.ArgumentInfo)
        key = str(info.metavar).lower() if is_argument else name
        options[name] = Option(key, _KINDS[plain], info.help or "", name in _SEVERAL)
    return options


def load_options(
    context: typer.Context, path: Path | None, options: Callable[[], Mapping[str, Option]]
) -> Path | None:
    """Take what a file gives for options that the command line does not give."""
    if path is None or context.resilient_parsing:
        return path
    from oodzoo.pipeline.config import CONFIG_FILE, read_config

    if path.is_dir():
        inside = path / CONFIG_FILE
        meant = (
            f"; did you mean {str(inside)!r}?" if inside.is_file() else f" without {CONFIG_FILE}"
        )
        raise typer.BadParameter(f"{str(path)!r} is a folder{meant}")
    known = options()
    try:
        values = read_config(path, list(known.values()))
    except InputError as error:
        raise typer.BadParameter(str(error)) from None
    names = {option.key: name for name, option in known.items()}
    context.default_map = {names[key]: value for key, value in values.items()}
    return path


class WritesConfig(Listener):
    """Writes the options of a run into its folder, so that it can be repeated.

    That is when it starts. If the folder has an earlier run, it is when the first stage ends: a run
    of other data is refused before, and the options of the earlier run stay with its results.
    """

    def __init__(self, out: Path, options: Mapping[str, Option], given: Mapping[str, Any]) -> None:
        self._out = out
        self._options = list(options.values())
        self._values = {option.key: _plain(given.get(name)) for name, option in options.items()}
        self._written = False

    def start(self, stage: str, **facts: Any) -> None:
        from oodzoo.report.record import is_run

        if stage == "run" and not is_run(self._out):
            self._write()

    def end(self, stage: str, **facts: Any) -> None:
        if facts.get("status") in ("done", "reused"):
            self._write()

    def _write(self) -> None:
        from oodzoo.pipeline.config import CONFIG_FILE, write_config

        if not self._written:
            write_config(self._out / CONFIG_FILE, self._options, self._values)
            self._written = True


def _plain(value: Any) -> Value | None:
    """A value of an option as a file has it; an empty list is none."""
    if isinstance(value, list | tuple):
        return [str(each) for each in value] or None
    plain: Value | None = str(value) if isinstance(value, Path) else value
    return plain
