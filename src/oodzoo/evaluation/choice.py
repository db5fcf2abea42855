"""All that is decided for a test domain before it is looked at.

Nothing here is given the test domain: what is at hand is :class:`~oodzoo.evaluation.training.LeftOut`
and a ranking made without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo import scores
from oodzoo.evaluation.training import LeftOut, Train, Trained
from oodzoo.events import Log
from oodzoo.features.columns import Columns, Samples
from oodzoo.features.source import FeatureSource
from oodzoo.heads.linear import fit_head
from oodzoo.ranking.result import Ranking
from oodzoo.scores.compute import compute_scores
from oodzoo.selection.select import select_features

AUTO = (1, 3, 5, 7)
"""Numbers of models among which the training domains choose."""

PEERS = ("h_score", "lda", "leep", "logme", "nce", "regularized_h_score", "transrate")
"""Peer scores that take little time; the others can be asked for by name."""

RANDOM_DRAWS = 5


class Part(NamedTuple):
    """Features, and the heads trained on them, one for each trial."""

    columns: Columns
    trained: list[Trained]


@dataclass(frozen=True)
class Choice:
    """What the training domains have decided for one test domain.

    Attributes
    ----------
    top_k : int
        How many models the main rows put side by side.
    ensembles, selections : dict
        All features of the best K models and those that selection keeps of them, by K.
    singles : dict
        Single models with all their features, by name: the best, or all for the baselines.
    best_by : dict
        The best model by other scores.
    random : list of Part
        As many features as selection keeps, drawn from the same models.
    """

    best: str
    top_k: int
    ensembles: dict[int, Part]
    selections: dict[int, Part]
    singles: dict[str, Part]
    best_by: dict[str, str]
    random: list[Part]

    @property
    def ratios(self) -> dict[int, float]:
        """The share of features that selection keeps, by K."""
        parts = self.selections.items()
        return {k: len(part.columns) / len(self.ensembles[k].columns) for k, part in parts}


def choose(
    left_out: LeftOut,
    ranking: Ranking,
    train: Train,
    *,
    top_k: Sequence[int] | None,
    main: int | None = None,
    peers: Sequence[str] | None,
    seed: int = 0,
    device: str | None = None,
    say: Log = lambda message: None,
) -> Choice:
    """Rank, select and train for one test domain.

    Parameters
    ----------
    left_out : LeftOut
    ranking : Ranking
        Made by the training domains.
    train : Train
    top_k : sequence of int or None
        How many models to put side by side; chosen by the training domains if None.
    main : int, optional
        Of these, that of the main rows and of random features; the first if None.
    peers : sequence of str or None
        Scores for baselines; no baselines at all if None.
    seed : int
        Of random features.
    """
    training = left_out.training
    order = [row.model for row in ranking.rows]
    parts: dict[tuple[str, ...], Part] = {}

    def whole(models: Sequence[str]) -> Part:
        key = tuple(models)
        if key not in parts:
            kept = Columns.all_of(training, models)
            parts[key] = Part(kept, train(left_out, kept))
        return parts[key]

    if top_k is None:
        say("choosing how many models to put side by side")
        top_k = [best_number(training, order, [k for k in AUTO if k <= len(order)])]
    main = top_k[0] if main is None else main
    say(f"training on all features of {' and of '.join(_named(order[:k]) for k in top_k)}")
    ensembles = {k: whole(order[:k]) for k in top_k}
    selections = {}
    for k in top_k:
        say(f"selecting among the features of {_named(order[:k])}")
        kept = select_features(training, order[:k], device=device).columns
        say(f"training on the {len(kept)} features kept")
        selections[k] = Part(kept, train(left_out, kept))
    singles, best_by, random = {order[0]: whole(order[:1])}, {}, []
    if peers is not None:
        say("ranking by other scores")
        best_by = best_by_scores(training, ranking, peers)
        draws = random_features(ensembles[main].columns, len(selections[main].columns), seed)
        say("training on random features")
        random = [Part(kept, train(left_out, kept)) for kept in draws]
        say(f"training on each of {len(order)} models alone")
        singles = {model: whole([model]) for model in order}
    return Choice(order[0], main, ensembles, selections, singles, best_by, random)


def best_by_scores(
    training: FeatureSource, ranking: Ranking, peers: Sequence[str]
) -> dict[str, str]:
    """The best model by each score that the training domains allow."""
    table: dict[str, Mapping[str, float]] = {
        "accuracy": {row.model: row.expected_accuracy for row in ranking.rows},
        "discriminability": {row.model: row.discriminability for row in ranking.rows},
    }
    for name in peers:
        totals, _ = compute_scores(training, scores.get(name).name, training.domains)
        if totals:
            table[name] = totals
    return {
        name: min(totals, key=lambda model: (-totals[model], model))
        for name, totals in table.items()
        if name != ranking.score
    }


def random_features(kept: Columns, number: int, seed: int) -> list[Columns]:
    """Draws of some of the features, without replacement."""
    sizes = [len(columns) for columns in kept.by_model.values()]
    draws = []
    for draw in range(RANDOM_DRAWS):
        rng = np.random.default_rng([seed, draw])
        mask = np.zeros(sum(sizes), bool)
        mask[rng.choice(len(mask), number, replace=False)] = True
        pieces = np.split(mask, np.cumsum(sizes)[:-1])
        columns = {
            model: columns[piece]
            for (model, columns), piece in zip(kept.by_model.items(), pieces, strict=True)
        }
        draws.append(Columns(columns))
    return draws


def best_number(training: FeatureSource, order: Sequence[str], numbers: Sequence[int]) -> int:
    """How many of the best models do best on training domains left out in turn.

    Of equals the smallest. The order of the models is that of all training domains, and so is
    the strength of the head.
    """
    accuracy = {}
    for k in numbers:
        kept = Columns.all_of(training, order[:k])
        samples = kept.samples(training, training.domains)
        accuracy[k] = _left_out_accuracy(samples, len(training.classes))
    return max(accuracy, key=lambda k: (accuracy[k], -k))


def _left_out_accuracy(samples: Samples, n_classes: int) -> float:
    C = fit_head(samples, n_classes).C
    right = []
    for domain in np.unique(samples.domains):
        train, test = samples.domains != domain, samples.domains == domain
        head = fit_head(_rows(samples, train), n_classes, C=C)
        predicted = head.logits(samples.features[test]).argmax(axis=1)
        right.append(float(np.mean(predicted == samples.labels[test])))
    return float(np.mean(right))


def _rows(samples: Samples, mask: NDArray[np.bool_]) -> Samples:
    return Samples(samples.features[mask], samples.labels[mask], samples.domains[mask])


def _named(models: Sequence[str]) -> str:
    return models[0] if len(models) == 1 else f"{len(models)} models"
