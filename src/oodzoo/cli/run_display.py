"""What `oodzoo run` and `oodzoo demo` print: progress, and the result of each stage."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodzoo._text import count, duration
from oodzoo.cli.data import counted, images_used, show_counts
from oodzoo.cli.evaluate import show_evaluation, show_main_rows
from oodzoo.cli.extract import extraction_progress, show_summary
from oodzoo.cli.leaks import show_near_duplicates, show_problems
from oodzoo.cli.listening import listening
from oodzoo.cli.rank import show_ranking, show_top
from oodzoo.cli.reading import read_images
from oodzoo.cli.select import kept_features, show_selection
from oodzoo.cli.terminal import Terminal
from oodzoo.cli.testbed_tables import show_bed, show_best_score
from oodzoo.cli.verdict import aligned, next_steps, verdict
from oodzoo.errors import InputError
from oodzoo.events import Events, Listener

if TYPE_CHECKING:
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.data.unlabelled import UnlabelledImages
    from oodzoo.pipeline import RunConfig
    from oodzoo.zoo import ModelSpec


def run_and_show(
    terminal: Terminal,
    dataset: ImageDomains,
    zoo: Sequence[ModelSpec],
    out: Path,
    config: RunConfig,
    target: UnlabelledImages | None = None,
    others: Sequence[Listener] = (),
    more_steps: Sequence[tuple[str, str]] = (),
) -> None:
    """Run the whole pipeline, show what each stage finds, and end with the verdict.

    `more_steps` are what else to do next, each with a command.
    """
    from oodzoo.pipeline import run as run_pipeline

    if terminal.verbose:
        show_counts(terminal, dataset)
    else:
        terminal.line(counted(dataset))
    read_images(terminal, dataset, dataset.name)
    for issue in [*dataset.similar_classes(), *dataset.leaks()]:
        terminal.warn(str(issue))
    with ExitStack() as bars:
        listener = [_Shown(terminal, bars, out, len(zoo), dataset), *others]
        typed = _typed(sys.argv[1:], out, zoo)
        result = run_pipeline(
            dataset, zoo, out, target=target, config=config, listener=listener, command=typed
        )
    terminal.line("")
    for line in verdict(result, terminal.prose_width):
        terminal.line(line)
    terminal.say("Next:")
    texts = dataset.modality == "text"
    for line in aligned([*next_steps(result, out, zoo, texts=texts), *more_steps]):
        terminal.say(line)
    terminal.document({**result.to_dict(), "report": str(out / "report.html")})


def require_outside(out: Path, given: dict[str, Path | None]) -> None:
    """Reject other files in the folder of the run, which would then not be taken for a run."""
    for option, path in given.items():
        if path is not None and path.resolve().is_relative_to(out.resolve()):
            raise InputError(
                f"{option} {str(path)!r} is inside the folder of the run, {str(out)!r}; choose "
                "another place"
            )


def _typed(arguments: Sequence[str], out: Path, zoo: Sequence[ModelSpec]) -> str:
    """The command line for the record: files and folders without the folders above them."""
    from oodzoo.zoo import ModelSpec
    from oodzoo.zoo.spec import portable_source
    from oodzoo.zoo.zoos import is_pattern

    shared = ["oodzoo"]
    for argument in arguments:
        value = _without_folders(argument, out)
        parts = [part.strip() for part in re.split("[,=]", argument)]
        patterns = [ModelSpec("", part) for part in parts if is_pattern(part)]
        for spec in (*zoo, *patterns):
            value = value.replace(spec.source, portable_source(spec))
        shared.append(value)
    return shlex.join(shared)


def _without_folders(argument: str, out: Path) -> str:
    """An argument `PATH`, `--option=PATH` or `NAME=PATH` without the folders above the path.

    Of a URI, only the scheme stays: it may have a password.
    """
    if uri := re.match(r"[a-z][a-z0-9+.-]*://", argument):
        return f"{uri.group()}…"
    path = Path(argument)
    exists = os.path.exists(path)  # noqa: PTH110 - Path.exists raises on a name too long
    if exists or path == out or path.is_absolute():
        return path.name or argument
    name, equals, rest = argument.partition("=")
    return name + equals + _without_folders(rest, out) if equals else argument


class _Shown(Listener):
    """Shows a progress bar of each stage and, when it ends, its result."""

    def __init__(
        self, terminal: Terminal, bars: ExitStack, out: Path, n_models: int, dataset: ImageDomains
    ) -> None:
        self._terminal = terminal
        self._bars = bars
        self._out = out
        self._dataset = dataset
        self._titles = dict(_TITLES, extraction=f"Extract features of {count(n_models, 'model')}")
        self._number = 0
        self._inner = Listener()

    def start(self, stage: str, **facts: Any) -> None:
        if stage == "run":
            return
        self._number += 1
        self._terminal.say(f"{self._number}. {self._titles[stage]}")
        if stage == "extraction":
            if facts:
                self._inner = self._bars.enter_context(extraction_progress(self._terminal))
        else:
            bar = listening(self._terminal, _NAMES[stage])
            self._inner = Events(self._bars.enter_context(bar))
        self._inner.start(stage, **facts)

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        self._inner.progress(stage, done, total, **facts)

    def end(self, stage: str, **facts: Any) -> None:
        from oodzoo.combination.verdict import shown_choice

        self._bars.close()
        self._inner = Listener()
        status = facts["status"]
        if status == "skipped":
            self._terminal.warn(f"{_NAMES[stage].lower()} skipped: {facts['reason']}")
        if status == "reused":
            self._terminal.say("   reused from an earlier run: nothing has changed")
        if stage == "run" or status not in ("done", "reused"):
            return
        if status == "done":
            self._terminal.detail(f"   {duration(facts['seconds'])}")
        result = facts["result"]
        if stage == "predictor":
            models = ", ".join(result.models)
            choice = shown_choice(result.choice, result.models)
            self._terminal.line(f"{self._out / result.folder}: {choice} of {models}")
        elif self._terminal.verbose:
            _SHOW_ALL[stage](self._terminal, result)
        else:
            _SHOW[stage](self._terminal, result, self._out / "store")
        if stage == "extraction" and (text := images_used(self._dataset, result.images)):
            self._terminal.line(text)


_TITLES = {
    "leaks": "Compare the images (near-duplicates)",
    "ranking": "Rank the models (leave-one-domain-out)",
    "selection": "Select features of all models",
    "evaluation": "Evaluate (leave-one-domain-out)",
    "predictor": "Fit a predictor on all domains",
    "testbed": "Test bed: how well each score orders these models",
}
_NAMES = {
    "extraction": "Extraction",
    "leaks": "Near-duplicates",
    "ranking": "Ranking",
    "selection": "Selection",
    "evaluation": "Evaluation",
    "predictor": "Predictor",
    "testbed": "Test bed",
}


_SHOW_ALL: dict[str, Callable[[Terminal, Any], None]] = {
    "extraction": show_summary,
    "leaks": show_near_duplicates,
    "ranking": show_ranking,
    "selection": show_selection,
    "evaluation": show_evaluation,
    "testbed": show_bed,
}
"""What `--verbose` shows of each stage."""


_SHOW: dict[str, Callable[[Terminal, Any, Path], None]] = {
    "extraction": lambda terminal, found, _: show_summary(terminal, found),
    "leaks": lambda terminal, found, _: show_problems(
        terminal, found, "The pairs are in the report; oodzoo data DATA --store STORE lists them."
    ),
    "ranking": show_top,
    "selection": lambda terminal, found, _: terminal.line(kept_features(found)),
    "evaluation": lambda terminal, found, _: show_main_rows(terminal, found),
    "testbed": show_best_score,
}
"""What is shown of each stage, in a few lines; the last argument is the store."""
