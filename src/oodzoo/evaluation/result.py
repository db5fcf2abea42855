"""Results of an evaluation: rows over test domains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo._io import structured
from oodzoo._packages import optional_package
from oodzoo._text import count
from oodzoo.combination.verdict import CHOICES
from oodzoo.evaluation.metrics import MEASURES, AnyMeasures
from oodzoo.task import Kind, Task, require_kind

if TYPE_CHECKING:
    import pandas


Outputs = dict[str, dict[str, float]]
"""Measures of each output of a prediction, by its name and theirs."""


@dataclass(frozen=True)
class Cell:
    """Result on one test domain: measures of each trial, with the models used and their cost.

    Attributes
    ----------
    measures : tuple of Measures, NumberMeasures or LabelMeasures
        See :mod:`oodzoo.evaluation.metrics`.
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

    measures: tuple[AnyMeasures, ...]
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


@dataclass(frozen=True)
class Row:
    """Results of one method on all test domains.

    Attributes
    ----------
    cells : dict of str to Cell
        Result by test domain.
    """

    cells: dict[str, Cell]

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of all measures, the main metric first."""
        return next(iter(self.cells.values())).measures[0]._fields

    @property
    def metric(self) -> str:
        """The main metric: "accuracy", "explained_variance" or "average_precision"."""
        return self.measures[0]

    def measure(self, name: str) -> dict[str, float]:
        """Return the mean over trials of a measure by test domain.

        In percent, but for an absolute error, which is in the units of the labels.
        """
        return {d: float(values.mean()) for d, values in self._trials(name).items()}

    @property
    def outputs(self) -> Outputs:
        """Measures of each of several numbers or labels, means over the test domains that have it.

        The main metric is in percent, the absolute error of a number in its own unit.
        """
        return {
            output: {name: _mean(values) for name, values in measures.items()}
            for output, measures in self._outputs().items()
        }

    @property
    def average(self) -> float:
        """The main metric in percent, mean over test domains."""
        return _mean(self.measure(self.metric))

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

    def to_dict(self) -> dict[str, Any]:
        """Convert the row to a JSON document; `average` and `domains` are of the main metric."""
        main, *others = self.measures
        document = {
            **_averaged(self.measure(main)),
            **{name: _averaged(self.measure(name)) for name in others},
            "error": self.error,
            "models": {d: list(cell.models) for d, cell in self.cells.items()},
            "n_features": {d: cell.n_features for d, cell in self.cells.items()},
            "milliseconds": {d: cell.milliseconds for d, cell in self.cells.items()},
            "parameters": {d: cell.parameters for d, cell in self.cells.items()},
            "trials": {d: [list(m) for m in cell.measures] for d, cell in self.cells.items()},
        }
        if outputs := self._outputs():
            document["outputs"] = {
                output: {name: _averaged(values) for name, values in measures.items()}
                for output, measures in outputs.items()
            }
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], task: Kind = "classification") -> Row:
        """Restore a row from :meth:`to_dict`."""
        cells = {}
        for domain, trials in document["trials"].items():
            cells[domain] = Cell(
                tuple(structured(each, MEASURES[task], "the evaluation") for each in trials),
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
        """The measures of each output on each test domain."""
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
class Aggregation:
    """Results of the best K models concatenated, with all and with selected features.

    Attributes
    ----------
    ensemble, selection : Row
    feature_ratio : dict of str to float
        Share of features selected, by test domain.
    """

    ensemble: Row
    selection: Row
    feature_ratio: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Convert the results to a JSON document."""
        return {
            "ensemble": self.ensemble.to_dict(),
            "selection": self.selection.to_dict(),
            "feature_ratio": _averaged(self.feature_ratio),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], task: Kind = "classification") -> Aggregation:
        """Restore the results from :meth:`to_dict`."""
        return cls(
            Row.from_dict(document["ensemble"], task),
            Row.from_dict(document["selection"], task),
            dict(document["feature_ratio"]["domains"]),
        )


@dataclass(frozen=True)
class Recommended:
    """The recommended way to combine the models, and its accuracy on unseen domains.

    For other tasks than classification, the main metric takes the place of the accuracy.

    Attributes
    ----------
    choice : str
        "single", "pool", "ensemble" or "selection": decided on all domains.
    models : tuple of str
        The models that it uses, those of a pool in the order of their shares.
    average : float
        Accuracy in percent, mean over the test domains. For each of them, the choice was made on
        the other domains only.
    interval : tuple of float, optional
        90 % interval for a single new domain.
    domains : dict of str to float
        Accuracy on each test domain.
    choices : dict of str to str
        What was chosen for each test domain.
    estimates : dict of str to float
        What decided: accuracy of each way on left-out domains, in percent. It is a comparison; the
        accuracy to expect is `average`.
    """

    choice: str
    models: tuple[str, ...]
    average: float
    interval: tuple[float, float] | None
    domains: dict[str, float]
    choices: dict[str, str]
    estimates: dict[str, float]

    def __post_init__(self) -> None:
        for choice in (self.choice, *self.choices.values()):
            if choice not in CHOICES:
                raise ValueError(f"a choice must be one of {', '.join(CHOICES)}, got {choice!r}")
        if self.choices.keys() != self.domains.keys():
            raise ValueError("the choices and the accuracies must be of the same domains")

    def to_dict(self) -> dict[str, Any]:
        """Convert to a JSON document."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


@dataclass(frozen=True)
class Evaluation:
    """Results of a leave-one-domain-out evaluation.

    Attributes
    ----------
    protocol, score : str
    top_k : int or dict of str to int
        Number of concatenated models; by test domain if it was chosen on the training domains.
    trials : int
    domains : tuple of str
        The test domains.
    recommended : Recommended
        What to use, and how accurate it is.
    single : Row
        The top model of the ranking.
    pool : Row
        A pool of heads (:mod:`oodzoo.combination.pool`).
    ensemble, selection : Row
        All features of the best K models, and the features selected from all models.
    feature_ratio : dict of str to float
        Share of features selected, by test domain.
    baselines : dict of str to Row
        ``random_features`` (as many as were selected, from all models; mean over draws),
        ``oracle`` (the single model that is most accurate on the test domain),
        ``paper_selection`` (the paper's selection, from the best K models),
        ``best_by_<score>`` (the top model under another score), ``zero_shot`` (the best zero-shot
        model on the training domains, if a model has class embeddings).
    with_target : dict of str to Row
        Rows for which the unlabelled images of each test domain were known: ``pool``.
    ablation : dict of int to Aggregation
        Results for each K, if several were evaluated.
    unseen : dict
        Classes or labels that occur in the test domain only; these classes are never predicted.
    task : {"classification", "regression", "multilabel"}
    """

    protocol: str
    score: str
    top_k: int | dict[str, int]
    trials: int
    domains: tuple[str, ...]
    recommended: Recommended
    single: Row
    pool: Row
    ensemble: Row
    selection: Row
    feature_ratio: dict[str, float]
    with_target: dict[str, Row] = field(default_factory=dict)
    baselines: dict[str, Row] = field(default_factory=dict)
    ablation: dict[int, Aggregation] = field(default_factory=dict)
    unseen: dict[str, tuple[str, ...]] = field(default_factory=dict)
    task: Kind = "classification"

    @property
    def metric(self) -> str:
        """The main metric: "accuracy", "explained_variance" or "average_precision"."""
        return Task(self.task).metric

    @property
    def rows(self) -> dict[str, Row]:
        """All rows, by name."""
        main = {name: getattr(self, name) for name in CHOICES}
        return (
            main
            | {f"{name}_with_target": row for name, row in self.with_target.items()}
            | (self.baselines)
        )

    @property
    def recommended_row(self) -> Row:
        """The results of what was chosen for each test domain."""
        rows, choices = self.rows, self.recommended.choices
        return Row({domain: rows[choices[domain]].cells[domain] for domain in self.domains})

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of several numbers or labels that are predicted; empty for one, and for classes."""
        return tuple(self.single.outputs)

    @property
    def oracle(self) -> Row | None:
        """The single model that is most accurate on each test domain; None without baselines."""
        return self.baselines.get("oracle")

    @property
    def metrics(self) -> dict[str, float]:
        """Main metric of each row in percent, on average and by domain, as a listener gets it."""
        main = self.metric
        found = {"recommended": _averaged(self.recommended.domains)}
        found |= {name: _averaged(row.measure(main)) for name, row in self.rows.items()}
        metrics = {f"{name}/{main}": each["average"] for name, each in found.items()}
        for name, each in found.items():
            by_domain = each["domains"].items()
            metrics |= {f"{name}/{main}_by_domain/{domain}": value for domain, value in by_domain}
        return metrics

    def to_dict(self) -> dict[str, Any]:
        """Convert the evaluation to a JSON document; metrics in percent, ratios from 0 to 1."""
        document: dict[str, Any] = {
            "task": self.task,
            "metric": self.metric,
            "protocol": self.protocol,
            "score": self.score,
            "top_k": self.top_k,
            "trials": self.trials,
            "domains": list(self.domains),
            "recommended": self.recommended.to_dict(),
            **{name: getattr(self, name).to_dict() for name in CHOICES},
            "feature_ratio": _averaged(self.feature_ratio),
            "with_target": {name: row.to_dict() for name, row in self.with_target.items()},
            **{name: row.to_dict() for name, row in self.baselines.items()},
            "baselines": list(self.baselines),
            "unseen": {domain: list(classes) for domain, classes in self.unseen.items()},
            "findings": self.findings(),
        }
        if self.ablation:
            document["ablation"] = [
                {"top_k": k} | each.to_dict() for k, each in self.ablation.items()
            ]
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Evaluation:
        """Restore an evaluation from :meth:`to_dict`."""
        task = require_kind(document.get("task", "classification"))
        return cls(
            protocol=document["protocol"],
            score=document["score"],
            top_k=document["top_k"],
            trials=document["trials"],
            domains=tuple(document["domains"]),
            recommended=structured(document["recommended"], Recommended, "the evaluation"),
            **{name: Row.from_dict(document[name], task) for name in CHOICES},
            feature_ratio=dict(document["feature_ratio"]["domains"]),
            with_target={n: Row.from_dict(r, task) for n, r in document["with_target"].items()},
            baselines={name: Row.from_dict(document[name], task) for name in document["baselines"]},
            ablation={
                each["top_k"]: Aggregation.from_dict(each, task)
                for each in document.get("ablation", ())
            },
            unseen={domain: tuple(classes) for domain, classes in document["unseen"].items()},
            task=task,
        )

    @property
    def caution(self) -> str:
        """Where what is recommended is worse than no model at all, in a sentence; empty if not."""
        worse = [name for name, value in self.recommended.domains.items() if value < 0]
        if self.task != "regression" or not worse:
            return ""
        where = "domain" if len(worse) == 1 else "domains"
        names = ", ".join(map(repr, worse))
        on_average = ", and on average" if self.recommended.average < 0 else ""
        return (
            f"In the {where} {names}{on_average} it is worse than predicting the mean of the "
            "domain: look whether the numbers mean the same there (oodzoo data)."
        )

    def findings(self) -> list[str]:
        """Summarise the results, one sentence per line."""
        best = self.recommended
        others = [
            f"{name.capitalize()} {getattr(self, name).average:.1f} %"
            for name in CHOICES
            if name != best.choice
        ]
        main = (
            f"Recommended: {described(best.choice, best.models)}. Chosen in the same way without "
            f"each domain, it {_achieves(self.task, best.average)} ({', '.join(others)})."
        )
        lines = [main, *([self.caution] if self.caution else [])]
        if oracle := self.oracle:
            lines.append(
                f"That is {_compared(best.average, oracle.average)} the best single model on each "
                f"test domain ({oracle.average:.1f} %), which is unknown in advance."
            )
        if pool := self.with_target.get("pool"):
            lines.append(
                "With unlabelled images of each test domain, the pool reaches "
                f"{pool.average:.1f} %."
            )
        if zero_shot := self.baselines.get("zero_shot"):
            lines.append(
                "Zero-shot, from the names of the classes and without training, the best model "
                f"reaches {zero_shot.average:.1f} %."
            )
        if random := self.baselines.get("random_features"):
            lines.append(
                f"Selection keeps {100 * _mean(self.feature_ratio):.0f} % of the features, "
                f"{_compared(self.selection.average, random.average)} as many random ones "
                f"({random.average:.1f} %)."
            )
        for domain, classes in self.unseen.items():
            one, names = len(classes) == 1, ", ".join(map(repr, classes))
            if self.task == "multilabel":
                found = f"label {names} occurs" if one else f"labels {names} occur"
                lines.append(
                    f"The {found} only in domain {domain!r} and cannot be learned without it."
                )
                continue
            found = f"class {names} occurs" if one else f"classes {names} occur"
            lines.append(
                f"The {found} only in domain {domain!r} and {'is' if one else 'are'} always "
                "misclassified there."
            )
        return lines

    def __str__(self) -> str:
        names = list(self.rows)
        width = max(map(len, names))
        lines = [f"{name:<{width}}  {row.average:5.1f} %" for name, row in self.rows.items()]
        lines.append(f"{'feature ratio':<{width}}  {100 * _mean(self.feature_ratio):5.1f} %")
        return "\n".join([*lines, *self.findings()])

    def to_frame(self) -> pandas.DataFrame:
        """Return a data frame with one line per row and test domain."""
        pandas = optional_package("pandas", extra="pandas", purpose="a data frame")
        rows: list[tuple[str, int | None, Row]] = [
            (name, None, row) for name, row in self.rows.items()
        ]
        for k, each in self.ablation.items():
            rows += [("ensemble", k, each.ensemble), ("selection", k, each.selection)]
        lines = []
        for name, number, row in rows:
            by_name = {m: row.measure(m) for m in row.measures}
            for domain, cell in row.cells.items():
                lines.append(
                    {"row": name, "top_k": number, "domain": domain}
                    | {measure: values[domain] for measure, values in by_name.items()}
                    | {"models": ", ".join(cell.models), "n_features": cell.n_features}
                )
        return pandas.DataFrame(lines)


def described(choice: str, models: Sequence[str]) -> str:
    """Name a way to combine models."""
    if choice == "single" or len(models) == 1:
        return models[0]
    number = count(len(models), "model")
    return {
        "pool": f"a pool of heads of {number}",
        "ensemble": f"all features of {number}",
        "selection": f"the features selected from {number}",
        "named": f"all features of {number}",
    }[choice]


def _achieves(task: Kind, value: float) -> str:
    """What the main metric says, in words."""
    return {
        "classification": f"classifies {value:.1f} % of the images of unseen domains correctly",
        "regression": f"explains {value:.1f} % of the variance in unseen domains",
        "multilabel": f"has an average precision of {value:.1f} % in unseen domains",
    }[task]


def _mean(values: Mapping[str, float]) -> float:
    return float(np.mean(list(values.values())))


def _averaged(values: Mapping[str, float]) -> dict[str, Any]:
    return {"average": _mean(values), "domains": dict(values)}


def _compared(value: float, other: float) -> str:
    difference = round(value, 1) - round(other, 1)  # as both are shown
    if abs(difference) < 0.05:
        return "equal to"
    return f"{abs(difference):.1f} points {'above' if difference > 0 else 'below'}"
