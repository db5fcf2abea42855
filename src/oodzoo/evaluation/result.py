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
from oodzoo.evaluation.metrics import Measures

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Cell:
    """Result on one test domain: measures of each trial, with the models used and their cost.

    Attributes
    ----------
    measures : tuple of Measures
    models : tuple of str
    n_features : int
    milliseconds, parameters : float and int, optional
        Time per image and number of parameters, sums over the models; None if one is unknown.
    """

    measures: tuple[Measures, ...]
    models: tuple[str, ...]
    n_features: int
    milliseconds: float | None = None
    parameters: int | None = None

    @property
    def accuracy(self) -> float:
        """Mean over trials."""
        return float(np.mean([each.accuracy for each in self.measures]))


@dataclass(frozen=True)
class Row:
    """Results of one method on all test domains.

    Attributes
    ----------
    cells : dict of str to Cell
        Result by test domain.
    """

    cells: dict[str, Cell]

    def measure(self, name: str) -> dict[str, float]:
        """Return the mean over trials of a measure, in percent, by test domain."""
        return {d: float(values.mean()) for d, values in self._trials(name).items()}

    @property
    def average(self) -> float:
        """Accuracy in percent, mean over test domains."""
        return _mean(self.measure("accuracy"))

    @property
    def error(self) -> dict[str, Any] | None:
        """Standard error of the accuracy over trials, computed as in DomainBed."""
        trials = self._trials("accuracy")
        number = len(next(iter(trials.values())))
        if number == 1:
            return None
        averages = np.mean(list(trials.values()), axis=0)
        return {
            "average": float(averages.std() / math.sqrt(number)),
            "domains": {d: float(v.std() / math.sqrt(number)) for d, v in trials.items()},
        }

    def to_dict(self) -> dict[str, Any]:
        """Convert the row to a JSON document, in percent."""
        return {
            **_averaged(self.measure("accuracy")),
            "balanced": _averaged(self.measure("balanced")),
            "calibration_error": _averaged(self.measure("calibration_error")),
            "error": self.error,
            "models": {d: list(cell.models) for d, cell in self.cells.items()},
            "n_features": {d: cell.n_features for d, cell in self.cells.items()},
            "milliseconds": {d: cell.milliseconds for d, cell in self.cells.items()},
            "parameters": {d: cell.parameters for d, cell in self.cells.items()},
            "trials": {d: [list(m) for m in cell.measures] for d, cell in self.cells.items()},
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Row:
        """Restore a row from :meth:`to_dict`."""
        cells = {}
        for domain, trials in document["trials"].items():
            measures = structured(trials, tuple[Measures, ...], "the evaluation")
            cells[domain] = Cell(
                measures,
                tuple(document["models"][domain]),
                document["n_features"][domain],
                document.get("milliseconds", {}).get(domain),
                document.get("parameters", {}).get(domain),
            )
        return cls(cells)

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
    def from_dict(cls, document: Mapping[str, Any]) -> Aggregation:
        """Restore the results from :meth:`to_dict`."""
        return cls(
            Row.from_dict(document["ensemble"]),
            Row.from_dict(document["selection"]),
            dict(document["feature_ratio"]["domains"]),
        )


@dataclass(frozen=True)
class Recommended:
    """The recommended way to combine the models, and its accuracy on unseen domains.

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
        Classes that occur in the test domain only; they are never predicted.
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
    def oracle(self) -> Row | None:
        """The single model that is most accurate on each test domain; None without baselines."""
        return self.baselines.get("oracle")

    @property
    def metrics(self) -> dict[str, float]:
        """Accuracy of each row in percent, on average and by domain, as a listener gets it."""
        found = {"recommended": _averaged(self.recommended.domains)}
        found |= {name: _averaged(row.measure("accuracy")) for name, row in self.rows.items()}
        metrics = {f"{name}/accuracy": each["average"] for name, each in found.items()}
        for name, each in found.items():
            by_domain = each["domains"].items()
            metrics |= {f"{name}/accuracy_by_domain/{domain}": value for domain, value in by_domain}
        return metrics

    def to_dict(self) -> dict[str, Any]:
        """Convert the evaluation to a JSON document; accuracies in percent, ratios from 0 to 1."""
        document: dict[str, Any] = {
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
        return cls(
            protocol=document["protocol"],
            score=document["score"],
            top_k=document["top_k"],
            trials=document["trials"],
            domains=tuple(document["domains"]),
            recommended=structured(document["recommended"], Recommended, "the evaluation"),
            **{name: Row.from_dict(document[name]) for name in CHOICES},
            feature_ratio=dict(document["feature_ratio"]["domains"]),
            with_target={n: Row.from_dict(row) for n, row in document["with_target"].items()},
            baselines={name: Row.from_dict(document[name]) for name in document["baselines"]},
            ablation={
                each["top_k"]: Aggregation.from_dict(each) for each in document.get("ablation", ())
            },
            unseen={domain: tuple(classes) for domain, classes in document["unseen"].items()},
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
            f"each domain, it classifies {best.average:.1f} % of the images of unseen domains "
            f"correctly ({', '.join(others)})."
        )
        lines = [main]
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
        if random := self.baselines.get("random_features"):
            lines.append(
                f"Selection keeps {100 * _mean(self.feature_ratio):.0f} % of the features, "
                f"{_compared(self.selection.average, random.average)} as many random ones "
                f"({random.average:.1f} %)."
            )
        for domain, classes in self.unseen.items():
            one, names = len(classes) == 1, ", ".join(map(repr, classes))
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
            by_name = {m: row.measure(m) for m in Measures._fields}
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


def _mean(values: Mapping[str, float]) -> float:
    return float(np.mean(list(values.values())))


def _averaged(values: Mapping[str, float]) -> dict[str, Any]:
    return {"average": _mean(values), "domains": dict(values)}


def _compared(value: float, other: float) -> str:
    difference = round(value, 1) - round(other, 1)  # as both are shown
    if abs(difference) < 0.05:
        return "equal to"
    return f"{abs(difference):.1f} points {'above' if difference > 0 else 'below'}"
