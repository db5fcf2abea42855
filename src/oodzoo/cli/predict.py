"""`oodzoo predict`: predictions for images, texts or features."""

from __future__ import annotations

import json as json_text
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from oodzoo.cli.app import FILES_COMPLETE, command
from oodzoo.cli.predict_inputs import Batch, Inputs, together
from oodzoo.cli.prediction_formats import FORMS, Wanted, Write, fields, writer
from oodzoo.cli.terminal import Output, Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.text import count

if TYPE_CHECKING:
    from oodzoo.predictor import Prediction, Predictor
    from oodzoo.predictor.filing import Sorter
    from oodzoo.predictor.prediction_sets import LeftOut, SetLevel
    from oodzoo.tasks import Task


_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".json": "json"}
_MOST = 5
"""Classes that are named."""


@command(
    "predict", example="oodzoo predict model/ photos/new/ --format csv", interrupted=FILES_COMPLETE
)
def predict(
    terminal: Terminal,
    model: str,
    images: list[str] | None = None,
    lists: list[str] | None = None,
    null: bool = False,
    format: str | None = None,  # noqa: A002 - the name of the option
    out: Path | None = None,
    top: int | None = None,
    min_confidence: float | None = None,
    coverage: float | None = None,
    sort_into: Path | None = None,
    link: str | None = None,
    adapt: bool = False,
    strict: bool = False,
    text_column: str = "text",
    device: str = "auto",
    batch_size: int | None = None,
) -> None:
    """Predict images, texts or features, and warn about those unlike the training samples.

    Arguments
    ---------
    images : INPUT
        Images, folders of them, or URLs; - for a list of those on stdin; texts in one .csv,
        .parquet or .txt file; or features in one .npz, .parquet or .csv file, or .npy files, as
        oodzoo import reads them.

    Options
    -------
    lists (--list) : FILE
        File with a path or URL of an image or folder in each line; may be repeated.
    null (--null, -0)
        Lines of lists end with a NUL (find -print0).
    format
        Output format: table, jsonl or csv.
    out : FILE
        File to write; its suffix sets the format.
    top : N
        Write the N most probable classes, instead of all.
    min_confidence : P
        Give no label if its probability is below P (0 to 1).
    coverage : P
        Also write sets of classes that contain the right one with this probability, as measured
        on held-out domains: 0.8, 0.9 or 0.95; intervals, for numbers.
    sort_into : FOLDER
        Copy images into a folder for each class; those without a label into _unsure.
    link : KIND
        With --sort-into: hard or soft links, not copies.
    adapt
        Adapt to these images first: at least 20 images of one domain, without labels.
    strict
        Stop with an error at the first file that cannot be read.
    text_column : NAME
        Column of the texts in a .csv or .parquet file.
    """
    from oodzoo.predictor import load
    from oodzoo.predictor.filing import Sorter
    from oodzoo.predictor.prediction import require_sets
    from oodzoo.predictor.prediction_sets import caveat, sets_text

    form = _format(format, out, terminal)
    if link is not None and sort_into is None:
        raise InputError(f"--link {link} is for --sort-into; leave it out")
    inputs = Inputs(images or [], lists or [], null=null, text_column=text_column)
    _require_not_read(out, inputs.paths)
    predictor = load(model, device=device, batch_size=batch_size)
    noun, classes = inputs.noun(predictor), [str(each) for each in predictor.classes_.tolist()]
    task = predictor.task
    sets = None if coverage is None else require_sets(task, predictor.left_out, coverage)
    sorter = None
    if sort_into is not None:
        _require_sortable(predictor, noun)
        sorter = Sorter(sort_into, predictor.classes_.tolist(), link)
        form = form if format is not None or out is not None or terminal.json else "counts"
    _require_top(top, task)
    wanted = Wanted(task, classes, noun, top, min_confidence is not None, sets is not None)
    if inputs.waits_for_terminal:
        terminal.say(f"reading {noun}s from the terminal, one per line; end with Ctrl-D")
    job = _Job(terminal, wanted, form, sorter, strict=strict)
    batches = inputs.batches(predictor, sorter)
    is_shown = out is not None or form in (None, "counts") or _goes_to_a_file()
    bar = terminal.progress("predicting") if is_shown else nullcontext()
    with _opened(out) as stream, bar as progress:
        for batch in together(batches) if adapt else batches:
            job.expect(batch)
            _require_not_read(out, batch.paths)
            found = predictor.stream(
                batch.samples, adapt=adapt, min_confidence=min_confidence, coverage=coverage
            )
            for each in found if batch.n else ():
                job.take(each, batch, stream)
                if progress is not None:
                    progress(job.done, job.expected)
            job.skip(batch, batch.n, stream)
        job.require_any(inputs)
        document = _document(job, sets, adapt=adapt, abstains=min_confidence is not None)
        if form == "json":
            json_text.dump(document, stream, indent=1, allow_nan=False)
            stream.write("\n")
    summary = job.summary
    if adapt:
        terminal.say(f"adapted to {count(summary.n, noun)}, without labels")
    lost = f"; {len(job.unreadable):,} could not be read" if job.unreadable else ""
    terminal.say(summary.text() + lost)
    provenance = predictor.provenance
    but = caveat(provenance.choice, adapted=adapt or provenance.adapted is not None)
    if min_confidence is not None:
        terminal.say(summary.abstained_text(min_confidence, predictor.left_out, but))
    if sets is not None:
        terminal.say(sets_text(sets, classes) + but)
    if summary.far:
        terminal.warn(summary.far_text())
    if sorter is not None:
        terminal.say(sorted_text(sorter))
        if form == "counts":
            terminal.table(["folder", "images"], sorted(sorter.counts.items()))
    terminal.document(document)


def _document(job: _Job, sets: SetLevel | None, *, adapt: bool, abstains: bool) -> dict[str, Any]:
    """All predictions as one JSON document."""
    document: dict[str, Any] = {
        "predictions": job.predicted,
        "unreadable": job.unreadable,
        "adapted": job.summary.n if adapt else None,
    }
    if abstains:
        document["abstained"] = job.summary.abstained
    if sets is not None:
        document["coverage"] = sets_document(sets)
    if job.sorter is not None:
        document["sorted"] = {
            "folder": str(job.sorter.folder),
            "images": dict(sorted(job.sorter.counts.items())),
            "already_there": job.sorter.left,
            "unlike_training": job.far,
        }
    return document


class _Job:
    """Writes, sorts and counts predictions."""

    def __init__(
        self,
        terminal: Terminal,
        wanted: Wanted,
        form: str | None,
        sorter: Sorter | None,
        *,
        strict: bool,
    ) -> None:
        self.summary = Summary(wanted.noun)
        self.predicted: list[dict[str, Any]] = []  # only for one JSON document
        self.unreadable: list[dict[str, Any]] = []
        self.far: list[str] = []
        self.done = self.expected = 0
        self._terminal, self._wanted = terminal, wanted
        self._form, self.sorter, self._strict = form, sorter, strict
        self._write: Write | None = None

    def expect(self, batch: Batch) -> None:
        """Count samples that follow."""
        self.expected += batch.n

    def skip(self, batch: Batch, position: int, stream: TextIO) -> None:
        """Report the lines before a sample that name no image."""
        for each in batch.skipped.get(position, ()):
            line = (each.list, each.line.number)
            self._fail(
                f"{_line_of(*line)}: {each.reason}", each.line.text, each.reason, line, stream
            )

    def take(self, found: Any, batch: Batch, stream: TextIO) -> None:
        """Write a prediction, or report that there is none."""
        from oodzoo.predictor.prediction import Unreadable

        self.skip(batch, found.position, stream)
        self.done += 1
        if batch.names is not None:
            found = replace(found, path=batch.names[found.position])
        if isinstance(found, Unreadable):
            line = None if batch.lines is None else batch.lines[found.position]
            named = "" if line is None else f" ({_line_of(*line)})"
            message = f"cannot read {found.path!r}{named}: {found.reason}"
            self._fail(message, found.path, found.reason, line, stream)
            return
        self.summary.add(found)
        if self._form in (None, "json"):
            self.predicted.append(fields(found, self._wanted))
        self._put(found, stream)
        if self.sorter is not None:
            place = self.sorter.add(batch.samples[found.position], found.label)
            if found.out_of_domain:
                self.far.append(str(found.path))
                self._terminal.warn(
                    f"{str(found.path)!r} is unlike the training images; it is in "
                    f"{str(place)!r} all the same"
                )

    def require_any(self, inputs: Inputs) -> None:
        """Raise an InputError if there is no prediction."""

        noun = self._wanted.noun
        if self.summary.n:
            return
        if not self.unreadable:
            raise InputError(f"{inputs.listed_names} has no lines: there is no {noun} to predict")
        path, reason = repr(self.unreadable[0]["path"]), self.unreadable[0]["error"]
        first = reason if path in reason else f"{path}: {reason}"
        raise InputError(f"none of the {noun}s can be read; first error: {first}")

    def _put(self, found: Prediction | dict[str, Any], stream: TextIO) -> None:
        """Write a row, if rows are wanted; the first one after the header."""
        if self._form in (None, "json", "counts"):
            return
        self._write = self._write or writer(self._form, stream, self._wanted)
        self._write(found)
        stream.flush()
        if stream is sys.stdout and 1 in Output.unread and self.sorter is None:
            raise typer.Exit  # nobody reads the lines, and there is nothing else to do

    def _fail(
        self,
        message: str,
        path: str | None,
        error: str,
        line: tuple[str, int] | None,
        stream: TextIO,
    ) -> None:
        """Report that there is no prediction; `line` is that of a list."""

        if self._strict:
            raise InputError(f"{message}; leave out --strict to predict the others")
        self._terminal.warn(message)
        entry: dict[str, Any] = {"path": path, "error": error}
        if line is not None:
            entry |= {"list": line[0], "line": line[1]}
        self.unreadable.append(entry)
        if self._form != "table":
            self._put(entry, stream)


def _line_of(name: str, number: int) -> str:
    """Where a line is; the list "stdin" is no file."""
    return f"line {number} of {name if name == 'stdin' else repr(name)}"


def _require_sortable(predictor: Predictor, noun: str) -> None:

    if noun != "image":
        raise InputError(
            f"only images can be sorted into folders, not {noun}s; leave out --sort-into"
        )
    if not predictor.task.one_class:
        raise InputError(
            "images are sorted by class, and the predictor predicts "
            f"{predictor.task.several_words}; leave out --sort-into"
        )


def _require_top(top: int | None, task: Task) -> None:

    if top is not None and top < 1:
        raise InputError(f"--top must be 1 or more, got {top}")
    if top is not None and not task.has_probabilities:
        raise InputError("the predictor predicts numbers, which have no classes; leave out --top")


def _format(wanted: str | None, out: Path | None, terminal: Terminal) -> str | None:
    """The format of the output; None for one JSON document on stdout, "json" for it in a file."""

    if terminal.json:
        if wanted is not None or out is not None:
            raise InputError("--json prints one JSON document; leave out --format and --out")
        return None
    if out is not None and out.is_dir():
        raise InputError(f"--out {str(out)!r} is a folder; name a file")
    if wanted is not None:
        if wanted not in FORMS:
            raise InputError(f"unknown format {wanted!r}; expected one of {', '.join(FORMS)}")
        return wanted
    if out is None:
        return "table"
    if out.suffix.lower() not in _SUFFIXES:
        raise InputError(
            f"--out {str(out)!r}: the suffix {out.suffix!r} sets no format; "
            f"use {' or '.join(_SUFFIXES)}, or give --format"
        )
    return _SUFFIXES[out.suffix.lower()]


def _require_not_read(out: Path | None, paths: Iterable[str]) -> None:
    """Raise an InputError if the file to write is one of those to read, which would be lost."""

    if out is None or not out.is_file():
        return
    for path in paths:
        with suppress(OSError):  # a file that is not there cannot be lost
            if out.samefile(path):
                raise InputError(
                    f"--out {str(out)!r} is one of the inputs, which it would replace; name "
                    "another file"
                )


def _goes_to_a_file() -> bool:
    """Whether stdout is a file: on a terminal, or in a pipe to one, lines would meet the bar."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:  # it has no number
        return False


@contextmanager
def _opened(output: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that gets its name when it is complete."""
    from oodzoo.core.io import explaining_disk_errors

    if output is None:
        yield sys.stdout
        return
    if output.exists() and not output.is_file():  # a pipe or a device
        with explaining_disk_errors(output), output.open("w", encoding="utf-8") as stream:
            yield stream
        return
    with _replacing(output) as stream:
        yield stream


@contextmanager
def _replacing(path: Path) -> Iterator[TextIO]:
    """Open a file that gets its name at the end of the block, if that is reached.

    Of several processes that write the same path, the last one to end wins, with a complete file.
    """
    from oodzoo.core.io import explaining_disk_errors, remove_stale, temporary_name

    with explaining_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_stale(path.parent)
        temporary = path.parent / temporary_name()
        try:
            with temporary.open("x", encoding="utf-8", errors="backslashreplace") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except BaseException:  # also KeyboardInterrupt
            temporary.unlink(missing_ok=True)
            raise


# --- what is said at the end --------------------------------------------------------------------


class Summary:
    """Counts of predictions."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self.n = self.far = self.abstained = self.members = 0
        self._labels: Counter[str] = Counter()

    def add(self, found: Prediction) -> None:
        """Count a prediction."""
        self.n += 1
        self.far += found.out_of_domain
        self.abstained += found.abstained
        self.members += len(found.set or ())
        labels = found.label if isinstance(found.label, tuple) else (found.label,)
        if found.probabilities is not None and not found.abstained:
            self._labels.update(map(str, labels))

    def text(self) -> str:
        """Number of samples, and of those of the most frequent classes."""
        ranked = self._labels.most_common()
        named = ", ".join(f"{label} ({n:,})" for label, n in ranked[:_MOST])
        if others := ranked[_MOST:]:
            n = sum(each for _, each in others)
            named += f" and {count(len(others), 'other class', 'other classes')} ({n:,})"
        return count(self.n, self.noun) + (f": {named}" if named else "")

    def far_text(self) -> str:
        """Samples unlike the training samples."""
        return (
            f"{self.far} of {count(self.n, self.noun)} {'is' if self.far == 1 else 'are'} unlike "
            f"the training {self.noun}s (distance above 1); their predictions are unreliable"
        )

    def abstained_text(self, confidence: float, left_out: LeftOut | None, but: str = "") -> str:
        """Samples without a label, and the accuracy of the others on held-out domains.

        `but` is added to what was measured.
        """
        have = "has" if self.abstained == 1 else "have"
        text = (
            f"{self.abstained:,} of {count(self.n, self.noun)} {have} no label: confidence below "
            f"{confidence:g}"
        )
        if left_out is None or not left_out.confidence:
            return f"{text}; what others gain was not measured for this predictor, fit again for it"
        point = left_out.at_confidence(confidence)
        at = f" at {point.confidence:g}" if point.confidence != confidence else ""
        if point.accuracy is None or point.worst is None:
            return f"{text}; on held-out domains, no {self.noun} had this confidence"
        return (
            f"{text}; on held-out domains{at}, {point.accuracy:.1f} % of the others were right "
            f"(worst domain {point.worst:.1f} %), and {100 - point.kept:.0f} % had no label"
            f"{but}"
        )


def sets_document(chosen: SetLevel) -> dict[str, Any]:
    """The same, for JSON."""
    domain, worst = chosen.worst
    return {
        "level": chosen.level,
        "average": chosen.average,
        "worst": worst,
        "worst_domain": domain,
        "size": chosen.size,
        "thresholds": list(chosen.thresholds),
    }


def sorted_text(sorter: Sorter) -> str:
    """Where images were sorted into."""
    n = sum(sorter.counts.values())
    left = f"; {sorter.left:,} of them were there already" if sorter.left else ""
    return f"sorted {count(n, 'image')} into {str(sorter.folder)!r}{left}"
