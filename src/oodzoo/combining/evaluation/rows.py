"""Rows of an evaluation: the measures of one combination on each held-out domain.

Of a classifier these are accuracies and calibration; other tasks have measures of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.io import structured
from oodzoo.core.tables import Table
from oodzoo.core.text import count, number, short_name, some_of
from oodzoo.tasks import Kind, task_of

Outputs = dict[str, dict[str, float]]
"""Measures of each output of a prediction, by its name and theirs."""


@dataclass(frozen=True)
class Cell:
    """Result on one held-out domain: measures of each trial, with the models used and their cost.

    Attributes
    ----------
    measures : tuple of Measures, NumberMeasures or LabelMeasures
        See :mod:`oodzoo.tasks`.
    models : tuple of str
    n_features : int
    milliseconds, parameters : float and int, optional
        Time per image and number of parameters, sums over the models; None if one is unknown.
    variance : float, optional
        Variance of the main metric that is due to the samples; None for an accuracy, whose variance
        is binomial. It is not in JSON documents.
    outputs : dict of str to dict of str to float
        Of several numbers or labels: the main metric of each in percent, and the absolute error of
        a number in its own unit, means over trials. A label that the domain lacks is left out.
    """

    measures: tuple[Any, ...]
    models: tuple[str, ...]
    n_features: int
    milliseconds: float | None = None
    parameters: int | None = None
    variance: float | None = field(default=None, compare=False)
    outputs: Outputs = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """Accuracy, or the main metric of another task, in percent: mean over trials."""
        return float(np.mean([each[0] for each in self.measures]))

    def __repr__(self) -> str:
        models, features = count(len(self.models), "model"), count(self.n_features, "feature")
        return f"Cell({self.accuracy:.1f} %: {models}, {features})"


@dataclass(frozen=True)
class Row:
    """Results of one method on all held-out domains.

    Attributes
    ----------
    cells : dict of str to Cell
        Result by held-out domain.
    """

    cells: dict[str, Cell]

    def __repr__(self) -> str:
        values = self.measure(self.metric)
        domains = some_of([f"{short_name(d, 20)} {value:.1f}" for d, value in values.items()], 6)
        return f"Row({self.metric} {self.average:.1f} %: {domains})"

    def _repr_html_(self) -> str:
        table = [
            [domain, number(cell.accuracy, 1), number(cell.n_features), some_of(cell.models)]
            for domain, cell in self.cells.items()
        ]
        metric = f"{self.metric.replace('_', ' ')}, %"
        return Table.of(
            ["held-out domain", metric, "features", "models"],
            table,
            caption=f"{number(self.average, 1)} % on average",
            left=("models",),
        ).html()

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of all measures, the main metric first."""
        fields: tuple[str, ...] = next(iter(self.cells.values())).measures[0]._fields
        return fields

    @property
    def metric(self) -> str:
        """The main metric: "accuracy", "explained_variance" or "average_precision"."""
        return self.measures[0]

    def measure(self, name: str) -> dict[str, float]:
        """Return the mean over trials of a measure by held-out domain.

        In percent, but for an absolute error, which is in the units of the labels.
        """
        return {d: float(values.mean()) for d, values in self._trials(name).items()}

    @property
    def outputs(self) -> Outputs:
        """Measures of each number or label, averaged over the held-out domains that have it.

        The main metric is in percent, the absolute error of a number in its own unit.
        """
        return {
            output: {name: mean_of(values) for name, values in measures.items()}
            for output, measures in self._outputs().items()
        }

    @property
    def average(self) -> float:
        """The main metric in percent, mean over held-out domains."""
        return mean_of(self.measure(self.metric))

    @property
    def error(self) -> dict[str, Any] | None:
        """Standard error of the main metric over trials, computed as in DomainBed."""
        trials = self._trials(self.metric)
        number = len(next(iter(trials.values())))
        if number == 1:
            return None
        averages = np.mean(list(trials.values()), axis=0)
        return {
            "average": float(averages.std() / math.sqrt(number)),
            "domains": {d: float(v.std() / math.sqrt(number)) for d, v in trials.items()},
        }

    def exceeds(self, max_models: int | None, max_ms: float | None) -> bool:
        """Whether it is beyond these limits for a held-out domain; an unknown time is."""
        return any(
            (max_models is not None and len(cell.models) > max_models)
            or (max_ms is not None and (cell.milliseconds is None or cell.milliseconds > max_ms))
            for cell in self.cells.values()
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert the row to a JSON document; `average` and `domains` are of the main metric."""
        main, *others = self.measures
        document = {
            **averaged(self.measure(main)),
            **{name: averaged(self.measure(name)) for name in others},
            "error": self.error,
            "models": {d: list(cell.models) for d, cell in self.cells.items()},
            "n_features": {d: cell.n_features for d, cell in self.cells.items()},
            "milliseconds": {d: cell.milliseconds for d, cell in self.cells.items()},
            "parameters": {d: cell.parameters for d, cell in self.cells.items()},
            "trials": {d: [list(m) for m in cell.measures] for d, cell in self.cells.items()},
        }
        if outputs := self._outputs():
            document["outputs"] = {
                output: {name: averaged(values) for name, values in measures.items()}
                for output, measures in outputs.items()
            }
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], task: Kind = "classification") -> Row:
        """Restore a row from :meth:`to_dict`."""
        cells = {}
        for domain, trials in document["trials"].items():
            cells[domain] = Cell(
                tuple(
                    structured(each, task_of(task).measures, "the evaluation") for each in trials
                ),
                tuple(document["models"][domain]),
                document["n_features"][domain],
                document.get("milliseconds", {}).get(domain),
                document.get("parameters", {}).get(domain),
            )
        for output, measures in document.get("outputs", {}).items():
            for name, each in measures.items():
                for domain, value in each["domains"].items():
                    cells[domain].outputs.setdefault(output, {})[name] = value
        return cls(cells)

    def _outputs(self) -> dict[str, dict[str, dict[str, float]]]:
        """The measures of each output on each held-out domain."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for domain, cell in self.cells.items():
            for output, measures in cell.outputs.items():
                for name, value in measures.items():
                    found.setdefault(output, {}).setdefault(name, {})[domain] = value
        return found

    def _trials(self, name: str) -> dict[str, NDArray[np.float64]]:
        return {
            d: np.array([getattr(each, name) for each in cell.measures])
            for d, cell in self.cells.items()
        }


@dataclass(frozen=True)
class TunedFacts:
    """How a model was fine-tuned without a held-out domain.

    Attributes
    ----------
    choice : str
        The weights that were chosen, see :mod:`oodzoo.tuning.tuner`.
    learning_rate : float
    linear_head : float
        Main metric in percent of the linear head that the training starts from.
    seconds : float
        Time of all runs that this needed; runs without a pair of domains serve both of them.
    device : str
    """

    choice: str
    learning_rate: float
    linear_head: float
    seconds: float
    device: str


@dataclass(frozen=True)
class Gain:
    """Gain of fine-tuning over what is recommended otherwise, in points of the main metric.

    Attributes
    ----------
    over : str
        What is recommended otherwise.
    average, error : float
        Mean over the held-out domains, and its standard error between them.
    over_head : float
        Mean gain over the linear head that the training starts from.
    """

    over: str
    average: float
    error: float
    over_head: float


@dataclass(frozen=True)
class Tuning:
    """How models were fine-tuned without each held-out domain, and whether that pays.

    Attributes
    ----------
    gain : Gain
    folds : dict of str to TunedFacts
        By held-out domain.
    """

    gain: Gain
    folds: dict[str, TunedFacts]

    @property
    def seconds(self) -> float:
        """Mean over the held-out domains."""
        return mean_of({domain: each.seconds for domain, each in self.folds.items()})

    @property
    def device(self) -> str:
        """The devices that were used."""
        return ", ".join(dict.fromkeys(each.device for each in self.folds.values()))


@dataclass(frozen=True)
class Aggregation:
    """Results of the best K models concatenated, with all and with selected features.

    Attributes
    ----------
    ensemble, selection : Row
    feature_ratio : dict of str to float
        Share of features selected, by held-out domain.
    """

    ensemble: Row
    selection: Row
    feature_ratio: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Convert the results to a JSON document."""
        return {
            "ensemble": self.ensemble.to_dict(),
            "selection": self.selection.to_dict(),
            "feature_ratio": averaged(self.feature_ratio),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], task: Kind = "classification") -> Aggregation:
        """Restore the results from :meth:`to_dict`."""
        return cls(
            Row.from_dict(document["ensemble"], task),
            Row.from_dict(document["selection"], task),
            dict(document["feature_ratio"]["domains"]),
        )


def mean_of(values: Mapping[str, float]) -> float:
    """Mean over domains."""
    return float(np.mean(list(values.values())))


def averaged(values: Mapping[str, float]) -> dict[str, Any]:
    """The mean over domains and the values of each, for JSON."""
    return {"average": mean_of(values), "domains": dict(values)}
