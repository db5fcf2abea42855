"""What a source lists: samples, where their bytes are, and issues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from oodzoo.core.errors import InputError
from oodzoo.core.text import count, one_line
from oodzoo.data.files import ImageFile
from oodzoo.tasks import CLASSIFICATION, Task

# fmt: off
SUFFIXES = frozenset({
    ".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff",
    ".webp",
})
# fmt: on


class Sample(NamedTuple):
    """One image: its path in the data set, which is unique there, domain, label and group.

    The label is the name of a class; a label of another kind is text, see
    :meth:`oodzoo.tasks.Task.encode`.
    """

    path: str
    domain: str
    label: str
    group: str | None = None


@dataclass(frozen=True)
class Issue:
    """A problem of a data set; as a string, one line.

    Attributes
    ----------
    kind : str
    message : str
        What the problem is, with the first examples.
    paths : tuple of str
        All images or folders concerned.
    advice : str
        What to do about it; empty if the message says it.
    """

    kind: str
    message: str
    paths: tuple[str, ...] = ()
    advice: str = ""

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.message, self.advice)))


@dataclass
class Listing:
    """The samples of a source, without their contents.

    Attributes
    ----------
    name : str
        What messages call the source: a path, a URL, or what kind of object it is.
    samples : list of Sample
    files : list of ImageFile
        Where the bytes of each sample are.
    issues : list of Issue
    root : Path, optional
        The local folder that the paths of the samples are relative to, where there is one.
    metadata : dict of str to list
        Further columns, one value for each sample; None where it is missing. Only if domains are
        to be proposed.
    task : Task
        What the labels are.
    """

    name: str
    samples: list[Sample] = field(default_factory=list)
    files: list[ImageFile] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    root: Path | None = None
    metadata: dict[str, list[str | None]] = field(default_factory=dict)
    task: Task = CLASSIFICATION

    def add(self, sample: Sample, file: ImageFile) -> None:
        self.samples.append(sample)
        self.files.append(file)

    def add_issue(self, kind: str, message: str, *paths: str) -> None:
        self.issues.append(Issue(kind, message, paths))

    def add_loose(self, name: str, n: int) -> None:
        """Note that images are beside the classes of a domain, if there are any."""
        if n:
            self.add_issue(
                "no class", f"{name!r} has {count(n, 'image')} outside any class folder; ignored"
            )


def task_line(task: Task) -> bytes:
    """What a fingerprint of samples begins with: nothing for classes."""
    if task.is_classification:
        return b""
    return json.dumps([task.kind, *task.outputs], ensure_ascii=True).encode() + b"\n"


def labels_of(task: Task, text: str) -> list[str]:
    """Return the names in `classes` that a sample has: its class, its labels, or all numbers."""
    if task.is_classification:
        return [text]
    if task.kind == "regression":
        return list(task.outputs)
    names: list[str] = json.loads(text)
    return names


def counted_outputs(task: Task, n: int) -> str:
    """Return how many classes, numbers or labels there are, in words."""
    if task.is_classification:
        return count(n, "class", "classes")
    return count(n, "number" if task.kind == "regression" else "label")


def shown_label(task: Task, text: str) -> str:
    """Return the label of a sample as a person reads it.

    Examples
    --------
    >>> shown_label(Task("multilabel", ("cat", "dog")), '["cat", "dog"]')
    'cat, dog'
    >>> shown_label(Task("regression", ("age", "height")), "61.54321 1.8")
    '61.5, 1.8'
    """
    if task.is_classification:
        return text
    [values] = task.decode([text])
    if task.kind == "regression":
        return ", ".join(f"{value:.3g}" for value in values)
    names = [name for name, value in zip(task.outputs, values, strict=True) if value]
    return ", ".join(names) or "no label"


@contextmanager
def explaining_errors(source: str | Path) -> Iterator[None]:
    """Turn an OSError while listing a source into an InputError."""
    try:
        yield
    except OSError as error:
        path = str(error.filename or source)
        raise InputError(f"cannot read {path!r}: {error.strerror or one_line(error)}") from error
