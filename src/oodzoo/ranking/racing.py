"""Races: extraction that drops models after a look at a sample of the images."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners
from oodzoo.core.options import Compute, options_of, require_known
from oodzoo.core.text import count, duration
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.listing import stratified_sample
from oodzoo.data.sources.folder import UnlabelledImages
from oodzoo.extraction.engines import Engine, open_engine
from oodzoo.extraction.extract import Unlabelled, open_unlabelled, require_usable_store
from oodzoo.extraction.extractor import Extractor
from oodzoo.extraction.models import Zoo
from oodzoo.extraction.outcome import Extraction, ExtractionConfig, ExtractionOptions
from oodzoo.ranking.policy import (
    SHARE,
    Costs,
    Policy,
    Round,
    first_sample,
    parse_budget,
    race_rounds,
)
from oodzoo.ranking.ranker import rank
from oodzoo.ranking.ranking import Ranking
from oodzoo.store.feature_store import FeatureStore

IMAGES_PER_CELL = 2
"""The smallest sample has so many images of each class in each domain."""

FIRST_MODELS = 4
"""The time of a round is estimated when so many models have run."""


@dataclass(frozen=True)
class Dropped:
    """A model that was dropped.

    Attributes
    ----------
    round : int
    images : int
        Images that it was judged on.
    rank : int
    rank_interval : (int, int) or None
    expected_accuracy : float
        In percent, on this sample.
    reason : str
    metric : str
        What `expected_accuracy` is: "accuracy", or the main metric of another task.
    """

    round: int
    images: int
    rank: int
    rank_interval: tuple[int, int] | None
    expected_accuracy: float
    reason: str
    metric: str = "accuracy"


@dataclass(frozen=True)
class Race:
    """The result of a race.

    Attributes
    ----------
    store : FeatureStore
        Its models have features of all images.
    rounds : tuple of Round
    dropped : dict of str to Dropped
        The models that were dropped. Their features stay in the folder of the store, and a later
        extraction computes only what they lack.
    budget : float or None
        In seconds, as given.
    share : float
        Planned time of the race, as a share of that of all models on all images.
    seconds : float
        Time that the race took; less if some of its features were in the store before.
    extraction : Extraction
    """

    store: FeatureStore
    rounds: tuple[Round, ...]
    dropped: dict[str, Dropped]
    budget: float | None
    share: float
    seconds: float
    extraction: Extraction

    def to_dict(self) -> dict[str, Any]:
        """Return the rounds and the dropped models as JSON values."""
        rounds = [
            {
                "round": each.number,
                "images": each.images,
                "models": len(each.ranking.rows),
                "kept": list(each.decision.kept),
            }
            for each in self.rounds
        ]
        return {
            "budget": self.budget,
            "share": self.share,
            "seconds": self.seconds,
            "rounds": rounds,
            "dropped": {model: asdict(dropped) for model, dropped in self.dropped.items()},
        }


def race(
    dataset: ImageDomains | str | Path,
    zoo: Zoo,
    store: str | Path,
    *,
    budget: float | str | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
    unlabelled: Unlabelled = (),
    listener: Listeners | None = None,
    **options: Unpack[ExtractionOptions],
) -> Race:
    """Extract the features of the models that may be the best, and drop the others early.

    All models are run on a sample of the images and ranked; after each round models are dropped,
    and the sample doubles (see :mod:`oodzoo.ranking.policy`). A race that was interrupted is
    resumed by the same call and drops the same models.

    Parameters
    ----------
    dataset, zoo, store
        See :func:`oodzoo.extract`.
    budget : float or str, optional
        Time for the extraction, in seconds or as "30m" or "1h30m". By default 35 % of the time of
        all models on all images.
    seed : int
        Of the sample.
    device, batch_size, precision, dtype, on_error, decode, unlabelled, engine, address, listener
        See :func:`oodzoo.extract`.
    """
    require_known("race", options, ExtractionOptions)
    dataset = dataset if isinstance(dataset, ImageDomains) else ImageDomains(dataset)
    given = {"device": device, "batch_size": batch_size, **options}
    config = options_of(ExtractionConfig, given)
    seconds = None if budget is None else parse_budget(budget)
    with open_engine(options_of(Compute, given)) as opened:
        result = run_race(
            dataset,
            zoo,
            store,
            config,
            budget=seconds,
            seed=seed,
            listener=listener,
            unlabelled=open_unlabelled(unlabelled),
            engine=opened,
        )
    for message in result.extraction.warnings():
        warnings.warn(message, stacklevel=2)
    return result


def run_race(
    dataset: ImageDomains,
    zoo: Zoo,
    path: str | Path,
    config: ExtractionConfig,
    *,
    budget: float | None = None,
    seed: int = 0,
    listener: Listeners | None = None,
    unlabelled: Sequence[UnlabelledImages] = (),
    engine: Engine | None = None,
) -> Race:
    """Race like :func:`race`, with the objects that it opens."""
    started = time.perf_counter()
    with Extractor(
        dataset, zoo, path, config, listener=listener, unlabelled=unlabelled, engine=engine
    ) as extractor:
        runner = _Runner(dataset, extractor, budget, seed, engine.slots if engine else 1)
        rounds, share = runner.run()
    require_usable_store(extractor.extraction, len(extractor.models))
    store = FeatureStore(path)
    extractor.add_class_embeddings(store)
    dropped = {m: d for m, d in _dropped(rounds).items() if m not in store.models}
    seconds = time.perf_counter() - started
    return Race(store, tuple(rounds), dropped, budget, share, seconds, extractor.extraction)


def _dropped(rounds: Sequence[Round]) -> dict[str, Dropped]:
    return {
        row.model: Dropped(
            played.number,
            played.images,
            row.rank,
            row.rank_interval,
            row.expected_accuracy,
            played.decision.dropped[row.model],
            played.ranking.metric,
        )
        for played in rounds
        for row in played.ranking.rows
        if row.model in played.decision.dropped
    }


class _Runner:
    """Plays a race with an extractor."""

    def __init__(
        self,
        dataset: ImageDomains,
        extractor: Extractor,
        budget: float | None,
        seed: int,
        workers: int,
    ) -> None:
        self.extractor = extractor
        self.budget = budget
        self.workers = workers
        readable = [
            (sample, digest)
            for sample, digest in zip(dataset.samples, dataset.digests, strict=True)
            if digest is not None
        ]
        samples = [sample for sample, _ in readable]
        strata = dataset.task.strata_of([sample.label for sample in samples])
        domains = [sample.domain for sample in samples]
        cells = len(set(zip(domains, strata, strict=True)))
        self.smallest = min(IMAGES_PER_CELL * cells, len(samples))
        self.n_images = len(extractor.files)

        @cache
        def images(n: int) -> frozenset[str]:
            chosen = stratified_sample(samples, min(n, len(samples)), seed, dataset.task)
            return frozenset(readable[at][1] for at in chosen)

        self.images = images

    def run(self) -> tuple[list[Round], float]:
        """Play the rounds and finish the models kept; return the planned share of the time, too."""
        first, before = self._first_sample()
        if self._size(first) >= self.n_images:
            self._extract(self.extractor.models, None)
            return [], 1.0
        costs = self._measured(first)
        policy = Policy.of(costs, self.n_images, self.budget, before)
        rounds = []
        models: Sequence[str] = list(costs.seconds)
        for played in race_rounds(policy, models, first, self._rank_sample, self._size):
            rounds.append(played)
            models = played.decision.kept
            self._report(played)
        self._extract(models, None)
        planned = played.planned + costs.total(models, self.n_images - played.images)
        return rounds, planned / costs.total(costs.seconds, self.n_images)

    def _first_sample(self) -> tuple[int, float]:
        """Size of the first sample, and the seconds that it took to find out.

        With a budget, the size depends on the time of the smallest sample, for which models are
        loaded once more.
        """
        if self.budget is None:
            return first_sample(SHARE, self.n_images, self.smallest), 0.0
        costs = self._measured(self.smallest)
        before = costs.loading * len(costs.seconds) / costs.workers
        policy = Policy.of(costs, self.n_images, self.budget, before)
        policy.require_round(self._size(self.smallest))
        return first_sample(policy.share, self.n_images, self.smallest), before

    def _rank_sample(self, models: Sequence[str], n: int) -> Ranking:
        self._extract(models, self.images(n))
        running = [name for name in models if name not in self.extractor.failed]
        return rank(self.extractor.view(running, self.images(n)))

    def _size(self, n: int) -> int:
        """Size of the sample of about n images, which has whole groups; all if n is all."""
        return self.n_images if n >= self.n_images else len(self.images(n))

    def _extract(self, models: Sequence[str], images: frozenset[str] | None) -> None:
        self.extractor.extract(list(models), images)
        require_usable_store(self.extractor.extraction, len(self.extractor.models))

    # --- time ------------------------------------------------------------------------------------

    def _measured(self, n: int) -> Costs:
        """Extract all models on a sample, and return the costs.

        They are kept in the cache of the store, so that a race that is resumed decides as before.
        """
        extraction, started = self.extractor.extraction, time.perf_counter()
        running, waiting, decoded = extraction.running, extraction.waiting, extraction.decoded
        self._extract_first(n, started)
        elapsed = (time.perf_counter() - started) * self.workers
        running, waiting = extraction.running - running, extraction.waiting - waiting
        decoded = extraction.decoded - decoded
        models = [name for name in self.extractor.models if name not in extraction.failed]

        def measured() -> dict[str, NDArray[Any]]:
            known = self._seconds_per_image(models)
            return {
                "seconds": np.array([known[name] for name in models]),
                "decoding": np.array(waiting / max(1, decoded)),
                "loading": np.array(max(0.0, elapsed - running - waiting) / len(models)),
                "workers": np.array(self.workers),
            }

        view = self.extractor.view(models, self.images(n))
        found = view.cached("race", models, measured, settings=f"costs, {n}, {self.workers}")
        return Costs(
            dict(zip(models, found["seconds"].tolist(), strict=True)),
            float(found["decoding"]),
            float(found["loading"]),
            int(found["workers"]),
        )

    def _extract_first(self, n: int, started: float) -> None:
        """Extract all models on a sample; stop early if the budget is far too small for it."""
        models, done = self.extractor.models, 0
        size = FIRST_MODELS if self.budget is not None else len(models)
        while done < len(models):
            self._extract(models[done : done + size], self.images(n))
            done = min(done + size, len(models))
            size = done
            expected = (time.perf_counter() - started) / done * len(models)
            if self.budget is not None and expected > self.budget:
                raise InputError(
                    f"the budget of {duration(self.budget)} is too small for one round: "
                    f"{count(len(models), 'model')} on {count(len(self.images(n)), 'image')} take "
                    f"about {duration(expected)}; the features computed so far are kept"
                )

    def _seconds_per_image(self, models: Sequence[str]) -> Mapping[str, float]:
        """Seconds of a forward pass in this race, else in an earlier one, else the median."""
        known = self.extractor.seconds_per_image
        for name, timing in self.extractor.extraction.timings.items():
            if timing.images:
                known[name] = timing.seconds / timing.images
        # The time of a model is lost if a race is killed between its features and the end.
        usual = statistics.median(known.values()) if known else 0.0
        return {name: known.get(name, usual) for name in models}

    def _report(self, played: Round) -> None:
        progress, decision = self.extractor.progress, played.decision
        for name in decision.dropped:
            progress.leave(name)
        progress.say(
            f"Round {played.number}: {count(len(played.ranking.rows), 'model')} on "
            f"{count(played.images, 'image')}, {len(decision.dropped)} dropped."
        )
