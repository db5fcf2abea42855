"""Which pairs of images are compared, so that the time is bounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodzoo.errors import InputError

Rows = NDArray[np.intp]

BUDGET = 1e12
"""Multiplications of a search that chooses its pairs itself; about a minute on two cores."""

SCOPES = ("auto", "all", "class")


@dataclass(frozen=True)
class Task:
    """Images to compare: all of `rows` with each other, or with `columns`, which are others."""

    rows: Rows
    columns: Rows | None = None

    @property
    def pairs(self) -> float:
        n = len(self.rows)
        return n * (n - 1) / 2 if self.columns is None else n * len(self.columns)


@dataclass(frozen=True)
class Plan:
    """The pairs to compare; see :class:`~oodzoo.leaks.pairs.NearDuplicates` for `scope`."""

    tasks: list[Task]
    scope: str

    @property
    def pairs(self) -> float:
        return sum(task.pairs for task in self.tasks)


def plan_pairs(
    labels: NDArray[np.integer], width: int, scope: str = "auto", budget: float = BUDGET
) -> Plan:
    """Choose the pairs of images to compare.

    Parameters
    ----------
    labels : array of int, shape (n,)
        The class of each image; -1 for an image without a label.
    width : int
        Number of features that are compared.
    scope : {"auto", "all", "class"}
        All pairs; or those of one class and those with an image without a label. By default all
        pairs if they take at most `budget` multiplications, else those of a class, as many of
        them as the budget allows.
    budget : float
    """
    if scope not in SCOPES:
        raise InputError(f"unknown pairs to compare: {scope!r}; expected {', '.join(SCOPES)}")
    everything = Plan([Task(np.arange(len(labels)))], "all")
    if scope == "all" or (scope == "auto" and everything.pairs * width <= budget):
        return everything
    by_class = Plan(_class_tasks(labels), "class")
    if scope == "class" or by_class.pairs * width <= budget:
        return by_class
    return Plan(_part(by_class.tasks, budget / width), "part")


def _class_tasks(labels: NDArray[np.integer]) -> list[Task]:
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    tasks = [Task(group) for group in groups]
    unlabelled, labelled = np.flatnonzero(labels < 0), np.flatnonzero(labels >= 0)
    if len(unlabelled) and len(labelled):
        tasks.append(Task(unlabelled, labelled))
    return [task for task in tasks if task.pairs]


def _part(tasks: list[Task], most: float) -> list[Task]:
    """Return random tasks of at most so many pairs; the last one has a sample of its images."""
    rng = np.random.default_rng(0)
    part = []
    for at in rng.permutation(len(tasks)):
        task = tasks[at]
        if task.pairs > most:
            share = np.sqrt(most / task.pairs)
            columns = None if task.columns is None else _sample(task.columns, share, rng)
            part.append(Task(_sample(task.rows, share, rng), columns))
            break
        part.append(task)
        most -= task.pairs
    return part


def _sample(rows: Rows, share: float, rng: np.random.Generator) -> Rows:
    return np.sort(rng.choice(rows, int(len(rows) * share), replace=False))
