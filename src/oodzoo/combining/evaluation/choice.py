"""Everything decided and trained for a held-out domain before it is scored, with either protocol.

Nothing here has access to the labels of the held-out domain: the input is a
:class:`~oodzoo.combining.combination.Training`, and a trainer that knows the place and the size of
the held-out domain. The exception is DomainBed's oracle, which only selects among trained heads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.combination import Training
from oodzoo.combining.one_head import fit_columns
from oodzoo.combining.predictions import ZERO_SHOT, Head, Outputs
from oodzoo.combining.selection import SELECTION, select_features
from oodzoo.combining.ways import Decision, decide
from oodzoo.core.events import Log, part, tracked
from oodzoo.core.text import count
from oodzoo.extraction.columns import Columns, Samples
from oodzoo.extraction.features import FeatureSource, groups_of
from oodzoo.linear.heads.domainbed import sweep
from oodzoo.linear.heads.domainbed.protocol import RULES, Split, split
from oodzoo.linear.heads.kinds import fit_head_of
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.ranking import scores
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
        source, every = view.source, np.arange(view.n_test)
        if trials == 1:
            return [TrainedHead(fit_columns(source, columns), every)]
        samples, groups = columns.samples(source, source.domains), view.groups()
        heads = []
        for trial in range(trials):
            rows = _inside(samples, view, trial)
            part = Samples(samples.features[rows], samples.labels[rows], samples.domains[rows])
            some = [groups[row] for row in rows.tolist()]
            head = fit_head_of(source.task, part, len(source.classes), groups=some)
            heads.append(TrainedHead(head, every))
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


@dataclass(frozen=True, eq=False)
class Candidate:
    """Columns of some models, and how they predict the held-out domain.

    Attributes
    ----------
    columns : Columns
    heads : list of TrainedHead
        One per trial, trained on the columns.
    outputs : array (n, C), optional
        For the held-out domain, by heads that were trained before; there are no other heads then.
        They are log-probabilities, numbers or log-odds, see :class:`oodzoo.tasks.Task`.
    """

    columns: Columns
    heads: list[TrainedHead] = field(default_factory=list)
    outputs: Outputs | None = None

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules of DomainBed by which the heads can be selected; none without its search."""
        return tuple(self.heads[0].rules) if self.heads else ()

    def by(self, rule: str) -> Candidate:
        """The same columns with the heads that a rule of DomainBed selects."""
        return Candidate(self.columns, [h._replace(head=h.rules[rule]) for h in self.heads])


@dataclass(frozen=True)
class Choice:
    """Decisions made on the training domains for one held-out domain.

    Attributes
    ----------
    decision : Decision
    candidates : dict of str to Candidate
        The combinations, by name; and ``zero_shot``, the zero-shot head that is best on
        the training domains, if a model has one.
    ablation : dict of int to pair of Candidate
        All features of the best K models, and those that the paper's method selects, by K.
    singles : dict of str to Candidate
        All single models for the baselines, by name.
    best_by : dict of str to str
        The best model by other scores.
    random : list of Candidate
        Randomly drawn features of all models: as many as were selected.
    """

    decision: Decision
    candidates: dict[str, Candidate]
    ablation: dict[int, tuple[Candidate, Candidate]]
    singles: dict[str, Candidate]
    best_by: dict[str, str]
    random: list[Candidate]


def choose(
    training: Training,
    train: Callable[[Columns], list[TrainedHead]],
    *,
    top_k: Sequence[int],
    peers: Sequence[str] | None,
    ranking: Ranking | None = None,
    retrain: bool = False,
    seed: int = 0,
    log: Log = lambda message: None,
) -> Choice:
    """Decide how to combine the models, and train all heads for one held-out domain.

    Parameters
    ----------
    training : Training
    train : callable
        Trains one head per trial on some columns.
    top_k : sequence of int
        The numbers of models to compare; that of the combinations is in `training`.
    peers, ranking
        Baselines need the names of other scores, and the ranking of the training domains; there
        are none if `peers` is None.
    retrain : bool
        Whether single models are trained with `train`, too, instead of using the predictions of
        heads that are there.
    """
    source, order, device = training.source, training.order, training.device

    @cache
    def trained(key: str) -> Candidate:
        return Candidate(known[key], train(known[key]))

    known: dict[str, Columns] = {}

    def candidate(columns: Columns, outputs: Outputs | None = None) -> Candidate:
        if outputs is not None:
            return Candidate(columns, outputs=outputs)
        key = json.dumps(columns.to_dict())
        known[key] = columns
        return trained(key)

    def single(model: str) -> Candidate:
        outputs = None if retrain else training.heads.alone[model].test
        return candidate(Columns.all_of(source, [model]), outputs)

    log("comparing the combinations on held-out domains")
    with part(0.0, 0.35):
        decision = decide(training)
    candidates = {}
    with part(0.35, 0.45):
        for name, chosen in tracked(list(decision.chosen.items())):
            can_train = not chosen.weights
            outputs = None if can_train and retrain else chosen.test
            if outputs is None:
                log(f"training on {count(len(chosen.columns), 'feature')}: {name}")
            candidates[name] = candidate(chosen.columns, outputs)
    ablation = {}
    with part(0.45, 0.65):
        for k in tracked(top_k if peers is not None or len(top_k) > 1 else ()):
            best = order[0] if k == 1 else f"the best {k} models"
            log(f"training on all features of {best}, and on those selected as in the paper")
            found = select_features(source, order[:k], method="paper", device=device)
            ablation[k] = candidate(Columns.all_of(source, order[:k])), candidate(found.columns)
    singles, best_by, random = {}, {}, []
    if peers is not None and ranking is not None:
        log("ranking by other scores")
        with part(0.65, 0.8):
            best_by = best_by_scores(source, ranking, peers)
        log("training on random features")
        every = Columns.all_of(source, source.models)
        number = len(decision.chosen[SELECTION.name].columns)
        with part(0.8, 1.0):
            random = [candidate(c) for c in tracked(random_features(every, number, seed))]
        log(f"{count(len(order), 'single model')}")
        singles = {model: single(model) for model in order}
    if (best_zero_shot := _best_zero_shot(training)) is not None:
        candidates["zero_shot"] = best_zero_shot
    return Choice(decision, candidates, ablation, singles, best_by, random)


def _best_zero_shot(training: Training) -> Candidate | None:
    """The zero-shot head that is most accurate on the training domains, which weigh alike."""
    heads = training.heads

    def accuracy(head: Head) -> float:
        each = zip(heads.candidates[head].out_of_fold, heads.labels, strict=True)
        return float(np.mean([np.mean(p.argmax(axis=1) == labels) for p, labels in each]))

    known = [head for head in heads.candidates if head.kind == ZERO_SHOT]
    if not known:
        return None
    best = max(known, key=accuracy)
    columns = Columns.all_of(training.source, [best.model])
    return Candidate(columns, outputs=heads.candidates[best].test)


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
    for name in tracked(peers):
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
