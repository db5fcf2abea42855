"""The labels of test data in the order of a predictor's classes, numbers or labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo._text import did_you_mean
from oodzoo.errors import InputError
from oodzoo.task import Task


class Truth(NamedTuple):
    """True labels.

    Attributes
    ----------
    names : tuple of str
        The classes, numbers or labels of the predictor; classes that it does not know follow.
    values : array
        Positions of classes (n,), numbers (n, C), or zeros and ones (n, C).
    unknown : dict of str to int
        Number of samples of each class or label that the predictor does not know.
    absent : tuple of str
        Its classes or labels that no sample has.
    """

    names: tuple[str, ...]
    values: NDArray[Any]
    unknown: dict[str, int]
    absent: tuple[str, ...]


def truth_of(predicted: Task, known: Sequence[str], task: Task, texts: Sequence[str], source: str
) -> Truth:  # fmt: skip
    """Read the labels of samples for a predictor.

    Parameters
    ----------
    predicted : Task
        What the predictor predicts.
    known : sequence of str
        Its classes, numbers or labels.
    task : Task
        What the labels are.
    texts : sequence of str
        The label of each sample, as text.
    source : str
        What messages call the data.

    Raises
    ------
    InputError
        If the labels are of another kind, or none is known; or if a number is missing.
    """
    if task.kind != predicted.kind:
        raise InputError(
            f"{source!r} has labels for {task.kind!r}, but the predictor is for {predicted.kind!r}"
        )
    read = {"classification": _classes, "regression": _numbers, "multilabel": _labels}[task.kind]
    return read(tuple(known), task, texts, source)


def _classes(known: tuple[str, ...], _: Task, texts: Sequence[str], source: str) -> Truth:
    counts = Counter(texts)
    unknown = {name: counts[name] for name in sorted(counts) if name not in known}
    if len(unknown) == len(counts):
        raise _none_known("class", known, unknown, source)
    names = (*known, *unknown)
    position = {name: at for at, name in enumerate(names)}
    absent = tuple(name for name in known if name not in counts)
    return Truth(names, np.array([position[text] for text in texts], np.int64), unknown, absent)


def _numbers(known: tuple[str, ...], task: Task, texts: Sequence[str], source: str) -> Truth:
    values, given = task.decode(texts), task.outputs
    if len(known) == len(given) == 1:  # the name of the column does not matter
        return Truth(known, values, {}, ())
    if missing := [name for name in known if name not in given]:
        raise InputError(
            f"{source!r} has no number {missing[0]!r}, which the predictor predicts; it has "
            f"{', '.join(map(repr, given))}: name the columns with --columns label="
            f"{'+'.join(known)} (columns= in Python)"
        )
    return Truth(known, values[:, [given.index(name) for name in known]], {}, ())


def _labels(known: tuple[str, ...], task: Task, texts: Sequence[str], source: str) -> Truth:
    given = task.decode(texts)
    counts = dict(zip(task.outputs, given.sum(axis=0).astype(int).tolist(), strict=True))
    unknown = {name: n for name, n in counts.items() if name not in known and n}
    if not any(counts.get(name) for name in known):
        raise _none_known("label", known, unknown, source)
    values = np.zeros((len(texts), len(known)))
    for at, name in enumerate(known):
        if name in counts:
            values[:, at] = given[:, task.outputs.index(name)]
    return Truth(known, values, unknown, tuple(name for name in known if not counts.get(name)))


def _none_known(
    what: str, known: tuple[str, ...], unknown: dict[str, int], source: str
) -> InputError:
    plural = "classes" if what == "class" else "labels"
    if not unknown:
        return InputError(f"no sample of {source!r} has a label; give labelled data")
    first = next(iter(unknown))
    hint = did_you_mean(first, known)
    return InputError(
        f"none of the {plural} of {source!r} is one of the predictor: got "
        f"{', '.join(map(repr, list(unknown)[:3]))}, it has {', '.join(map(repr, known[:5]))}"
        + (f"; {hint}" if hint else f"; rename the {plural}, or give data with those")
    )
