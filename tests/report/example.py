"""The record of a run that never happened, of any size: its figures are drawn, not measured."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean
from typing import Any

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
) -> dict[str, Any]:
    """All parts, following the schema of `run.json`."""
    rng = random.Random(0)
    names = list(models or [f"model_{at:03d}_imagenet" for at in range(n_models)])
    ranking = _ranking(rng, names, domains)
    return {
        "schema": 1,
        "command": "oodzoo run photos/ --zoo zoo.toml --out job/",
        "versions": {
            "oodzoo": "0.1.0",
            "python": "3.11.2",
            "numpy": "2.3.4",
            "onnxruntime": "1.23.2",
        },
        "machine": {"cores": 2, "system": "Linux-6.1-x86_64"},
        "settings": {"top_k": [1, 2, 3, 5], "score": "zood", "protocol": "fast"},
        "seed": 0,
        "data": {
            "path": "photos/",
            "fingerprint": "a3" * 32,
            "images": 50 * len(domains) * len(classes),
            "classes": list(classes),
            "domains": {
                domain: {"images": 50 * len(classes), "classes": dict.fromkeys(classes, 50)}
                for domain in domains
            },
            "skipped": 0,
        },
        "stages": [
            {"name": "extract", "seconds": 421.4, "skipped": False},
            {"name": "rank", "seconds": 2.31, "skipped": True},
            {"name": "select", "seconds": 15.2, "skipped": False},
        ],
        "ranking": ranking,
        "selection": _selection(rng, names[:3], classes),
        "evaluation": _evaluation(rng, names, domains),
        "testbed": _testbed(rng, ranking),
    }


def _ranking(rng: random.Random, names: Sequence[str], domains: Sequence[str]) -> dict[str, Any]:
    rows = []
    for at, model in enumerate(names):
        skill = 1 - at / max(len(names), 2)
        folds = [
            {
                "domain": domain,
                "score": 0.3 * skill - 0.3 + rng.gauss(0, 0.05),
                "discriminability": 0.35 * skill - 0.3 + rng.gauss(0, 0.05),
                "stability": -1.5 * rng.random(),
                "accuracy": min(100.0, max(5.0, 30 + 45 * skill + rng.gauss(0, 12))),
                "balanced_accuracy": 50.0,
                "skipped": [],
            }
            for domain in domains
        ]

        def mean(term: str, folds: list[dict[str, Any]] = folds) -> float:
            return fmean(fold[term] for fold in folds)

        accuracy = mean("accuracy")
        rows.append(
            {
                "rank": at + 1,
                "model": model,
                "score": mean("discriminability") + mean("stability") / 21,
                "discriminability": mean("discriminability"),
                "stability": mean("stability"),
                "expected_accuracy": accuracy,
                "accuracy_interval": [accuracy - 14.25, accuracy + 14.25],
                "rank_interval": [max(1, at - 5), min(len(names), at + 6)],
                "tied": [name for name in names[max(0, at - 3) : at + 4] if name != model],
                "pareto_optimal": at % 5 == 0,
                "folds": folds,
                "feature_dim": 1280,
                "parameters": 2_974_377 + at,
                "milliseconds": 17.929435617142776 / (at + 1),
            }
        )
    return {"score": "zood", "ranking": rows, "left_out": {}}


def _selection(rng: random.Random, models: Sequence[str], classes: Sequence[str]) -> dict[str, Any]:
    per_model: list[dict[str, Any]] = []
    for model in models:
        bins = [800, 40, *(rng.randrange(12) for _ in range(16)), 30, 310]
        per_model.append(
            {
                "model": model,
                "n_features": sum(bins),
                "n_selected": sum(bins[10:]),
                "inclusion_histogram": bins,
            }
        )
    features = sum(row["n_features"] for row in per_model)
    kept = sum(row["n_selected"] for row in per_model)
    return {
        "models": list(models),
        "n_features": features,
        "n_selected": kept,
        "ratio": kept / features,
        "per_model": per_model,
        "per_class": {
            label: {"n_selected": 9 * len(models), "per_model": dict.fromkeys(models, 9)}
            for label in classes
        },
        "iterations": 41,
        "converged": True,
    }


def _evaluation(rng: random.Random, names: Sequence[str], domains: Sequence[str]) -> dict[str, Any]:
    hardness = {domain: rng.uniform(-14, 14) for domain in domains}

    def row(level: float, k: int) -> dict[str, Any]:
        accuracy = {
            d: min(99.5, max(3.0, level + h + rng.gauss(0, 1.5))) for d, h in hardness.items()
        }
        return {
            "average": fmean(accuracy.values()),
            "domains": accuracy,
            "balanced": {"average": level - 1, "domains": {d: a - 1 for d, a in accuracy.items()}},
            "calibration_error": {"average": 7.2, "domains": dict.fromkeys(domains, 7.2)},
            "error": {"average": 0.61, "domains": dict.fromkeys(domains, 1.3)},
            "models": {domain: list(names[:k]) for domain in domains},
            "n_features": dict.fromkeys(domains, 1280 * k),
        }

    ratio = {"average": 0.213, "domains": dict.fromkeys(domains, 0.213)}
    return {
        "protocol": "fast",
        "score": "zood",
        "top_k": 3,
        "trials": 3,
        "domains": list(domains),
        "single": row(68, 1),
        "ensemble": row(73, 3),
        "selection": row(74, 3),
        "feature_ratio": ratio,
        "baselines": {
            "random_features": row(66, 3),
            "oracle": row(76, 1),
            "best_by_logme": row(65, 1),
        },
        "ablation": [
            {
                "top_k": k,
                "ensemble": row(66 + 2 * k, k),
                "selection": row(67 + 2 * k, k),
                "feature_ratio": ratio,
            }
            for k in (1, 2, 3, 5)
        ],
    }


def _testbed(rng: random.Random, ranking: dict[str, Any]) -> dict[str, Any]:
    accuracy = {row["model"]: row["expected_accuracy"] - 2 for row in ranking["ranking"]}
    scores = {}
    for at, (name, title) in enumerate(SCORES.items()):
        values: dict[str, float | None] = {
            model: value / 100 + rng.gauss(0, 0.02 * (at + 1)) for model, value in accuracy.items()
        }
        if name == "leep":
            values[next(iter(values))] = None
        tau = 0.9 - 0.08 * at
        scores[name] = {
            "values": values,
            "weighted_tau": tau,
            "tau": tau - 0.1,
            "interval": [tau - 0.2, min(1.0, tau + 0.15)],
            "regret": 0.7 * at,
            "seconds": 0.2 * at,
            "models": sum(value is not None for value in values.values()),
            "title": title,
        }
    return {
        "schema": 1,
        "models": list(accuracy),
        "accuracy": accuracy,
        "scores": scores,
        "indistinguishable": [["oodzoo", "accuracy"], ["lda", "zood"], ["knn", "lda"]],
    }
