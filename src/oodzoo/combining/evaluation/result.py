"""Results of an evaluation: rows over held-out domains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from oodzoo.combining.evaluation.learning_curve import LearningCurve
from oodzoo.combining.evaluation.rows import Aggregation, Row, Tuning, averaged
from oodzoo.combining.one_head import ENSEMBLE, SINGLE
from oodzoo.combining.pool import POOL
from oodzoo.combining.selection import SELECTION
from oodzoo.combining.statements import (
    FINE_TUNED,
    Advice,
    disagreement,
    findings,
    shown_choice,
    titles,
)
from oodzoo.combining.verdict import Estimate, is_better
from oodzoo.combining.ways import COMBINATIONS
from oodzoo.core.errors import InputError
from oodzoo.core.io import structured
from oodzoo.core.packages import optional_package
from oodzoo.core.text import count, short_name, unknown
from oodzoo.ranking.testbed.published import Published, published
from oodzoo.tasks import Kind, require_kind, task_of
from oodzoo.tasks.classification import ClassDiagnosis, add_up

if TYPE_CHECKING:
    import pandas

    from oodzoo.report.figures import Plot
from collections.abc import Iterable

from oodzoo.core.tables import Table
from oodzoo.core.text import number, plain

FIELDS = tuple(way.name for way in (SINGLE, POOL, ENSEMBLE, SELECTION))
"""The rows that are fields of an evaluation."""


@dataclass(frozen=True)
class Recommended:
    """The recommended combination of the models, and its accuracy on unseen domains.

    For other tasks than classification, the main metric takes the place of the accuracy.

    Attributes
    ----------
    choice : str
        The name of a combination, decided on all domains; "fine_tuned" if that is better
        on the held-out domains by more than a standard error between them.
    models : tuple of str
        The models that it uses, those of a pool in the order of their shares.
    average : float
        Accuracy in percent, mean over the held-out domains. For each of them, the choice was made
        on the other domains only.
    interval : tuple of float, optional
        90 % interval for a single new domain.
    domains : dict of str to float
        Accuracy on each held-out domain.
    choices : dict of str to str
        What was chosen for each held-out domain.
    estimates, within : dict of str to float
        What decided: accuracy of each combination on held-out domains, and by cross-validation
        within the domains, in percent. They are comparisons; the accuracy to expect is `average`.
    candidates : tuple of str
        The models that it was chosen from; empty if an earlier version wrote it.
    max_models, max_ms : int and float, optional
        The limits within which it was chosen.
    """

    choice: str
    models: tuple[str, ...]
    average: float
    interval: tuple[float, float] | None
    domains: dict[str, float]
    choices: dict[str, str]
    estimates: dict[str, float]
    within: dict[str, float] = field(default_factory=dict)
    candidates: tuple[str, ...] = ()
    max_models: int | None = None
    max_ms: float | None = None

    def __post_init__(self) -> None:
        for choice in (self.choice, *self.choices.values()):
            if choice not in titles():
                raise ValueError(f"a choice must be one of {', '.join(titles())}, got {choice!r}")
        if self.choices.keys() != self.domains.keys():
            raise ValueError("the choices and the accuracies must be of the same domains")

    @property
    def brief(self) -> str:
        """The choice and its metric, in a few words."""
        choice = shown_choice(self.choice, self.models)
        models = f"{choice} of {count(len(self.models), 'model')}"
        if len(self.models) == 1:
            models = f"{choice} {short_name(self.models[0])}"
        return f"{models}, {self.average:.1f} %"

    @property
    def disagreement(self) -> str:
        """What it means if held-out domains and the domains within disagree; empty if they do not.

        Examples
        --------
        >>> both = {"single": 70.0, "pool": 72.0}, {"single": 91.0, "pool": 88.0}
        >>> best = Recommended("pool", ("a", "b"), 72.0, None, {}, {}, *both)
        >>> print(best.disagreement.split(". ")[0])
        The two estimates disagree: Pool is best on held-out domains (72.0 %), but Single within
        the domains (91.0 %)
        """
        return disagreement(self)

    def __repr__(self) -> str:
        return f"Recommended({self.brief})"

    def to_dict(self) -> dict[str, Any]:
        """Convert to a JSON document."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


def require_no_oracle(rule: str | None) -> None:
    """Raise an InputError if what is recommended was measured by DomainBed's oracle."""
    if rule == "oracle":
        raise InputError(
            "the evaluation selected heads by the oracle, with labels of the held-out domains: its "
            "accuracy is no promise; evaluate again without selection='oracle' (--selection oracle)"
        )


@dataclass(frozen=True)
class Evaluation:
    """Results of a leave-one-domain-out evaluation.

    It is a mapping from the names of `rows` to the rows: `evaluation["pool"]`, `"oracle" in
    evaluation`, `for name in evaluation`, `len(evaluation)`.

    Attributes
    ----------
    protocol, score : str
    top_k : int or dict of str to int
        Number of concatenated models; by held-out domain if it was chosen on the training domains.
    trials : int
    domains : tuple of str
        The held-out domains.
    recommended : Recommended
        What to use, and how accurate it is.
    single : Row
        The top model of the ranking.
    pool : Row
        A pool of heads (:mod:`oodzoo.combining.pool_weights`).
    ensemble, selection : Row
        All features of the best K models, and the features selected from all models.
    others : dict of str to Row
        Further combinations, by name.
    feature_ratio : dict of str to float
        Share of features selected, by held-out domain.
    baselines : dict of str to Row
        ``random_features`` (as many as were selected, from all models; mean over draws),
        ``oracle`` (the single model that is most accurate on the held-out domain),
        ``paper_selection`` (the paper's selection, from the best K models),
        ``best_by_<score>`` (the top model under another score), ``zero_shot`` (the best zero-shot
        model on the training domains, if a model has class embeddings).
    with_target : dict of str to Row
        Rows for which the unlabelled images of each held-out domain were known: ``pool``.
    ablation : dict of int to Aggregation
        Results for each K, if several were evaluated.
    rule : str, optional
        Rule of DomainBed that selects the heads; None without its protocol.
    by_rule : dict of str to dict of str to Row
        ``single``, ``ensemble`` and ``selection`` by each of DomainBed's rules.
    unseen : dict
        Classes or labels that occur in the held-out domain only; these classes are never predicted.
    task : {"classification", "regression", "multilabel"}
    published : str, optional
        Name of a data set, to show the results among published ones, see :meth:`beside_published`.
    extraction_hours : float, optional
        Time to extract the features of all models, by the time per image in the store.
    fine_tuned : Row, optional
        The top model, fine-tuned on the training domains; None if that was not asked for.
    tuning : Tuning, optional
        How it was fine-tuned, what it cost, and what it gains.
    diagnosis : dict of str to ClassDiagnosis
        What was recommended for each held-out domain, without using it: confusion matrix,
        calibration and most confident mistakes there, in the first trial. Empty for other tasks
        than classes.
    learning_curve : LearningCurve, optional
        The main metric of the top model against the number of training images.
    advice : tuple of Advice
        What would change the result: more images or domains, unlabelled images of the target,
        fine-tuning, less time per image.
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
    rule: str | None = None
    by_rule: dict[str, dict[str, Row]] = field(default_factory=dict)
    unseen: dict[str, tuple[str, ...]] = field(default_factory=dict)
    task: Kind = "classification"
    published: str | None = None
    extraction_hours: float | None = None
    fine_tuned: Row | None = None
    tuning: Tuning | None = None
    diagnosis: dict[str, ClassDiagnosis] = field(default_factory=dict)
    learning_curve: LearningCurve | None = None
    advice: tuple[Advice, ...] = ()
    others: dict[str, Row] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """The main metric: "accuracy", "explained_variance" or "average_precision"."""
        return task_of(self.task).metric

    @property
    def combinations(self) -> dict[str, Row]:
        """The rows of the combinations, by name."""
        return {name: getattr(self, name) for name in FIELDS} | self.others

    @property
    def rows(self) -> dict[str, Row]:
        """All rows, by name."""
        main = self.combinations
        if self.fine_tuned is not None:
            main[FINE_TUNED] = self.fine_tuned
        return (
            main
            | {f"{name}_with_target": row for name, row in self.with_target.items()}
            | (self.baselines)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: object) -> bool:
        return name in self.rows

    def __getitem__(self, name: str) -> Row:
        """Return a row by its name."""
        rows = self.rows
        if name not in rows:
            raise KeyError(unknown("the evaluation", "row", name, rows))
        return rows[name]

    @property
    def recommended_row(self) -> Row:
        """The results of what was chosen for each held-out domain."""
        rows, choices = self.rows, self.recommended.choices
        return Row({domain: rows[choices[domain]].cells[domain] for domain in self.domains})

    @property
    def tied(self) -> tuple[str, ...]:
        """Other combinations that the held-out domains cannot tell from the recommended one.

        Those whose difference is within a standard error between held-out domains, the best first.
        """
        rows, best = self.rows, estimate_of(self.recommended.domains)
        close = []
        for name in titles():
            if name in rows and name != self.recommended.choice:
                other = estimate_of(rows[name].measure(self.metric))
                if not is_better(best, other) and not is_better(other, best):
                    close.append(name)
        return tuple(sorted(close, key=lambda name: -rows[name].average))

    @property
    def beyond_limits(self) -> tuple[str, ...]:
        """The rows that exceed the limits of the recommendation, by name: for comparison only."""
        limits = self.recommended.max_models, self.recommended.max_ms
        return tuple(name for name, row in self.rows.items() if row.exceeds(*limits))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of several numbers or labels that are predicted; empty for one, and for classes."""
        return tuple(self.single.outputs)

    @property
    def oracle(self) -> Row | None:
        """The most accurate single model on each held-out domain; None without baselines."""
        return self.baselines.get("oracle")

    @property
    def metrics(self) -> dict[str, float]:
        """Main metric of each row in percent, on average and by domain, as a listener gets it."""
        main = self.metric
        found = {"recommended": averaged(self.recommended.domains)}
        found |= {name: averaged(row.measure(main)) for name, row in self.rows.items()}
        metrics = {f"{name}/{main}": each["average"] for name, each in found.items()}
        for name, each in found.items():
            by_domain = each["domains"].items()
            metrics |= {f"{name}/{main}_by_domain/{domain}": value for domain, value in by_domain}
        return metrics

    def beside_published(self) -> Published | None:
        """Put the rows among the accuracies published for a data set; None if none was named."""
        if self.published is None:
            return None
        rows = {"Recommended": self.recommended.average}
        found = self.rows
        rows |= {titles()[name]: found[name].average for name in titles() if name in found}
        tuned = None
        if self.tuning is not None:
            tuned = self.tuning.seconds * len(self.domains) / 3600
        hours = {"extraction": self.extraction_hours, "fine_tuned": tuned}
        return published(self.published, rows, len(self.domains), hours)

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
            **{name: row.to_dict() for name, row in self.combinations.items()},
            "feature_ratio": averaged(self.feature_ratio),
            "with_target": {name: row.to_dict() for name, row in self.with_target.items()},
            **{name: row.to_dict() for name, row in self.baselines.items()},
            "baselines": list(self.baselines),
            "unseen": {domain: list(classes) for domain, classes in self.unseen.items()},
            "findings": self.findings(),
            "tied": list(self.tied),
            "beyond_limits": list(self.beyond_limits),
            "diagnosis": {domain: each.to_dict() for domain, each in self.diagnosis.items()},
            "advice": msgspec.to_builtins(self.advice),
        }
        if self.learning_curve is not None:
            document["learning_curve"] = self.learning_curve.to_dict()
        if self.ablation:
            document["ablation"] = [
                {"top_k": k} | each.to_dict() for k, each in self.ablation.items()
            ]
        if self.rule is not None:
            document["rule"] = self.rule
            document["by_rule"] = {
                rule: {name: row.to_dict() for name, row in rows.items()}
                for rule, rows in self.by_rule.items()
            }
        if self.fine_tuned is not None and self.tuning is not None:
            seconds = {domain: each.seconds for domain, each in self.tuning.folds.items()}
            document[FINE_TUNED] = self.fine_tuned.to_dict() | {
                "seconds": averaged(seconds),
                "tuning": msgspec.to_builtins(self.tuning),
            }
        if (table := self.beside_published()) is not None:
            document["published"] = table.to_dict()
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Evaluation:
        """Restore an evaluation from :meth:`to_dict`."""
        task = require_kind(document.get("task", "classification"))
        beside = document.get("published") or {"dataset": None, "hours": {"extraction": None}}
        tuned = document.get(FINE_TUNED)
        found = cls(
            protocol=document["protocol"],
            score=document["score"],
            top_k=document["top_k"],
            trials=document["trials"],
            domains=tuple(document["domains"]),
            recommended=structured(document["recommended"], Recommended, "the evaluation"),
            **{name: Row.from_dict(document[name], task) for name in FIELDS},
            others={
                name: Row.from_dict(document[name], task)
                for name in COMBINATIONS
                if name in document and name not in FIELDS
            },
            feature_ratio=dict(document["feature_ratio"]["domains"]),
            with_target={n: Row.from_dict(r, task) for n, r in document["with_target"].items()},
            baselines={name: Row.from_dict(document[name], task) for name in document["baselines"]},
            ablation={
                each["top_k"]: Aggregation.from_dict(each, task)
                for each in document.get("ablation", ())
            },
            rule=document.get("rule"),
            by_rule={
                rule: {name: Row.from_dict(row, task) for name, row in rows.items()}
                for rule, rows in document.get("by_rule", {}).items()
            },
            unseen={domain: tuple(classes) for domain, classes in document["unseen"].items()},
            task=task,
            published=beside["dataset"],
            extraction_hours=beside["hours"]["extraction"],
            fine_tuned=None if tuned is None else Row.from_dict(tuned, task),
            tuning=None if tuned is None else structured(tuned["tuning"], Tuning, "the evaluation"),
            diagnosis=_diagnosis(document.get("diagnosis", {})),
            learning_curve=None
            if (curve := document.get("learning_curve")) is None
            else structured(curve, LearningCurve, "the evaluation"),
            advice=structured(document.get("advice", ()), tuple[Advice, ...], "the evaluation"),
        )
        if any(set(row.cells) != set(found.domains) for row in found.rows.values()):
            raise ValueError(f"not all rows have the domains {', '.join(found.domains)}")
        return found

    def findings(self) -> list[str]:
        """Summarise the results, one sentence per line."""
        return findings(self)

    def __repr__(self) -> str:
        rows = [f"{name} {row.average:.1f}" for name, row in self.combinations.items()]
        domains = count(len(self.domains), "held-out domain")
        best = self.recommended
        return f"Evaluation({domains}: recommended {best.brief}; {', '.join(rows)} %)"

    def _repr_html_(self) -> str:
        return rows_as_html(self._shown, self.task, self.findings())

    @property
    def _shown(self) -> dict[str, Row]:
        return {"recommended": self.recommended_row} | self.rows

    def plot(self, *, baselines: bool = False) -> Plot:
        """Plot the main metric of the rows, on average and on each held-out domain.

        Parameters
        ----------
        baselines : bool
            Whether to show the average of the baselines, too.
        """
        from oodzoo.report.figures import plot_comparison

        return plot_comparison(self, baselines=baselines)

    def __str__(self) -> str:
        return rows_as_text(self._shown, self.task, self.findings())

    def to_frame(self) -> pandas.DataFrame:
        """Return a data frame with one line per row and held-out domain."""
        pandas = optional_package("pandas", extra="pandas", purpose="a data frame")
        rows: list[tuple[str, int | None, Row]] = [
            (name, None, row) for name, row in self.rows.items()
        ]
        for k, each in self.ablation.items():
            rows += [(ENSEMBLE.name, k, each.ensemble), (SELECTION.name, k, each.selection)]
        lines = []
        for name, top_k, row in rows:
            by_name = {m: row.measure(m) for m in row.measures}
            for domain, cell in row.cells.items():
                lines.append(
                    {"row": name, "top_k": top_k, "domain": domain}
                    | {measure: values[domain] for measure, values in by_name.items()}
                    | {"models": ", ".join(cell.models), "n_features": cell.n_features}
                )
        return pandas.DataFrame(lines)


def estimate_of(domains: Mapping[str, float]) -> Estimate:
    """What held-out domains say; the cost does not decide."""
    return Estimate([np.array([domains[test]]) for test in sorted(domains)], 0.0)


def _diagnosis(document: Mapping[str, Any]) -> dict[str, ClassDiagnosis]:
    """Restore the diagnosis of each held-out domain; a ValueError if they do not add up."""
    found = {domain: ClassDiagnosis.from_dict(each) for domain, each in document.items()}
    if found:
        add_up(found.values())
    return found


MOST_DOMAINS = 8
"""With more held-out domains, a line of text would be too long, and has the average only."""


def rows_as_text(rows: Mapping[str, Row], task: Kind, notes: Iterable[str]) -> str:
    """Return a line per row with its main metric, and the notes below."""
    domains, table = _cells(rows)
    columns = [task_of(task).measure.heading.lower(), "average"]
    if len(domains) <= MOST_DOMAINS:
        columns += domains
    lines = [[name, *map(plain, cells)][: len(columns)] for name, *cells in table]
    return "\n".join([Table.of(columns, lines).text(), *notes])


def rows_as_html(rows: Mapping[str, Row], task: Kind, notes: Iterable[str]) -> str:
    """Return a table with the main metric of each row, on average and on each held-out domain."""
    domains, table = _cells(rows)
    return Table.of(
        ["", "average", *domains],
        table,
        caption=f"{task_of(task).measure.heading} on each held-out domain",
        notes=list(notes),
    ).html()


def _cells(rows: Mapping[str, Row]) -> tuple[list[str], list[list[str]]]:
    domains = list(next(iter(rows.values())).cells)
    table = []
    for name, row in rows.items():
        by_domain = row.measure(row.metric)
        values = [row.average, *(by_domain[domain] for domain in domains)]
        table.append([name, *(number(value, 1) for value in values)])
    return domains, table
