"""The kinds of task, and labels of each kind as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.text import count, did_you_mean

Kind = Literal["classification", "regression", "multilabel"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_METRICS: dict[Kind, tuple[str, str]] = {
    "classification": ("accuracy", "balanced_accuracy"),
    "regression": ("explained_variance", "absolute_error"),
    "multilabel": ("average_precision", "exact_match"),
}


@dataclass(frozen=True)
class Task:
    """What is predicted for each sample.

    Attributes
    ----------
    kind : {"classification", "regression", "multilabel"}
        One of several classes, one or more numbers, or any number of labels.
    outputs : tuple of str
        Names of the numbers or of the labels; empty for classification, whose classes are those of
        the samples.

    Examples
    --------
    >>> task = Task("multilabel", ("cat", "dog"))
    >>> task.encode(["dog", "cat"])
    '["cat", "dog"]'
    >>> task.decode(['["cat", "dog"]', "[]"]).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    >>> Task("regression", ("age", "height")).decode(["61.5 1.8"]).tolist()
    [[61.5, 1.8]]
    """

    kind: Kind = "classification"
    outputs: tuple[str, ...] = ()

    def __str__(self) -> str:
        outputs = ", ".join(map(repr, self.outputs))
        return self.kind + (f" ({outputs})" if outputs else "")

    @property
    def is_classification(self) -> bool:
        return self.kind == "classification"

    @property
    def metric(self) -> str:
        """Name of the main metric, see :mod:`oodzoo.tasks.metrics`."""
        return _METRICS[self.kind][0]

    @property
    def second_metric(self) -> str:
        return _METRICS[self.kind][1]

    def count_outputs(self, n: int) -> str:
        """Count the classes, numbers or labels, in words.

        Examples
        --------
        >>> Task().count_outputs(3), Task("multilabel", ("cat",)).count_outputs(1)
        ('3 classes', '1 label')
        """
        if self.kind == "classification":
            return count(n, "class", "classes")
        return count(n, "number" if self.kind == "regression" else "label")

    def encode(self, label: Sequence[float] | Iterable[str]) -> str:
        """Write the numbers or the names of the labels of a sample as text."""
        if self.kind == "regression":
            return " ".join(repr(float(value)) for value in label)
        return json.dumps(sorted(str(name) for name in label), ensure_ascii=False)

    def decode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Read the texts of :meth:`encode` as a matrix (n, outputs) of numbers, or zeros and ones.

        Raises a ValueError for other texts.
        """
        values = np.zeros((len(texts), len(self.outputs)))
        if self.kind == "regression":
            for row, text in enumerate(texts):
                parts = text.split()
                if len(parts) != len(self.outputs):  # NumPy would repeat a single one
                    raise ValueError(f"{text!r} does not have a number for each of {self.outputs}")
                values[row] = [float(part) for part in parts]
            if not np.isfinite(values).all():
                raise ValueError("the labels are not finite")
            return values
        columns = {name: column for column, name in enumerate(self.outputs)}
        for row, text in enumerate(texts):
            names = json.loads(text)
            if not isinstance(names, list) or not all(name in columns for name in names):
                raise ValueError(f"{text!r} is not a list of some of {list(self.outputs)}")
            values[row, [columns[name] for name in names]] = 1
        return values


CLASSIFICATION = Task()


def require_kind(kind: str) -> Kind:
    """Return the kind of task; reject an unknown one."""
    for known in KINDS:
        if kind == known:
            return known
    hint = did_you_mean(kind, KINDS) or f"expected one of {', '.join(KINDS)}"
    raise InputError(f"unknown task {kind!r}; {hint}")
