"""A made-up run of any size; its numbers are drawn at random."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from tests.report.diagnosis_example import example_diagnoses

from oodzoo.combining.evaluation.learning_curve import CurvePoint, LearningCurve
from oodzoo.combining.evaluation.result import Evaluation, Recommended
from oodzoo.combining.evaluation.rows import (
    Aggregation,
    Cell,
    Outputs,
)
from oodzoo.combining.evaluation.rows import Row as EvaluationRow
from oodzoo.combining.selection import ClassSelection, ModelSelection, NumberTried, SelectionSummary
from oodzoo.combining.statements import Advice
from oodzoo.data.issues import Spread
from oodzoo.ranking.ranking import FoldRow, Ranking, Row
from oodzoo.ranking.terms import FOLD_SCORES
from oodzoo.ranking.testbed.bed import ScoreResult, TestBed
from oodzoo.report.record import DataSummary, DomainLabels, Run, Stage
from oodzoo.tasks import Kind, task_of
from oodzoo.tasks.classification import ClassDiagnosis

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
SCORES = {
    "zood": "ZooD", "accuracy": "Expected accuracy", "lda": "LDA", "knn": "kNN", "logme": "LogME",
    "h_score": "H-Score", "transrate": "TransRate", "leep": "LEEP", "parameters": "Parameters",
}  # fmt: skip


def example_run(
    n_models: int = 27,
    domains: Sequence[str] = DOMAINS,
    classes: Sequence[str] = CLASSES,
    models: Sequence[str] | None = None,
    score: str = "unseen",
    target: bool = False,
    task: Kind = "classification",
) -> Run:
    """A run with all parts that the report shows; with `target`, ranked for images of a target.

    `classes` are the names of the numbers or labels of another task. In a regression, the last
    models are worse than the mean of a domain.
    """
    rng = random.Random(0)
    names = list(models or [f"model_{at:03d}_imagenet" for at in range(n_models)])
    ranking = _ranking(rng, names, domains, score, target, task)
    return Run(
        command="oodzoo run photos/ --zoo zoo.toml --out job/",
        settings={"top_k": [1, 2, 3, 5], "score": score, "protocol": "fast", "seed": 0},
        versions={"oodzoo": "0.2.0", "python": "3.11.2", "numpy": "2.3.4", "onnxruntime": "1.23.2"},
        machine={"cores": 2, "system": "Linux-6.1-x86_64"},
        stages=(
            Stage("extract", 421.4, reused=False, inputs=""),
            Stage("rank", 2.31, reused=True, inputs=""),
            Stage("select", 15.2, reused=False, inputs=""),
        ),
        data=DataSummary(
            path="photos/",
            fingerprint="a3" * 32,
            images=50 * len(domains) * len(classes),
            classes=tuple(classes),
            domains={domain: dict.fromkeys(classes, 50) for domain in domains},
            task=task,
            labels={} if task == "classification" else {d: _labels(task, classes) for d in domains},
        ),
        ranking=ranking,
        selection=replace(_selection(rng, names[:3], classes), task=task),
        evaluation=_evaluation(rng, names, domains, target, task, classes),
        testbed=_testbed(rng, ranking) if task == "classification" else None,
    )


def _labels(task: Kind, names: Sequence[str]) -> DomainLabels:
    if task == "regression":
        return DomainLabels(70, numbers=dict.fromkeys(names, Spread(-1.5, 2.25, -7.5, 4.5, 88.0)))
    return DomainLabels(70, without_label=3)


def without(run: Run, part: str) -> Run:
    """The run without one of its parts."""
    absent: dict[str, Any] = {part: None}
    return replace(run, **absent)


def _ranking(
    rng: random.Random,
    names: Sequence[str],
    domains: Sequence[str],
    score: str,
    target: bool,
    task: Kind,
) -> Ranking:
    rows = []
    for at, model in enumerate(names):
        skill = 1 - at / max(len(names), 2)
        folds = tuple(
            FoldRow(
                domain,
                score=0.3 * skill - 0.3 + rng.gauss(0, 0.05) if score in FOLD_SCORES else None,
                transfer=min(100.0, max(0.0, 60 * skill + rng.gauss(0, 8))),
                discriminability=0.35 * skill - 0.3 + rng.gauss(0, 0.05),
                stability=-1.5 * rng.random(),
                accuracy=_metric(rng, skill, task),
                balanced_accuracy=50.0,
            )
            for domain in domains
        )
        accuracy = fmean(fold.accuracy for fold in folds)
        discriminability = fmean(fold.discriminability for fold in folds)
        stability = fmean(fold.stability for fold in folds)
        zood = discriminability + stability / 21
        rows.append(
            Row(
                rank=at + 1,
                model=model,
                score=zood if score == "zood" else 2 * skill - 1,
                evidence=0.6 * skill - 0.8 + rng.gauss(0, 0.05),
                transfer=fmean(fold.transfer or 0.0 for fold in folds),
                discriminability=discriminability,
                stability=stability,
                expected_accuracy=accuracy,
                accuracy_interval=(accuracy - 14.25, accuracy + 14.25),
                rank_interval=(
                    (max(1, at - 5), min(len(names), at + 6)) if score in FOLD_SCORES else None
                ),
                tied=tuple(name for name in names[max(0, at - 3) : at + 4] if name != model),
                pareto_optimal=at % 5 == 0,
                folds=folds,
                feature_dim=1280,
                parameters=2_974_377 + at,
                milliseconds=17.929435617142776 / (at + 1),
                licence="apache-2.0",
                agreement=95 * skill if target else None,
            )
        )
    return Ranking(score, tuple(rows), task=task)


def _metric(rng: random.Random, skill: float, task: Kind) -> float:
    value = 30 + 45 * skill + rng.gauss(0, 12)
    if task == "regression":
        return value - 250 * (1 - skill) ** 2
    return min(100.0, max(5.0, value))


def _selection(
    rng: random.Random, models: Sequence[str], classes: Sequence[str]
) -> SelectionSummary:
    per_model = []
    for model in models:
        bins = (800, 40, *(rng.randrange(12) for _ in range(16)), 30, 310)
        per_model.append(ModelSelection(model, sum(bins), sum(bins[10:]), bins))
    features = sum(each.n_features for each in per_model)
    kept = sum(each.n_selected for each in per_model)
    return SelectionSummary(
        models=tuple(models),
        n_features=features,
        n_selected=kept,
        ratio=kept / features,
        per_model=tuple(per_model),
        per_class={
            label: ClassSelection(9 * len(models), dict.fromkeys(models, 9)) for label in classes
        },
        iterations=41,
        converged=True,
    )


def consistent_selection(models: Sequence[str], classes: Sequence[str]) -> SelectionSummary:
    """A selection of consistent features; the later a model, the more of its features are kept."""
    per_model = tuple(
        ModelSelection(model, 100, 5 * at, rank_histogram=(100 - 5 * at, *[0] * 18, 5 * at))
        for at, model in enumerate(models)
    )
    kept = sum(each.n_selected for each in per_model)
    counts = {each.model: each.n_selected for each in per_model}
    return SelectionSummary(
        models=tuple(models),
        n_features=100 * len(models),
        n_selected=kept,
        ratio=kept / (100 * len(models)),
        per_model=per_model,
        per_class={
            label: ClassSelection(
                kept if at == 0 else 0, counts if at == 0 else dict.fromkeys(counts, 0)
            )
            for at, label in enumerate(classes)
        },
        method="consistent",
        numbers_tried=(NumberTried(2, -1.5), NumberTried(kept, -0.25), NumberTried(99, None)),
    )


def evaluation_row(
    accuracy: Mapping[str, float],
    models: Sequence[str],
    task: Kind = "classification",
    outputs: Sequence[str] = (),
) -> EvaluationRow:
    """A row of an evaluation with three trials; each output is predicted better than the next."""
    cells = {}
    for domain, value in accuracy.items():
        trials = tuple(_measures(value + off, task) for off in (-2.0, 0.0, 2.0))
        cells[domain] = Cell(
            trials,
            tuple(models),
            1280 * len(models),
            2.5 * len(models),
            3_000_000 * len(models),
            outputs=_outputs(value, task, outputs),
        )
    return EvaluationRow(cells)


def _outputs(value: float, task: Kind, names: Sequence[str]) -> Outputs:
    if task == "classification" or len(names) < 2:
        return {}
    first = {name: value - 5 * at for at, name in enumerate(names)}
    if task == "multilabel":
        return {name: {"average_precision": each} for name, each in first.items()}
    return {n: {"explained_variance": v, "absolute_error": 0.02} for n, v in first.items()}


def _measures(value: float, task: Kind) -> Any:
    others = {
        "classification": (value - 1, 7.2),
        "regression": (0.01234,),
        "multilabel": (value - 20,),
    }
    return task_of(task).measures(value, *others[task])


def _evaluation(
    rng: random.Random,
    names: Sequence[str],
    domains: Sequence[str],
    target: bool,
    task: Kind,
    outputs: Sequence[str],
) -> Evaluation:
    """An evaluation that chooses a pool, but a selection for the last of several domains."""
    hardness = {domain: rng.uniform(-14, 14) for domain in domains}

    def row(level: float, k: int) -> EvaluationRow:
        accuracy = {
            d: min(97.5, max(3.0, level + h + rng.gauss(0, 1.5))) for d, h in hardness.items()
        }
        if task == "regression" and level < 66:
            accuracy = {domain: value - 200 for domain, value in accuracy.items()}
        return evaluation_row(accuracy, names[:k], task, outputs)

    ratio = dict.fromkeys(domains, 0.213)
    single, pool, ensemble, selection = row(68, 1), row(75, 4), row(73, 3), row(74, len(names))
    return Evaluation(
        protocol="fast",
        score="unseen",
        top_k=3,
        trials=3,
        domains=tuple(domains),
        recommended=_recommended(names[:4], pool, selection),
        single=single,
        pool=pool,
        ensemble=ensemble,
        selection=selection,
        feature_ratio=ratio,
        with_target={"pool": row(79, 5)} if target else {},
        baselines={
            "random_features": row(66, len(names)),
            "oracle": row(76, 1),
            "paper_selection": row(72, 3),
            "best_by_logme": row(65, 1),
        },
        ablation={
            k: Aggregation(row(66 + 2 * k, k), row(67 + 2 * k, k), ratio) for k in (1, 2, 3, 5)
        },
        task=task,
        diagnosis=_diagnosis(outputs, domains) if task == "classification" else {},
        learning_curve=_curve(names[0], domains, task_of(task).metric),
        advice=(
            Advice("more_images", "More images would hardly help.", 0.25),
            Advice("more_domains", "A further domain would probably help.", 2.5),
            Advice("fine_tuning", "Fine-tuning may help: measure it."),
            Advice("budget", "With at most 3 ms per image: a smaller model.", -4.0),
        ),
    )


def _diagnosis(classes: Sequence[str], domains: Sequence[str]) -> dict[str, ClassDiagnosis]:
    """Predictions that are the better, the later a domain."""
    accuracy = {domain: 60 + 35 * at / len(domains) for at, domain in enumerate(domains)}
    return example_diagnoses(classes, accuracy, 30 if len(classes) < 50 else 5)


def _curve(model: str, domains: Sequence[str], metric: str) -> LearningCurve:
    """A curve that rises by less and less."""
    points = [
        CurvePoint(
            images, 60 + gain, {domain: 60.0 + gain + at for at, domain in enumerate(domains)}
        )
        for images, gain in ((4.5, 0.0), (9.0, 5.0), (18.0, 8.0), (36.0, 8.25))
    ]
    return LearningCurve(tuple(points), model, metric)


def _recommended(
    models: Sequence[str], pool: EvaluationRow, selection: EvaluationRow
) -> Recommended:
    choices = dict.fromkeys(pool.cells, "pool")
    if len(choices) > 1:
        choices[list(choices)[-1]] = "selection"
    rows = {"pool": pool, "selection": selection}
    accuracy = {domain: rows[choice].cells[domain].accuracy for domain, choice in choices.items()}
    average = fmean(accuracy.values())
    return Recommended(
        choice="pool",
        models=tuple(models),
        average=average,
        interval=(average - 20.0, average + 20.0),
        domains=accuracy,
        choices=choices,
        estimates={"single": 71.0, "pool": 78.25, "ensemble": 76.0, "selection": 77.5},
    )


def _testbed(rng: random.Random, ranking: Ranking) -> TestBed:
    accuracy = {row.model: row.expected_accuracy - 2 for row in ranking.rows}
    scores = {}
    for at, (name, title) in enumerate(SCORES.items()):
        values: dict[str, float | None] = {
            model: value / 100 + rng.gauss(0, 0.02 * (at + 1)) for model, value in accuracy.items()
        }
        if name == "leep":
            values[next(iter(values))] = None
        tau = 0.9 - 0.08 * at
        scores[name] = ScoreResult(
            values=values,
            title=title,
            models=sum(value is not None for value in values.values()),
            weighted_tau=tau,
            tau=tau - 0.1,
            interval=(tau - 0.2, min(1.0, tau + 0.15)),
            tau_interval=(tau - 0.3, tau),
            common=tau,
            regret=0.7 * at,
        )
    ties = (("zood", "accuracy"), ("lda", "zood"), ("knn", "lda"))
    return TestBed({"name": "photos"}, accuracy, scores, ties)
