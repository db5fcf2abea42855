"""The command-line application: common options, help texts, exit codes, one-line errors."""

from __future__ import annotations

import difflib
import errno
import functools
import inspect
import io
import json as json_text
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

import oodzoo
from oodzoo.cli import options
from oodzoo.cli.terminal import Output, Terminal, discard, paragraph_on
from oodzoo.core.errors import InputError
from oodzoo.core.options import Option
from oodzoo.core.remote.location import url_of_path
from oodzoo.core.text import did_you_mean, duration, printable

MANY = 14
"""From this number of options on, they are shown in panels."""

PANELS = {
    "Data": (
        *("root", "columns", "task", "domains", "limit", "unlabelled", "target", "data"),
        *("text_column", "class_names", "prompt", "prompts", "on_error"),
    ),
    "Models": (
        *("zoo", "licence", "max_parameters", "max_ms", "max_models", "models", "race", "budget"),
        *("yes", "timm_results"),
    ),
    "Ranking and choice": (
        *("score", "stability", "domain_weight", "pareto", "top_k", "choose", "method"),
        *("threshold", "decided"),
    ),
    "Evaluation": (
        *("protocol", "trials", "draws", "steps", "search_space", "selection", "baselines"),
        *("testbed", "peers", "with_target", "published", "values", "tune"),
    ),
    "Fine-tuning": (
        *("tune_steps", "learning_rate", "schedule", "weight_decay", "augment", "lora"),
        *("max_hours", "choose_by", "checkpoints"),
    ),
    "Compute": (
        *("device", "engine", "address", "precision", "decode", "dtype", "batch_size"),
        *("shard", "seed"),
    ),
    "Output": (
        *("out", "store", "plot", "format", "dry_run", "log_file", "mlflow"),
        *("tensorboard", "json", "verbose", "quiet", "debug", "help"),
    ),
}
"""The options of each panel, by the names of their parameters; others come first, in none."""

_OF_A_COMMAND = {("tune", "steps"): "Fine-tuning"}

_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


_VALUES = {"int": "N", "integer": "N", "float": "X", "path": "PATH"}
"""What stands for the value of an option, by the type that typer shows."""


def _value(parameter: Any, shown: str = "") -> str:
    """What stands for the value of a parameter: its metavar, or of a text the name in capitals."""
    kind = shown.rpartition(" ")[2].strip("<>").lower()
    name = str(parameter.name)
    return str(parameter.metavar or _VALUES.get(kind, name.upper()))


def _left(parameter: Any, shown: str) -> str:
    """An option or argument as it is written on the command line."""
    if parameter.param_type_name == "argument":
        return _value(parameter)
    names = ", ".join(sorted(parameter.opts, key=lambda name: name.startswith("--")))
    if parameter.is_flag:
        return " / ".join([names, *parameter.secondary_opts])
    return f"{names} {_value(parameter, shown)}"


def _record(parameter: Any, context: Any) -> tuple[str, str] | None:
    """A parameter and its help; what typer shows differs between its versions."""
    record = parameter.get_help_record(context)
    if record is None:
        return None
    shown, text = record
    if isinstance(default := getattr(parameter, "show_default", None), str):
        text = text.replace(f"default: ({default})", f"default: {default}")
    return _left(parameter, shown), text


class PlainCommand(TyperCommand):
    """A command whose options are listed in panels, if there are many."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = ["[OPTIONS]"]
        for each in self.get_params(ctx):
            if each.param_type_name == "argument":
                several = "" if each.nargs == 1 or "…" in _value(each) else "..."
                name = f"{_value(each)}{several}"
                pieces.append(name if each.required else f"[{name}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        records: dict[str, list[tuple[str, str]]] = {}
        shown = [(each, _record(each, ctx)) for each in self.get_params(ctx)]
        options = [(each, record) for each, record in shown if record is not None]
        many = sum(each.param_type_name == "option" for each, _ in options) >= MANY
        for each, record in options:
            panel = "Options"
            if each.param_type_name == "argument":
                panel = "Arguments"
            elif many:
                name = each.name or ""
                panel = _OF_A_COMMAND.get((self.name or "", name), _PANEL_OF.get(name, panel))
            records.setdefault(panel, []).append(record)
        order = ["Arguments", "Options", *PANELS]
        for panel in sorted(records, key=order.index):
            with formatter.section(panel):
                formatter.write_dl(records[panel])


class PlainGroup(TyperGroup):
    """A group that lists its commands with their whole summaries."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        records = list(self._summaries(ctx))
        with formatter.section("Commands"):
            formatter.write_dl(records)

    def _summaries(self, ctx: Any) -> Iterator[tuple[str, str]]:
        for name in self.list_commands(ctx):
            found: Any = self.get_command(ctx, name)
            if found is not None and not found.hidden:
                summary = (found.help or "").strip().split("\n\n")[0]
                yield name, " ".join(summary.split())


OK, INTERNAL_ERROR, INPUT_ERROR, INTERRUPTED = 0, 1, 2, 130

# What is kept after Ctrl-C, for several commands.
RUN_CONTINUES = "finished features and results are kept, rerun the command to continue"
FEATURES_KEPT = "finished features are kept, rerun the command to resume"
STORE_VALID = "the store is as before or as after the command, rerun it to finish"
FILES_COMPLETE = "output files are unchanged or complete"
MODELS_CACHED = f"finished models are cached in the store if it is writable, {FILES_COMPLETE}"

app = typer.Typer(
    name="oodzoo",
    help="Choose and combine pre-trained models for data from unseen domains.",
    epilog="Example: oodzoo demo",
    cls=PlainGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print no messages, progress or warnings.")
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Print all steps, their time, whole tables and where warnings arise.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the full traceback of errors.")]


def command(
    name: str,
    *,
    example: str,
    interrupted: str = "",
    group: typer.Typer = app,
    cls: type[TyperCommand] = PlainCommand,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command whose first parameter is a Terminal.

    A parameter that is annotated with a dataclass stands for the options that its fields declare.
    The help of options is in docstrings, in a section "Options", that of arguments in "Arguments":
    `name (--names) : VALUE; default TEXT`, of which all but the name may be missing, and the text
    below. What is said once for all commands is in the docstring of :mod:`oodzoo.cli.options`.

    Adds `--json`, `--verbose`, `--quiet` and `--debug`, and turns exceptions into one line (of JSON
    with `--json`) and an exit code: 2 for an input error, 1 for an internal error, 130 for Ctrl-C.

    Parameters
    ----------
    name, example : str
    interrupted : str
        What is kept after Ctrl-C; required for commands that write files.
    group : typer.Typer
    cls : type
    """

    def register(body: Callable[..., None]) -> Callable[..., None]:
        signature, kinds = with_options(body)

        @functools.wraps(body)
        def run(*, json: bool, verbose: bool, quiet: bool, debug: bool, **arguments: Any) -> None:
            terminal = Terminal(json=json, quiet=quiet, verbose=verbose and not quiet)
            warnings.showwarning = terminal.show_warning
            start = time.perf_counter()
            try:
                with terminal:
                    _require_paths(arguments)
                    for name, kind in kinds.items():
                        given = {each.name: arguments.pop(each.name) for each in fields(kind)}
                        arguments[name] = kind(**given)
                    body(terminal, **arguments)
                    terminal.detail(f"Done in {duration(time.perf_counter() - start)}.")
            except typer.Exit:
                raise
            except KeyboardInterrupt:
                text = "; ".join(filter(None, ("interrupted", interrupted)))
                _print_error(text, INTERRUPTED, json=json)
                raise typer.Exit(_Said(INTERRUPTED)) from None
            except Exception as error:
                raise typer.Exit(_report_error(error, debug, json=json)) from None

        run.__doc__ = described(body.__doc__)[0]
        run.interrupted = interrupted  # type: ignore[attr-defined]
        run.__signature__ = signature  # type: ignore[attr-defined]
        group.command(name, cls=cls, epilog=f"Example: {example}")(run)
        return body

    return register


class _Said(int):
    """The exit code of an error that a command has printed.

    typer turns Ctrl-C before a command starts into 130 as well, and prints nothing.
    """


COMMON = {"json": Json, "verbose": Verbose, "quiet": Quiet, "debug": Debug}
"""Options that every command has."""


class Words(NamedTuple):
    """What a docstring says of an option or argument; empty where it says nothing."""

    is_argument: bool = False
    names: str = ""
    value: str = ""
    default: str = ""
    help: str = ""


_ITEM = re.compile(r"(\w+)(?: \((-.+?)\))?(?: : (.+?))?(?:; default (.+))?")


def described(doc: str | None) -> tuple[str, dict[str, Words]]:
    """Split a docstring: the text, and what its sections "Arguments" and "Options" say.

    Examples
    --------
    >>> text, words = described('''Fit.
    ...
    ... Options
    ... -------
    ... yes (--yes, -y) : N; default all
    ...     Do not ask.
    ... ''')
    >>> text, words["yes"][1:]
    ('Fit.', ('--yes, -y', 'N', 'all', 'Do not ask.'))
    """
    text, *sections = re.split(
        r"^(Arguments|Options)\n-+$", inspect.cleandoc(doc or ""), flags=re.MULTILINE
    )
    found: dict[str, Words] = {}
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        for item in re.split(r"\n(?=\w)", body.strip()):
            head, *lines = item.splitlines()
            matched = _ITEM.fullmatch(head)
            assert matched is not None, head
            name, names, value, default = (each or "" for each in matched.groups())
            help_text = " ".join(line.strip() for line in lines)
            found[name] = Words(title == "Arguments", names, value, default, help_text)
    return text.strip(), found


def with_options(body: Callable[..., None]) -> tuple[inspect.Signature, dict[str, Any]]:
    """The signature of a command for the parser, and its parameters that several options set.

    Fields take the place of a parameter that is annotated with a dataclass.
    """
    signature = inspect.signature(body, eval_str=True)
    kinds: dict[str, Any] = {}
    shown: list[tuple[str, Any, Any]] = []
    for name, parameter in list(signature.parameters.items())[1:]:
        if is_dataclass(kind := parameter.annotation):
            kinds[name] = kind
            hints = get_type_hints(kind, include_extras=True)
            for each in fields(kind):
                option = _declared(each.name, hints[each.name], each.default, kind)
                shown.append((each.name, each.default, option))
        else:
            default = parameter.default
            shown.append((name, default, _declared(name, kind, default, body)))
    shown += [(name, False, option) for name, option in COMMON.items()]
    parameters = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, default, annotation in shown
    ]
    return signature.replace(parameters=parameters), kinds


def _declared(name: str, hint: Any, default: Any, owner: Any) -> Any:
    """The annotation of a parameter or field as the parser takes it."""
    if hint is typer.Context:
        return hint
    kind, declared = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
    if declared is not None and not isinstance(declared, Option):
        return hint
    words = _words(name, owner)
    if words.is_argument:
        argument = typer.Argument(help=words.help, metavar=words.value or None)
        return Annotated[kind, argument]
    if declared is not None:
        words = Words(False, "", declared.metavar or "", declared.default or "", declared.help)
        kind = declared.type or kind
    names = words.names or f"--{name}{f'/--no-{name}' if default is True else ''}"
    info = typer.Option(
        *names.replace("_", "-").split(", "),
        help=words.help,
        metavar=words.value or None,
        show_default=words.default or True,
    )
    return Annotated[kind, info]


def _words(name: str, owner: Any) -> Words:
    """What is said of a parameter or field: by its owner, or of this name everywhere.

    `{name}` stands for the help of that name.
    """
    everywhere = described(options.__doc__)[1]
    said = [described(each.__doc__)[1] for each in getattr(owner, "__mro__", [owner])]
    own, *others = [words[name] for words in (*said, everywhere) if name in words] or [Words()]
    if not own.help and others:
        own = own._replace(help=others[0].help, value=own.value or others[0].value)
    text = re.sub(r"\{(\w+)\}", lambda found: everywhere[found.group(1)].help, own.help)
    return own._replace(help=text)


def _require_paths(arguments: dict[str, Any]) -> None:
    """Reject a URL where only a path is possible; pathlib would make a folder named `s3:` of it."""
    for value in arguments.values():
        for path in value if isinstance(value, list) else [value]:
            url = url_of_path(str(path)) if isinstance(path, Path) else None
            if url is not None:
                raise InputError(f"{url!r} is a URL; give a local file or folder here")


def _report_error(error: Exception, debug: bool, *, json: bool) -> int:
    """Print an error in one line, and return the exit code."""
    if debug:
        traceback.print_exception(error)
    message: str | None = None
    if isinstance(error, InputError):
        message = str(error)
    elif isinstance(error, OSError):
        message = _explain(error)
    if message is not None:
        _print_error(message, INPUT_ERROR, json=json)
        return INPUT_ERROR
    hint = "" if debug else " (please report it, with the output of --debug)"
    _print_error(f"unexpected {type(error).__name__}: {error}{hint}", INTERNAL_ERROR, json=json)
    return INTERNAL_ERROR


_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF}
_PATH_ERRORS = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR),
}


def _explain(error: OSError) -> str | None:
    """Explain an error of a path or of stdout, which are input errors; None for other errors."""
    if error.filename is not None and error.errno in _PATH_ERRORS:
        return f"cannot use {os.fsdecode(error.filename)!r}: {error.strerror}"
    if error.filename is None and error.errno in _WRITE_ERRORS:  # those of files have an advice
        discard(sys.stdout.fileno())  # or its rest would be written at exit, another error
        return f"cannot write to stdout: {error.strerror}"
    return None


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {printable(' '.join(str(message).split()))}", file=sys.stderr)


def _print_error(message: str, code: int, *, json: bool) -> None:
    """Print an error in one line, which a terminal breaks: text, or JSON with the exit code."""
    from rich.console import Console

    text = " ".join(message.splitlines())
    if json:
        lines = [json_text.dumps({"error": text, "code": code})]
    else:
        lines = paragraph_on(Console(stderr=True), f"oodzoo: {text}")
    print(*lines, sep="\n", file=sys.stderr)


def _wants_json() -> bool:
    """Whether `--json` was given; for errors before the options are parsed."""
    options = sys.argv[1:]
    return "--json" in (options[: options.index("--")] if "--" in options else options)


def main() -> None:
    """Run the command `oodzoo`."""
    warnings.filterwarnings("ignore", module="PIL")  # data.images checks the files itself
    warnings.showwarning = _show_warning
    _replace_closed_streams()
    Output.install()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for ASCII terminals
    try:
        code = _run()
        sys.stdout.flush()
    except OSError as error:  # of stdout: a command reports other errors itself
        code = _report_error(error, debug=False, json=_wants_json())
    sys.exit(code)


def _replace_closed_streams() -> None:
    """Exit if stdout is closed; open the null device in place of a closed stdin or stderr.

    Otherwise the next file that is opened would get the number of the closed stream.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stdout is None:
        text = "stdout is closed; redirect it to a file or to the null device"
        _print_error(text, INPUT_ERROR, json=_wants_json())
        sys.exit(INPUT_ERROR)


def _run() -> int:
    try:
        code = app(standalone_mode=False) or OK
        if code == INTERRUPTED and not isinstance(code, _Said):
            raise KeyboardInterrupt
        return int(code)
    except KeyboardInterrupt:  # before or after the command itself
        _print_error("interrupted", INTERRUPTED, json=_wants_json())
        return INTERRUPTED
    except Exception as error:
        # A usage error of the parser. Its class depends on the version of typer, but all of
        # them have `format_message`.
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else _command_given()
        if type(error).__name__ != "NoArgsIsHelpError":
            if message := _usage(error, context):
                _print_error(f"{message} (see {path} --help)", INPUT_ERROR, json=_wants_json())
            return INPUT_ERROR
        text = error.format_message()  # the whole help
    print(text)  # outside of `except`: an error of stdout has nothing to do with the other one
    return INPUT_ERROR


def _usage(error: Any, context: Any) -> str:
    """The message of a usage error, with similar names of commands or options."""
    message: str = error.format_message()
    if found := re.match(r"No such command '([^']*)'", message):
        name = found.group(1)
        commands = list(getattr(context.command, "commands", {}))
        meant = f"did you mean oodzoo --{name}?" if name in _AS_COMMANDS else ""
        return _no_such("command", name, meant or did_you_mean(name, commands))
    if found := re.match(r"No such option:? '?(-[^ ']+)'?", message):
        name = found.group(1)
        return _no_such("option", name, _meant_option(name, context))
    for pattern, plain in _PLAINER.items():
        message = re.sub(pattern, plain, message)
    return message[:1].lower() + message[1:].removesuffix(".")


_PLAINER = {
    r"(Input should be|'[^']*' is not) a valid integer.*": "it must be a whole number",
    r"(Input should be|'[^']*' is not) a valid (number|float).*": "it must be a number",
    r"Got unexpected extra argument(s|\(s\))? \((.*)\)": r"too many arguments: \2",
}
"""Messages of the parser, of any version, in plainer words."""


def _command_given() -> str:
    """The command with its name, for an error that does not know it."""
    words = sys.argv[1:2]
    names = {*(each.name for each in app.registered_commands), "store"}
    return " ".join(["oodzoo", *(word for word in words if word in names)])


_AS_COMMANDS = ("help", "version")
"""Options that some programs have as commands."""


def _no_such(kind: str, name: str, meant: str) -> str:
    return f"no such {kind} {name!r}" + (f"; {meant}" if meant else "")


def _meant_option(name: str, context: Any) -> str:
    """Suggest an option, compared without its dashes, which all of them have."""
    of_commands = {f"--{option}" for option in COMMON} | {"-v", "-q"}
    if context.parent is None and name in of_commands:
        return "write it after the command"
    known = {
        each.lstrip("-"): each
        for option in context.command.params
        for each in (*option.opts, *option.secondary_opts)
        if each.startswith("--")
    }
    near = difflib.get_close_matches(name.lstrip("-"), list(known), n=3, cutoff=_SIMILAR)
    return f"did you mean {' or '.join(known[each] for each in near)}?" if near else ""


_SIMILAR = 0.6
"""Similarity of options that are suggested for an unknown one."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"oodzoo {oodzoo.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    pass
