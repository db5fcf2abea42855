"""Everything decided and trained for a held-out domain before it is scored, with either protocol.

Nothing here has access to the labels of the held-out domain: the input is a
:class:`~oodzoo.combining.evaluation.choice.TrainingView`, the order of the models there, and
predictions of heads that were trained on them. The exception is DomainBed's oracle, which only
selects among trained heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.decision import Decision, decide
from oodzoo.combining.predictions import ZERO_SHOT, Head, Heads
from oodzoo.combining.selection import select_features
from oodzoo.core.events import Log
from oodzoo.core.options import Limits
from oodzoo.core.text import count
from oodzoo.extraction.columns import Columns, Samples
from oodzoo.extraction.features import FeatureSource, groups_of
from oodzoo.linear.heads.domainbed.protocol import RULES, Split, split
from oodzoo.linear.heads.domainbed.sweep import sweep
from oodzoo.linear.heads.kinds import fit_head_of
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.ranking import scores
from oodzoo.ranking.constraints import choose_top_k
from oodzoo.ranking.ranking import Ranking
from oodzoo.ranking.scores.catalogue import compute_scores


@dataclass(frozen=True)
class TrainingView:
    """Training view without the held-out domain, but for its place, size and groups."""

    position: int
    n_test: int
    source: FeatureSource
    """The training domains only."""
    test_groups: Sequence[str | None] | None = None
    """The group of each test sample: the in-split of the held-out domain keeps groups whole."""

    @classmethod
    def without(cls, source: FeatureSource, test: str) -> TrainingView:
        others = [domain for domain in source.domains if domain != test]
        position, n_test = source.domains.index(test), len(source.labels(test))
        return cls(position, n_test, source.only(others), source.groups(test))

    def groups(self) -> list[str | None]:
        """The group of each sample of the training domains."""
        return groups_of(self.source, self.source.domains)

    def test_split(self, trial: int) -> Split:
        """Split the held-out domain in a trial."""
        return split(self.n_test, trial, self.position, self.test_groups)


class TrainedHead(NamedTuple):
    """Head of one trial, and the rows of the held-out domain to score it on.

    `rules` has the heads that DomainBed's rules select, by rule; `head` is one of them.
    """

    head: LinearHead
    rows: NDArray[np.int64]
    rules: Mapping[str, LinearHead] = MappingProxyType({})


Trainer = Callable[[TrainingView, Columns], list[TrainedHead]]
"""Trains one head per trial on some columns."""

Oracle = Callable[[Columns, Sequence[LinearHead], NDArray[np.int64]], LinearHead]
"""Finds the head that is most accurate on rows of the held-out domain: DomainBed's oracle."""


def fast_trainer(trials: int) -> Trainer:
    """Linear heads as :func:`~oodzoo.linear.heads.kinds.fit_head_of` fits them.

    A single trial trains on all samples. With several, each trains on the 80 % of every training
    domain in DomainBed's split of that trial. All are scored on the whole held-out domain.
    """

    def train(view: TrainingView, columns: Columns) -> list[TrainedHead]:
        samples = columns.samples(view.source, view.source.domains)
        task, n_outputs = view.source.task, len(view.source.classes)
        every, groups = np.arange(view.n_test), view.groups()
        heads = []
        for trial in range(trials):
            part, some = samples, groups
            if trials > 1:
                rows = _inside(samples, view, trial)
                part = Samples(samples.features[rows], samples.labels[rows], samples.domains[rows])
                some = [groups[row] for row in rows.tolist()]
            heads.append(TrainedHead(fit_head_of(task, part, n_outputs, groups=some), every))
        return heads

    return train


def domainbed_trainer(
    trials: int,
    draws: int,
    steps: int,
    seed: int = 0,
    device: str | None = None,
    search_space: str = "default",
    selection: str = "leave-one-domain-out",
    oracle: Oracle | None = None,
) -> Trainer:
    """DomainBed's random search, with one of its selection rules.

    A trial is scored on its in-split of the held-out domain, as in DomainBed. Only the rule
    "oracle" sees the held-out domain, by `oracle`; there is no such rule without it.
    """

    def train(view: TrainingView, columns: Columns) -> list[TrainedHead]:
        found = sweep(
            _with_blank_test_domain(columns.samples(view.source, view.source.domains), view),
            len(view.source.classes),
            groups=[*view.groups(), *(view.test_groups or [None] * view.n_test)],
            test_domains=[view.position],
            trials=trials,
            draws=draws,
            steps=steps,
            search_space=search_space,
            seed=seed,
            device=device,
        )
        at, splits = view.position, [view.test_split(trial) for trial in range(trials)]
        heads = {r: [c.head for c in found.chosen(r)[at]] for r in RULES if r != "oracle"}
        if oracle is not None:
            heads["oracle"] = [
                oracle(columns, found.last(at, trial), each.outside)
                for trial, each in enumerate(splits)
            ]
        return [
            TrainedHead(heads[selection][trial], each.inside, {r: heads[r][trial] for r in heads})
            for trial, each in enumerate(splits)
        ]

    return train


def _inside(samples: Samples, view: TrainingView, trial: int) -> NDArray[np.int64]:
    """The rows of the in-split of each training domain in a trial."""
    positions = _positions(samples, view)
    parts = []
    for position, domain in zip(np.unique(positions), view.source.domains, strict=True):
        rows = np.flatnonzero(positions == position)
        groups = view.source.groups(domain)
        parts.append(rows[split(len(rows), trial, int(position), groups).inside])
    return np.sort(np.concatenate(parts))


def _with_blank_test_domain(samples: Samples, view: TrainingView) -> Samples:
    """Append zeros in place of the held-out domain, which the sweep expects among the domains."""
    blank = np.zeros((view.n_test, samples.features.shape[1]), samples.features.dtype)
    return Samples(
        np.concatenate([samples.features, blank]),
        np.concatenate([samples.labels, np.zeros(view.n_test, np.int64)]),
        np.concatenate([_positions(samples, view), np.full(view.n_test, view.position)]),
    )


def _positions(samples: Samples, view: TrainingView) -> NDArray[np.int64]:
    """Domain of each sample, as its position among all domains including the held-out domain."""
    return samples.domains + (samples.domains >= view.position)


FAST_PEERS = ("h_score", "lda", "leep", "logme", "nce", "regularized_h_score", "transrate")
"""Other scores that are fast to compute; others can be requested by name."""

RANDOM_DRAWS = 5


class Candidate(NamedTuple):
    """Columns of some models, and one head per trial trained on them."""

    columns: Columns
    heads: list[TrainedHead]

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules of DomainBed by which the heads can be selected; none without its search."""
        return tuple(self.heads[0].rules)

    def by(self, rule: str) -> Candidate:
        """The same columns with the heads that a rule of DomainBed selects."""
        return Candidate(self.columns, [h._replace(head=h.rules[rule]) for h in self.heads])


class Predicted(NamedTuple):
    """Outputs (n, C) for the held-out domain, and the models and features they come from.

    Outputs are log-probabilities, numbers or log-odds, see :mod:`oodzoo.linear.heads.outputs`.
    """

    models: tuple[str, ...]
    n_features: int
    outputs: NDArray[np.floating]


@dataclass(frozen=True)
class Choice:
    """Decisions made on the training domains for one held-out domain.

    Attributes
    ----------
    decision : Decision
    top_k : int
        Number of models of the ensemble in the main rows.
    pool : Predicted
    ensembles, paper_selections : dict
        All features of the best K models, and those that the paper's method selects, by K.
    selection : Candidate
        The features selected from all models.
    selection_ratio : float
        Share of the features of all models.
    singles : dict
        Single models with all their features, by name: the best, or all for the baselines.
    best_by : dict
        The best model by other scores.
    random : list of Candidate
        Randomly drawn features of all models: as many as were selected.
    zero_shot : Predicted, optional
        The zero-shot head that is best on the training domains, if a model has one.
    """

    decision: Decision
    top_k: int
    pool: Predicted
    ensembles: dict[int, Candidate]
    paper_selections: dict[int, Candidate]
    selection: Candidate
    selection_ratio: float
    singles: dict[str, Candidate | Predicted]
    best_by: dict[str, str]
    random: list[Candidate]
    zero_shot: Predicted | None = None

    @property
    def paper_ratios(self) -> dict[int, float]:
        """Share of the features of the best K models that the paper's method selects, by K."""
        return {
            k: len(selected.columns) / len(self.ensembles[k].columns)
            for k, selected in self.paper_selections.items()
        }


def choose(
    view: TrainingView,
    order: Sequence[str],
    heads: Heads,
    train: Trainer,
    *,
    top_k: Sequence[int] | None,
    main: int | None = None,
    limits: Limits | None = None,
    peers: Sequence[str] | None,
    ranking: Ranking | None = None,
    retrain: bool = False,
    seed: int = 0,
    device: str | None = None,
    log: Log = lambda message: None,
) -> Choice:
    """Decide how to combine the models, and train all heads for one held-out domain.

    `order` has the models, the best first, and `heads` their predictions, on the training domains.
    `top_k` are the numbers of models to concatenate, chosen on the training domains if None; `main`
    is the one for the main rows, the first if None. Baselines need the names of `peers` and the
    `ranking` of the training domains; there are none if `peers` is None. `retrain` trains the heads
    of single models with `train`, instead of using the predictions of `heads`.
    """
    training = view.source

    def candidate(columns: Columns) -> Candidate:
        return Candidate(columns, train(view, columns))

    def single(model: str) -> Candidate | Predicted:
        if retrain:
            return candidate(Columns.all_of(training, [model]))
        width = training.facts(model).feature_dim
        return Predicted((model,), width, _test(heads.alone[model].test))

    if top_k is None:
        log("choosing the number of models to concatenate")
        top_k = [choose_top_k(training, order)]
    main = top_k[0] if main is None else main
    log("choosing a pool, selecting features, comparing on held-out domains")
    decision = decide(training, order, heads, top_k=main, limits=limits, device=device)
    log(f"training on {count(len(decision.selection), 'selected feature')}")
    selection = candidate(decision.selection)
    ensembles, paper_selections = {}, {}
    for k in top_k:
        log(f"training on all features of {_described(order[:k])}")
        ensembles[k] = candidate(Columns.all_of(training, order[:k]))
        if peers is not None or len(top_k) > 1:
            log(f"selecting features of {_described(order[:k])} as in the paper")
            found = select_features(training, order[:k], method="paper", device=device)
            paper_selections[k] = candidate(found.columns)
    every = Columns.all_of(training, training.models)
    singles, best_by, random = {decision.best: single(decision.best)}, {}, []
    if peers is not None and ranking is not None:
        log("ranking by other scores")
        best_by = best_by_scores(training, ranking, peers)
        log("training on random features")
        random = [candidate(c) for c in random_features(every, len(decision.selection), seed)]
        log(f"{count(len(order), 'single model')}")
        singles = {model: single(model) for model in order}
    pool = decision.pool
    widths = sum(training.facts(model).feature_dim for model in pool.models)
    return Choice(
        decision,
        main,
        Predicted(pool.models, widths, _test(pool.test)),
        ensembles,
        paper_selections,
        selection,
        len(decision.selection) / len(every),
        singles,
        best_by,
        random,
        _best_zero_shot(training, heads),
    )


def _best_zero_shot(training: FeatureSource, heads: Heads) -> Predicted | None:
    """The zero-shot head that is most accurate on the training domains, which weigh alike."""

    def accuracy(head: Head) -> float:
        each = zip(heads.candidates[head].out_of_fold, heads.labels, strict=True)
        return float(np.mean([np.mean(p.argmax(axis=1) == labels) for p, labels in each]))

    known = [head for head in heads.candidates if head.kind == ZERO_SHOT]
    if not known:
        return None
    best = max(known, key=accuracy)
    width = training.facts(best.model).feature_dim
    return Predicted((best.model,), width, _test(heads.candidates[best].test))


def _test(predictions: NDArray[np.floating] | None) -> NDArray[np.floating]:
    if predictions is None:
        raise ValueError("the heads have no predictions for a held-out domain")
    return predictions


def best_by_scores(
    training: FeatureSource, ranking: Ranking, peers: Sequence[str]
) -> dict[str, str]:
    """Return the best model by each score that can be computed on the training domains."""
    table: dict[str, Mapping[str, float]] = {
        training.task.metric: {
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


def _described(models: Sequence[str]) -> str:
    return models[0] if len(models) == 1 else f"the best {len(models)} models"
