"""The outcome of an evaluation: rows over test domains, for people and for machines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._io import structured
from oodzoo.errors import MissingPackageError
from oodzoo.evaluation.metrics import Measures

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Cell:
    """What was reached on one test domain: measures of each trial, and with what."""

    measures: tuple[Measures, ...]
    models: tuple[str, ...]
    n_features: int

    @property
    def accuracy(self) -> float:
        return float(np.mean([each.accuracy for each in self.measures]))


@dataclass(frozen=True)
class Row:
    """One way to choose features, on every test domain.

    Attributes
    ----------
    cells : dict of str to Cell
        By test domain.
    """

    cells: dict[str, Cell]

    def measure(self, name: str) -> dict[str, float]:
        """Mean over trials of a measure, in percent, by test domain."""
        return {d: float(values.mean()) for d, values in self._trials(name).items()}

    @property
    def average(self) -> float:
        """Accuracy in percent, mean over test domains."""
        return _mean(self.measure("accuracy"))

    @property
    def error(self) -> dict[str, Any] | None:
        """Standard error of the accuracy over trials; that of the average as DomainBed has it."""
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
        """The row for machines, in percent."""
        return {
            **_averaged(self.measure("accuracy")),
            "balanced": _averaged(self.measure("balanced")),
            "calibration_error": _averaged(self.measure("calibration_error")),
            "error": self.error,
            "models": {d: list(cell.models) for d, cell in self.cells.items()},
            "n_features": {d: cell.n_features for d, cell in self.cells.items()},
            "trials": {d: [list(m) for m in cell.measures] for d, cell in self.cells.items()},
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Row:
        """The row that :meth:`to_dict` was called on."""
        return cls(
            {
                domain: Cell(
                    structured(trials, tuple[Measures, ...], "an evaluation"),
                    tuple(document["models"][domain]),
                    document["n_features"][domain],
                )
                for domain, trials in document["trials"].items()
            }
        )

    def _trials(self, name: str) -> dict[str, NDArray[np.float64]]:
        return {
            d: np.array([getattr(each, name) for each in cell.measures])
            for d, cell in self.cells.items()
        }


@dataclass(frozen=True)
class Aggregation:
    """The best K models side by side, with all their features and with those selected.

    Attributes
    ----------
    ensemble, selection : Row
    feature_ratio : dict of str to float
        The share of features that is kept, by test domain.
    """

    ensemble: Row
    selection: Row
    feature_ratio: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {
            "ensemble": self.ensemble.to_dict(),
            "selection": self.selection.to_dict(),
            "feature_ratio": _averaged(self.feature_ratio),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Aggregation:
        """The object that :meth:`to_dict` was called on."""
        return cls(
            Row.from_dict(document["ensemble"]),
            Row.from_dict(document["selection"]),
            dict(document["feature_ratio"]["domains"]),
        )


@dataclass(frozen=True)
class Evaluation:
    """What the models chosen without a domain reach on it.

    Attributes
    ----------
    protocol, score : str
    top_k : int or dict of str to int
        How many models are put side by side; by test domain where the training domains chose.
    trials : int
    domains : tuple of str
        The test domains.
    single : Row
        The first model of the ranking.
    ensemble, selection : Row
        The best K models with all features, and with those that selection keeps.
    feature_ratio : dict of str to float
        The share of features that is kept, by test domain.
    baselines : dict of str to Row
        ``random_features`` (as many as are selected, from the same models; mean over draws),
        ``oracle`` (the single model that is best on the test domain, which nobody can know),
        ``best_by_<score>``.
    ablation : dict of int to Aggregation
        For each K, where there are several.
    unseen : dict
        Classes of a test domain that no other domain has; they are never predicted.
    """

    protocol: str
    score: str
    top_k: int | dict[str, int]
    trials: int
    domains: tuple[str, ...]
    single: Row
    ensemble: Row
    selection: Row
    feature_ratio: dict[str, float]
    baselines: dict[str, Row] = field(default_factory=dict)
    ablation: dict[int, Aggregation] = field(default_factory=dict)
    unseen: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def rows(self) -> dict[str, Row]:
        """All rows by name."""
        main = {"single": self.single, "ensemble": self.ensemble, "selection": self.selection}
        return main | self.baselines

    def to_dict(self) -> dict[str, Any]:
        """The evaluation for machines; accuracies in percent, ratios from 0 to 1."""
        document: dict[str, Any] = {
            "protocol": self.protocol,
            "score": self.score,
            "top_k": self.top_k,
            "trials": self.trials,
            "domains": list(self.domains),
            "single": self.single.to_dict(),
            "ensemble": self.ensemble.to_dict(),
            "selection": self.selection.to_dict(),
            "feature_ratio": _averaged(self.feature_ratio),
            "baselines": {name: row.to_dict() for name, row in self.baselines.items()},
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
        """The evaluation that :meth:`to_dict` was called on."""
        return cls(
            protocol=document["protocol"],
            score=document["score"],
            top_k=document["top_k"],
            trials=document["trials"],
            domains=tuple(document["domains"]),
            single=Row.from_dict(document["single"]),
            ensemble=Row.from_dict(document["ensemble"]),
            selection=Row.from_dict(document["selection"]),
            feature_ratio=dict(document["feature_ratio"]["domains"]),
            baselines={name: Row.from_dict(row) for name, row in document["baselines"].items()},
            ablation={
                each["top_k"]: Aggregation.from_dict(each) for each in document.get("ablation", ())
            },
            unseen={domain: tuple(classes) for domain, classes in document["unseen"].items()},
        )

    def findings(self) -> list[str]:
        """What the figures say, one plain line each."""
        single, selection = self.single.average, self.selection.average
        ratio = 100 * _mean(self.feature_ratio)
        found = (
            f"Features selected from the best models ({ratio:.0f} % of them) reach "
            f"{selection:.1f} % on an unseen domain, {_against(selection, single)} the best "
            f"model alone and {_against(selection, self.ensemble.average)} all features."
        )
        lines = [found]
        if random := self.baselines.get("random_features"):
            if round(selection, 1) > round(random.average, 1):
                lines.append(
                    f"As many features drawn at random reach {random.average:.1f} %: selection is "
                    f"{round(selection, 1) - round(random.average, 1):.1f} points better."
                )
            else:
                lines.append(
                    f"As many features drawn at random reach {random.average:.1f} %: here selection"
                    " is no better than that."
                )
        if oracle := self.baselines.get("oracle"):
            lines.append(
                f"Knowing the test domain, the best single model would reach "
                f"{oracle.average:.1f} %."
            )
        for domain, classes in self.unseen.items():
            lines.append(
                f"No domain but {domain!r} has {', '.join(classes)}: there they count as wrong."
            )
        return lines

    def __str__(self) -> str:
        names = list(self.rows)
        width = max(map(len, names))
        lines = [f"{name:<{width}}  {row.average:5.1f} %" for name, row in self.rows.items()]
        lines.append(f"{'feature ratio':<{width}}  {100 * _mean(self.feature_ratio):5.1f} %")
        return "\n".join([*lines, *self.findings()])

    def to_frame(self) -> pandas.DataFrame:
        """A table with one line for each row and test domain."""
        try:
            import pandas
        except ImportError as error:
            raise MissingPackageError("pandas", "pandas", "a data frame") from error
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


def _mean(values: Mapping[str, float]) -> float:
    return float(np.mean(list(values.values())))


def _averaged(values: Mapping[str, float]) -> dict[str, Any]:
    return {"average": _mean(values), "domains": dict(values)}


def _against(value: float, other: float) -> str:
    difference = round(value, 1) - round(other, 1)  # as both are shown
    if abs(difference) < 0.05:
        return "the same as"
    return f"{abs(difference):.1f} points {'above' if difference > 0 else 'below'}"
