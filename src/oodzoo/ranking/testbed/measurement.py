"""Everything that a test bed compares: accuracies of heads, and scores of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.events import Progress
from oodzoo.extraction.cache import Arrays
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.source import Facts, FeatureSource, Shard, groups_of
from oodzoo.linear.heads.linear import fit_head
from oodzoo.linear.heads.paths import C_GRID
from oodzoo.ranking import scores
from oodzoo.ranking.folds import Stability
from oodzoo.ranking.ranker import rank, rank_for_test_domains
from oodzoo.ranking.scores import Score
from oodzoo.ranking.scores.compute import compute_score, is_own
from oodzoo.ranking.terms import FOLD_SCORES
from oodzoo.ranking.testbed.bed import Column
from oodzoo.store.class_embeddings import ClassEmbeddings

Protocol = Literal["unseen", "all"]
Reasons = dict[str, dict[str, str]]

BASELINES = ("parameters", "feature_dim")
PAPER = "zood_paper"
TITLES = {
    "unseen": "Score for an unseen domain",
    "transfer": "Transfer between domains",
    "zood": "ZooD",
    PAPER: "ZooD, as printed in the paper",
    "discriminability": "Discriminability",
    "stability": "Stability",
    "accuracy": "Expected accuracy on an unseen domain",
    "balanced_accuracy": "Expected class-balanced accuracy on an unseen domain",
    "parameters": "Number of parameters",
    "feature_dim": "Number of features",
    "source_accuracy": "Published accuracy on ImageNet",
}

HEAD = "logistic regression, C chosen on the training domains"


def head_accuracy(
    source: FeatureSource, model: str, test: str, *, tested: FeatureSource | None = None
) -> float:
    """Measure the accuracy on a test domain, in percent, of a head trained on the other domains.

    The head is a linear probe, a logistic regression (:func:`oodzoo.linear.heads.linear.fit_head`),
    with C chosen on the training domains. The accuracy is cached in the store.

    Parameters
    ----------
    source : FeatureSource
    model, test : str
        Name of the model and of the test domain.
    tested : FeatureSource, optional
        Source of the samples to test on, if it is another one; with the same classes.
    """

    def compute() -> dict[str, np.ndarray]:
        return {"accuracy": np.array(_measured_accuracy(source, model, test, tested or source))}

    found = source.cached("head-accuracy", [model], compute, settings=f"{test!r}, {C_GRID}")
    return float(found["accuracy"])


def _measured_accuracy(
    source: FeatureSource, model: str, test: str, tested: FeatureSource
) -> float:
    training = [domain for domain in source.domains if domain != test]
    columns = Columns.all_of(source, [model])
    samples = columns.samples(source, training)
    present = np.unique(samples.labels)
    if len(present) < 2:
        raise InputError(
            f"the domains other than {test!r} have only the class {source.classes[present[0]]!r}; "
            "a head needs at least two classes to train on"
        )
    head = fit_head(samples, len(source.classes), groups=groups_of(source, training))
    unseen = columns.samples(tested, [test])
    right = head.logits(unseen.features).argmax(axis=1) == unseen.labels
    return 100 * float(np.mean(right))


class MemoisedSource(FeatureSource):
    """A view of a source for several rankings, in which the folds of a model are computed once.

    Features in memory have no cache, and folds that give a warning are not kept in that of a store.
    Moments, which are large, are not kept in memory.
    """

    def __init__(self, source: FeatureSource) -> None:
        self._source = source
        self.models = source.models
        self.domains = source.domains
        self.classes = source.classes
        self.task = source.task
        self._results: dict[tuple[str, ...], Arrays] = {}

    def shards(self, model: str, domain: str) -> Iterator[Shard]:
        return self._source.shards(model, domain)

    def labels(self, domain: str) -> NDArray[np.int64]:
        return self._source.labels(domain)

    def groups(self, domain: str) -> Sequence[str | None] | None:
        return self._source.groups(domain)

    def logits(self, model: str, domain: str) -> NDArray[Any] | None:
        return self._source.logits(model, domain)

    def class_embeddings(self, model: str) -> ClassEmbeddings | None:
        return self._source.class_embeddings(model)

    def facts(self, model: str) -> Facts:
        return self._source.facts(model)

    @property
    def provenance(self) -> dict[str, str]:
        return self._source.provenance

    def only(self, domains: Sequence[str]) -> FeatureSource:
        return self._source.only(domains)

    def cached(
        self,
        kind: str,
        models: Sequence[str],
        compute: Callable[[], Arrays],
        *,
        domains: Sequence[str] | None = None,
        settings: str = "",
        keep: Callable[[Arrays], bool] = lambda _: True,
    ) -> Arrays:
        def read() -> Arrays:
            return self._source.cached(
                kind, models, compute, domains=domains, settings=settings, keep=keep
            )

        if kind == "moments":
            return read()
        key = (kind, settings, *models, *(domains or self.domains))
        if key not in self._results:
            self._results[key] = read()
        return self._results[key]


@dataclass(frozen=True)
class Measurement:
    """Accuracies and scores of all models.

    Attributes
    ----------
    accuracy : dict
        Accuracy of each model on each test domain, in percent.
    columns : dict
        Scores by name.
    left_out : dict
        For each score, the models that lack it and the reason.
    """

    accuracy: dict[str, dict[str, float]]
    columns: dict[str, Column]
    left_out: Reasons

    @property
    def mean_accuracy(self) -> dict[str, float]:
        """Accuracy of each model, averaged over test domains."""
        models = next(iter(self.accuracy.values()))
        return {m: float(np.mean([there[m] for there in self.accuracy.values()])) for m in models}


def measure(
    source: FeatureSource,
    protocol: Protocol = "unseen",
    *,
    tested: FeatureSource | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Measurement:
    """Compute the accuracies of heads and every score, or read them from the cache of the source.

    Parameters
    ----------
    source : FeatureSource
        What the scores are computed on, and the heads are trained on.
    protocol : {"unseen", "all"}
        Compute scores for each test domain on the other domains, or once on all domains.
    tested : FeatureSource, optional
        What the heads are tested on, if it is another source.
    device : str, optional
        Compute with NumPy if None, else with PyTorch on this device ("cuda").
    progress : callable, optional
        Called with the numbers of steps done and in total.
    """
    memoised = MemoisedSource(source)
    own = (*FOLD_SCORES, PAPER)
    steps = _steps(len(source.models) + len(own), progress)
    accuracy: dict[str, dict[str, float]] = {domain: {} for domain in source.domains}
    peers = _Peers(source, protocol, device)
    for model in source.models:
        next(steps)
        for domain, accuracies in accuracy.items():
            accuracies[model] = head_accuracy(source, model, domain, tested=tested)
        peers.compute(model)
    columns = {}
    for score in own:
        next(steps)
        columns[score] = _own_column(memoised, score, protocol, device)
    columns |= peers.columns() | _baselines(source)
    return Measurement(accuracy, columns, peers.left_out)


def _own_column(
    source: FeatureSource, score: str, protocol: Protocol, device: str | None
) -> Column:
    """Compute a score of a ranking for all models at once: it may depend on all of them."""
    stability: Stability = "paper" if score == PAPER else "robust"
    name = "zood" if score == PAPER else score
    title = TITLES.get(score, score)
    if protocol == "all":
        ranking = rank(source, score=name, stability=stability, device=device)
        return Column({row.model: row.score for row in ranking.rows}, title)
    rankings = rank_for_test_domains(source, score=name, stability=stability, device=device)
    by_domain = {t: {row.model: row.score for row in r.rows} for t, r in rankings.items()}
    return Column.averaged(by_domain, title)


class _Peers:
    """Registered scores of one model after the other."""

    def __init__(self, source: FeatureSource, protocol: Protocol, device: str | None) -> None:
        self._source = source
        self._device = device
        self._unseen = protocol == "unseen"
        # the domains that scores are computed on, for each test domain or for all of them
        self._training = {"": tuple(source.domains)}
        if self._unseen:
            self._training = {t: tuple(d for d in source.domains if d != t) for t in source.domains}
        self._scores = [scores.get(name) for name in scores.names()]
        self._values: dict[str, dict[str, dict[str, float | None]]] = {
            score.name: {test: {} for test in self._training} for score in self._scores
        }
        self.left_out: Reasons = {}

    def compute(self, model: str) -> None:
        """Compute all scores of a model, or note why one cannot be computed."""
        for score in self._scores:
            found: dict[str, float | None]
            try:
                values = self._values_of(score, model)
                found = dict(zip(self._training, values, strict=True))
            except InputError as error:
                self.left_out.setdefault(score.name, {})[model] = str(error)
                found = dict.fromkeys(self._training)
            for test, value in found.items():
                self._values[score.name][test][model] = value

    def columns(self) -> dict[str, Column]:
        """Return all scores that at least one model has."""
        columns = {}
        for score in self._scores:
            title = score.title or score.name
            column = Column.averaged(self._values[score.name], title)
            if not self._unseen:
                column = Column(column.values, title)
            if any(value is not None for value in column.values.values()):
                columns[score.name] = column
        return columns

    def _values_of(self, score: Score, model: str) -> list[float]:
        """The score on the training domains of each test domain."""

        def compute() -> dict[str, Any]:
            training = self._training.values()
            values = [compute_score(self._source, score, model, d, self._device) for d in training]
            return {"values": np.array(values)}

        if not is_own(score):  # its code may change from one run to the next
            return [float(value) for value in compute()["values"]]
        settings = "unseen" if self._unseen else "all"
        if score.needs == "class_embeddings":
            embeddings = self._source.class_embeddings(model)
            settings += "" if embeddings is None else f" {embeddings.digest}"
        kind = f"testbed-{score.name}"
        found = self._source.cached(kind, [model], compute, settings=settings)
        return [float(value) for value in found["values"]]


def _baselines(source: FeatureSource) -> dict[str, Column]:
    columns = {}
    for name in BASELINES:
        facts = {model: getattr(source.facts(model), name) for model in source.models}
        values = {model: None if n is None else float(n) for model, n in facts.items()}
        if any(value is not None for value in values.values()):
            columns[name] = Column(values, TITLES[name])
    return columns


def _steps(total: int, progress: Progress | None) -> Iterator[None]:
    """Report progress at each step."""
    for done in range(total):
        if progress is not None:
            progress(done, total)
        yield
