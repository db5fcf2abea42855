"""Help texts: options in panels of one subject, whole sentences, flags as flags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand, TyperGroup

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
        *("device", "engine", "address", "precision", "dtype", "batch_size", "shard", "seed"),
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

_VALUE_OF = {
    **dict.fromkeys(("batch_size", "max_parameters"), "N"),
    **dict.fromkeys(("licence", "models", "peers"), "NAME,…"),
    **dict.fromkeys(("score", "search_space", "text_column"), "NAME"),
    **dict.fromkeys(("choose", "method", "protocol", "on_error", "stability"), "HOW"),
    **dict.fromkeys(("out", "root"), "PATH"),
    "max_ms": "MS",
}
"""What stands for the value of these options."""


def _value(parameter: Any, shown: str = "") -> str:
    """What stands for the value of a parameter: its metavar, or of a text the name in capitals."""
    kind = shown.rpartition(" ")[2].strip("<>").lower()
    name = str(parameter.name)
    return str(parameter.metavar or _VALUE_OF.get(name) or _VALUES.get(kind, name.upper()))


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
