"""Results of an evaluation beside the accuracies and costs that the ZooD paper prints.

Q. Dong, A. Muhammad, F. Zhou, C. Xie, T. Hu, Y. Yang, S.-H. Bae, Z. Li, ZooD: Exploiting Model Zoo
for Out-of-Distribution Generalization, NeurIPS 2022, tables 1(c) and 2 and section 4.2. The row
"Fine-tuned" of ZooD is in the text only: 90.6, 79.1 and 83.4 %, and on TerraIncognita 2.6 points
more than the best method before, which had 50.0 %.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.tasks import Task

N_DOMAINS = {"PACS": 4, "VLCS": 4, "OfficeHome": 4, "TerraIncognita": 4, "DomainNet": 6}
"""Number of domains of each data set with published accuracies."""

YOURS = "yours"
_ZOOD = ("Single", "Ensemble", "F. Selection", "Fine-tuned")
_SWAD = ("MixStyle", "SWAD")
_RATIO = "F. Ratio (% )"


@dataclass(frozen=True)
class PublishedAccuracy:
    """An accuracy on one data set, in percent.

    Attributes
    ----------
    method : str
    source : str
        Who has published it: "DomainBed", "SWAD" or "ZooD"; or "yours".
    accuracy : float
    """

    method: str
    source: str
    accuracy: float


@dataclass(frozen=True)
class Published:
    """Published accuracies and costs on a data set, with one's own among them.

    Attributes
    ----------
    dataset : str
    n_domains : int
        Number of domains of the evaluation.
    figures : tuple of PublishedAccuracy
        The highest accuracy first.
    gpu_hours : dict of str to float
        `zood`: ranking 35 models; `fine_tuning`: training a head of each of them with DomainBed's
        search; `speed_up`: their ratio.
    hours : dict of str to float or None
        What is known of one's own cost: `extraction` of all features, and the runs of `fine_tuned`.
    """

    dataset: str
    n_domains: int
    figures: tuple[PublishedAccuracy, ...]
    gpu_hours: dict[str, float]
    hours: dict[str, float | None]

    @property
    def caveat(self) -> str:
        """Why the accuracies are not of methods alone, in a few sentences."""
        known = N_DOMAINS[self.dataset]
        other = (
            ""
            if self.n_domains == known
            else f" {self.dataset} has {known} domains, this evaluation {self.n_domains}."
        )
        return (
            f"Published figures are of all of {self.dataset}. DomainBed, SWAD: a ResNet-50, "
            "trained as a whole. ZooD: heads of the best of its 35 models; its Fine-tuned is the "
            "best one, trained as a whole. Yours are of other models, images and splits: a "
            f"difference is not that of the methods alone.{other}"
        )

    @property
    def cost(self) -> str:
        """The cost in GPU hours that the paper prints, and what is known of one's own."""
        paper = self.gpu_hours
        lines = (
            f"GPU hours in the paper: {paper['zood']:.2f} to rank 35 models, "
            f"{paper['fine_tuning']:,.0f} to train a head of each in DomainBed's search "
            f"({paper['speed_up']:,.0f} times as much)."
        )
        measured = [
            f"{_hours(value)} for {what}"
            for key, what in (
                ("extraction", "the features of all models, from the time per image in the store"),
                ("fine_tuned", "fine-tuning without each domain (shared runs count for each)"),
            )
            if (value := self.hours[key]) is not None
        ]
        mine = f"Yours: {', '.join(measured)}." if measured else "Your cost is not known."
        return f"{lines} {mine} Ranking, heads and selection are not measured."

    def to_dict(self) -> dict[str, Any]:
        """Convert to a JSON document."""
        return {
            "dataset": self.dataset,
            "rows": [
                {"method": each.method, "source": each.source, "accuracy": each.accuracy}
                for each in self.figures
            ],
            "gpu_hours": self.gpu_hours,
            "hours": self.hours,
            "caveat": self.caveat,
        }


def _hours(hours: float) -> str:
    return f"{hours:.2f} hours" if hours >= 0.01 else f"{hours:.2g} hours"


def read_table(name: str) -> list[dict[str, str]]:
    """Read the rows of one of the paper's tables, given the name of its file."""
    folder = files("oodzoo.ranking.testbed") / "paper"
    return list(csv.DictReader((folder / f"{name}.csv").read_text(encoding="utf-8").splitlines()))


def accuracies() -> dict[str, dict[str, float]]:
    """Return the published accuracies in percent, by method and data set, and their `average`.

    Examples
    --------
    >>> accuracies()["SWAD"]["PACS"], accuracies()["F. Selection"]["average"]
    (88.1, 71.0)
    """
    rows = {row.pop("method"): row for row in read_table("accuracy")}
    return {method: _numbers(row) for method, row in rows.items() if method != _RATIO}


def feature_ratios() -> dict[str, float]:
    """Return the share of features that ZooD's F. Selection keeps, by data set."""
    (row,) = [row for row in read_table("accuracy") if row.pop("method") == _RATIO]
    return {dataset: round(value / 100, 6) for dataset, value in _numbers(row).items()}


def gpu_hours() -> dict[str, dict[str, float]]:
    """Return the published cost by data set: `zood`, `fine_tuning` and `speed_up`.

    Examples
    --------
    >>> gpu_hours()["PACS"]
    {'zood': 0.27, 'fine_tuning': 2662.27, 'speed_up': 9859.0}
    """
    return {row.pop("dataset"): _numbers(row) for row in read_table("gpu_hours")}


def _numbers(row: Mapping[str, str]) -> dict[str, float]:
    return {name: float(cell) for name, cell in row.items() if cell}


def source_of(method: str) -> str:
    """Who has published the accuracy of a method."""
    return "ZooD" if method in _ZOOD else "SWAD" if method in _SWAD else "DomainBed"


def require_published(dataset: str, task: Task) -> None:
    """Raise an InputError unless accuracies of a data set are published, for this task."""
    if dataset not in N_DOMAINS:
        names = {name.lower(): name for name in N_DOMAINS}
        near = difflib.get_close_matches(dataset.lower(), names, n=1, cutoff=0.5)
        hint = f"; did you mean {names[near[0]]}?" if near else ""
        raise InputError(
            f"no accuracies are published for {dataset!r}, expected one of "
            f"{', '.join(N_DOMAINS)}{hint}"
        )
    if not task.one_class:
        raise InputError(
            f"published accuracies are of classes, but the task is {task.kind!r}; leave published "
            "out"
        )


def published(
    dataset: str, yours: Mapping[str, float], n_domains: int, hours: Mapping[str, float | None]
) -> Published:
    """Put accuracies of one's own, by method and in percent, among those of a data set."""
    figures = [
        PublishedAccuracy(method, source_of(method), row[dataset])
        for method, row in accuracies().items()
        if dataset in row
    ]
    figures += [PublishedAccuracy(method, YOURS, accuracy) for method, accuracy in yours.items()]
    figures.sort(key=lambda each: -each.accuracy)
    return Published(dataset, n_domains, tuple(figures), gpu_hours()[dataset], dict(hours))
