"""Everything decided for a test domain before it is scored.

Nothing here has access to the test domain: the input is a
:class:`~oodzoo.evaluation.training.TrainingView` and a ranking of the training domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from oodzoo import scores
from oodzoo._text import count
from oodzoo.evaluation.training import TrainedHead, Trainer, TrainingView
from oodzoo.events import Log
from oodzoo.features.columns import Columns
from oodzoo.features.source import FeatureSource
from oodzoo.heads.linear import fit_head, left_out_accuracies
from oodzoo.ranking.result import Ranking
from oodzoo.scores.compute import compute_scores
from oodzoo.selection.select import select_features

AUTO_TOP_K = (1, 3, 5, 7)
"""Numbers of models to choose from on the training domains."""

FAST_PEERS = ("h_score", "lda", "leep", "logme", "nce", "regularized_h_score", "transrate")
"""Other scores that are fast to compute; others can be requested by name."""

RANDOM_DRAWS = 5


class Candidate(NamedTuple):
    """Columns of some models, and one head per trial trained on them."""

    columns: Columns
    heads: list[TrainedHead]


@dataclass(frozen=True)
class Choice:
    """Decisions made on the training domains for one test domain.

    Attributes
    ----------
    best : str
        The first model of the ranking.
    top_k : int
        Number of models concatenated in the main rows.
    ensembles, selections : dict
        All features of the best K models, and their selected features, by K.
    singles : dict
        Single models with all their features, by name: the best, or all for the baselines.
    best_by : dict
        The best model by other scores.
    random : list of Candidate
        Randomly drawn features: as many as were selected, from the same models.
    """

    best: str
    top_k: int
    ensembles: dict[int, Candidate]
    selections: dict[int, Candidate]
    singles: dict[str, Candidate]
    best_by: dict[str, str]
    random: list[Candidate]

    @property
    def ratios(self) -> dict[int, float]:
        """Share of features selected, by K."""
        return {
            k: len(selected.columns) / len(self.ensembles[k].columns)
            for k, selected in self.selections.items()
        }


def choose(
    view: TrainingView,
    ranking: Ranking,
    train: Trainer,
    *,
    top_k: Sequence[int] | None,
    main: int | None = None,
    peers: Sequence[str] | None,
    seed: int = 0,
    device: str | None = None,
    log: Log = lambda message: None,
) -> Choice:
    """Select features and train all heads for one test domain.

    `ranking` is that of the training domains. `top_k` are the numbers of models to concatenate,
    chosen on the training domains if None; `main` is the one for the main rows and for random
    features, the first if None. Baselines need the names of `peers`; there are none if None.
    """
    training = view.source
    order = [row.model for row in ranking.rows]
    known: dict[tuple[str, ...], Candidate] = {}

    def candidate(columns: Columns) -> Candidate:
        return Candidate(columns, train(view, columns))

    def all_features(models: Sequence[str]) -> Candidate:
        key = tuple(models)
        if key not in known:
            known[key] = candidate(Columns.all_of(training, models))
        return known[key]

    if top_k is None:
        log("choosing the number of models to concatenate")
        top_k = [choose_top_k(training, order)]
    main = top_k[0] if main is None else main
    ensembles, selections = {}, {}
    for k in top_k:
        log(f"training on all features of {_described(order[:k])}")
        ensembles[k] = all_features(order[:k])
        log(f"selecting features of {_described(order[:k])}")
        columns = select_features(training, order[:k], device=device).columns
        log(f"training on {count(len(columns), 'selected feature')}")
        selections[k] = candidate(columns)
    singles, best_by, random = {order[0]: all_features(order[:1])}, {}, []
    if peers is not None:
        log("ranking by other scores")
        best_by = best_by_scores(training, ranking, peers)
        log("training on random features")
        draws = random_features(ensembles[main].columns, len(selections[main].columns), seed)
        random = [candidate(columns) for columns in draws]
        log(f"training on each of {count(len(order), 'single model')}")
        singles = {model: all_features([model]) for model in order}
    return Choice(order[0], main, ensembles, selections, singles, best_by, random)


def best_by_scores(
    training: FeatureSource, ranking: Ranking, peers: Sequence[str]
) -> dict[str, str]:
    """Return the best model by each score that can be computed on the training domains."""
    table: dict[str, Mapping[str, float]] = {
        "accuracy": {
            row.model: float(np.mean([fold.accuracy for fold in row.folds])) for row in ranking.rows
        },
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


def random_features(columns: Columns, number: int, seed: int) -> list[Columns]:
    """Draw random subsets of columns without replacement."""
    sizes = [len(part) for part in columns.by_model.values()]
    draws = []
    for draw in range(RANDOM_DRAWS):
        rng = np.random.default_rng([seed, draw])
        mask = np.zeros(sum(sizes), bool)
        mask[rng.choice(len(mask), number, replace=False)] = True
        masks = np.split(mask, np.cumsum(sizes)[:-1])
        parts = zip(columns.by_model.items(), masks, strict=True)
        draws.append(Columns({model: part[drawn] for (model, part), drawn in parts}))
    return draws


def choose_top_k(
    training: FeatureSource, order: Sequence[str], numbers: Sequence[int] = AUTO_TOP_K
) -> int:
    """Return the number of best models with the highest accuracy on held-out training domains.

    The smallest one of several that are equally accurate. The order of the models and C of the
    head are those of all training domains.
    """
    accuracy, n_classes = {}, len(training.classes)
    for k in numbers:
        if k <= len(order):
            samples = Columns.all_of(training, order[:k]).samples(training, training.domains)
            C = fit_head(samples, n_classes).C
            accuracy[k] = float(np.mean(left_out_accuracies(samples, n_classes, C)))
    return max(accuracy, key=lambda k: (accuracy[k], -k))


def _described(models: Sequence[str]) -> str:
    return models[0] if len(models) == 1 else f"the best {len(models)} models"
