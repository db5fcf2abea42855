r"""The rule of a race: the sizes of its rounds, and which models are dropped after each.

All models are run on a small sample of the images and ranked. The best of them go on to a sample
twice as large, until the rest can be finished on all images. With C the time of all models on all
images and B the budget, the rule is:

- **First round.** A third of the budget is for samples. As each round doubles the sample and
  halves the time of the models per image, a later round costs half as much as the first one, and
  about :math:`\log_2 (C / B)` rounds are needed. So the first one gets
  :math:`\frac{B}{3} / (1 + \frac12 \log_2 \frac{C}{B})`.
- **Clearly worse.** A model is dropped if at least :data:`POOL` models are clearly better (its
  :mod:`rank interval <oodzoo.ranking.intervals>` begins below them), whatever time is left,
  unless these are too slow to be finished.
- **Time.** Of the others, the models that can be finished in the time that is left are chosen in
  the order of rank × time, the first model before all: the chance to be the best falls about as
  1 / rank, so this is the order of the chance per second. One that does not fit is passed over.
  If models with half of the time per image of this round are more than those, they go on to the
  next round, chosen in the same way; otherwise the race is over and the chosen ones are finished.
- **References.** The default score is relative to the models of a ranking: without weak ones it
  relies less on the transfer between domains, and another model can come first. So the fastest
  models, which together take at most :data:`REFERENCES` of the budget, are never dropped.

This is successive halving (Karnin, Koren and Somekh, Almost optimal exploration in multi-armed
bandits, 2013; Jamieson and Talwalkar, Non-stochastic best arm identification, 2016) by time
instead of by the number of models.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from oodzoo.core.errors import InputError
from oodzoo.core.text import count, duration
from oodzoo.ranking.ranking import Ranking, Row

SHARE = 0.35
"""Budget of a race, as a share of the time of all models on all images, if none is given."""

SAMPLES = 1 / 3
"""Share of the budget for samples."""

REFERENCES = 0.05
"""Share of the budget for models that are kept because they are fast."""

POOL = 5
"""Models that a race without a given budget keeps at least, whatever time they take."""


@dataclass(frozen=True)
class Costs:
    """Time of an extraction.

    Attributes
    ----------
    seconds : mapping of str to float
        Time of a forward pass of each model, per image.
    decoding : float
        Time that the models wait for an image.
    loading : float
        Time to load a model, which is done in every round.
    workers : int
        Models that run at the same time.
    """

    seconds: Mapping[str, float]
    decoding: float = 0.0
    loading: float = 0.0
    workers: int = 1

    def total(self, models: Collection[str], images: int) -> float:
        """Seconds for some models on so many images."""
        if not models or images < 1:
            return 0.0
        return self.shared(images) + sum(self.single(model, images) for model in models)

    def shared(self, images: int) -> float:
        """The part of the time that does not depend on the models."""
        return images * self.decoding / self.workers

    def single(self, model: str, images: int) -> float:
        """The part of the time that a model adds."""
        return (images * self.seconds[model] + self.loading) / self.workers


@dataclass(frozen=True)
class NextRound:
    """What happens after a round.

    Attributes
    ----------
    kept : tuple of str
        The models of the next round, in the order of their rank.
    dropped : dict of str to str
        The reason for each model that is dropped.
    images : int
        Size of the next sample; that of the data set if the models kept are finished.
    """

    kept: tuple[str, ...]
    dropped: dict[str, str]
    images: int


@dataclass(frozen=True)
class Round:
    """A round of a race.

    Attributes
    ----------
    number : int
        From 1.
    images : int
        Size of its sample.
    ranking : Ranking
        The models on this sample.
    decision : NextRound
    planned : float
        Seconds planned for this round and those before.
    """

    number: int
    images: int
    ranking: Ranking
    decision: NextRound
    planned: float


def first_sample(share: float, n_images: int, smallest: int) -> int:
    """Size of the first sample, for a budget of a share of the time of all models on all images.

    Examples
    --------
    >>> first_sample(0.35, 10_000, 100), first_sample(0.01, 10_000, 100)
    (663, 100)
    """
    if share >= 1:
        return n_images
    size = SAMPLES * share * n_images / (1 + math.log2(1 / share) / 2) if share > 0 else 0
    return min(n_images, max(smallest, math.floor(size)))


@dataclass(frozen=True)
class Policy:
    """The rule for given costs and a given budget.

    Attributes
    ----------
    costs : Costs
    n_images : int
        Images of the data set.
    budget : float
        In seconds.
    least : int
        The best so many models are kept even if the budget is too small for them.
    before : float
        Seconds spent before the first round.
    """

    costs: Costs
    n_images: int
    budget: float
    least: int = 0
    before: float = 0.0

    @classmethod
    def of(cls, costs: Costs, n_images: int, budget: float | None, before: float = 0.0) -> Policy:
        """Return the rule for a budget in seconds, by default a share of the whole time."""
        if budget is not None:
            return cls(costs, n_images, budget, before=before)
        return cls(costs, n_images, SHARE * costs.total(costs.seconds, n_images), POOL)

    @property
    def share(self) -> float:
        """The budget as a share of the time of all models on all images."""
        whole = self.costs.total(self.costs.seconds, self.n_images)
        return (self.budget - self.before) / whole if whole > 0 else 1.0

    @cached_property
    def references(self) -> tuple[str, ...]:
        """The fastest models, which are never dropped."""
        order = sorted(self.costs.seconds, key=lambda model: (self.costs.seconds[model], model))
        times = accumulate(self.costs.single(model, self.n_images) for model in order)
        most = REFERENCES * self.budget
        return tuple(model for model, time in zip(order, times, strict=True) if time <= most)

    def require_round(self, images: int) -> None:
        """Raise an InputError if the budget is too small for a round and one finished model."""
        models = self.costs.seconds
        first = self.before + self.costs.total(models, images)
        rest = min(self.costs.total([model], self.n_images - images) for model in models)
        if first + rest > self.budget and not self.least:
            raise InputError(
                f"the budget of {duration(self.budget)} is too small for one round: "
                f"{count(len(models), 'model')} on {count(images, 'image')} take about "
                f"{duration(first)}, and the fastest one on all images another {duration(rest)}; "
                "the features computed so far are kept"
            )

    def decide(
        self, ranking: Ranking, images: int, spent: float, larger: int | None = None
    ) -> NextRound:
        """Choose the models of the next round.

        Parameters
        ----------
        ranking : Ranking
            The models of this round, on its sample.
        images : int
            Size of the sample.
        spent : float
            Seconds planned so far.
        larger : int, optional
            Size of the next sample, if there is one; by default twice that of this one.
        """
        larger = 2 * images if larger is None else larger
        rest, left = self.n_images - images, self.budget - spent
        reasons = {row.model: self._reason(row, rest, left) for row in ranking.rows}
        order = [row.model for row in ranking.rows if reasons[row.model] is None]
        half = self._speed(reasons) / 2
        # If all better models are too slow, clearly worse ones are finished.
        finished = self._fitting(order, rest, left) or self._fitting(list(reasons), rest, left)
        raced = self._fitting(order, larger - images, SAMPLES * self.budget - spent, half)
        can_grow = images < larger < self.n_images and self._can_finish(raced, images, larger, left)
        is_last = not can_grow or self._speed(raced) <= self._speed(finished)
        chosen = set(finished if is_last else raced)
        for row in ranking.rows:
            if len(chosen) < self.least:
                chosen.add(row.model)
        if not chosen:
            self.require_round(images)
            chosen.add(min(reasons, key=self.costs.seconds.__getitem__))
        kept = tuple(model for model in reasons if model in chosen)
        dropped = {
            row.model: reasons[row.model] or f"rank too low for {self._limit}"
            for row in ranking.rows
            if row.model not in chosen
        }
        return NextRound(kept, dropped, self.n_images if is_last else larger)

    def _can_finish(self, models: Sequence[str], images: int, larger: int, left: float) -> bool:
        """Whether one of the models can still be finished after a larger sample of all of them."""
        if self.least or not models:
            return True
        sample = self.costs.total(models, larger - images)
        rest = min(self.costs.total([model], self.n_images - larger) for model in models)
        return sample + rest <= left

    def _reason(self, row: Row, rest: int, left: float) -> str | None:
        """The reason to drop a model, whatever the others cost."""
        if row.model in self.references or (row.rank == 1 and self.least):
            return None
        if row.rank_interval is not None and row.rank_interval[0] > POOL:
            return f"clearly worse than {count(row.rank_interval[0] - 1, 'model')}"
        time = self.costs.total([row.model], rest)
        if 0 < left < time:
            return (
                f"too slow: the other images would take {duration(time)}, more than the "
                f"{duration(left)} left of {self._limit}"
            )
        return None

    @property
    def _limit(self) -> str:
        """What the time is limited by, in words."""
        if self.least:
            return f"{100 * SHARE:.0f} % of the time"
        return f"the budget of {duration(self.budget)}"

    def _fitting(
        self, order: Sequence[str], images: int, left: float, speed: float = math.inf
    ) -> list[str]:
        """Models, given in the order of their rank, that fit in the time and seconds per image.

        The first model has priority over the references, and these over the others.
        """
        seconds = self.costs.seconds
        priority = {
            model: (rank > 1, model not in self.references, rank * seconds[model], rank)
            for rank, model in enumerate(order, start=1)
        }
        left -= self.costs.shared(images)
        chosen = []
        for model in sorted(order, key=priority.__getitem__):
            time = self.costs.single(model, images)
            is_needed = model == order[0] and self.least > 0
            if is_needed or (time <= left and seconds[model] <= speed):
                chosen.append(model)
                left, speed = left - time, speed - seconds[model]
        return chosen

    def _speed(self, models: Iterable[str]) -> float:
        return sum(self.costs.seconds[model] for model in models)


def race_rounds(
    policy: Policy,
    models: Sequence[str],
    images: int,
    rank_sample: Callable[[Sequence[str], int], Ranking],
    sample_size: Callable[[int], int] = lambda images: images,
) -> Iterator[Round]:
    """Play the rounds of a race.

    Parameters
    ----------
    policy : Policy
    models : sequence of str
    images : int
        Images wanted for the first sample; if it has all images there is no round.
    rank_sample : callable
        Ranks some models on the sample for so many wanted images. It may leave out models that
        fail.
    sample_size : callable
        Size of the sample if so many images are wanted: groups that stay whole can make it larger,
        images that occur twice smaller, and images without labels are in no sample. The size of the
        data set if it has all images.
    """
    number, wanted, images = 0, images, sample_size(images)
    planned = policy.before + policy.costs.total(models, images)
    while images < policy.n_images:
        number += 1
        ranking = rank_sample(models, wanted)
        wanted = 2 * max(wanted, images)
        decision = policy.decide(ranking, images, planned, sample_size(wanted))
        yield Round(number, images, ranking, decision, planned)
        models, before, images = decision.kept, images, decision.images
        planned += policy.costs.total(models, images - before)


_AMOUNT = r"([0-9]+(?:\.[0-9]+)?)"
_PARTS = re.compile(
    rf"(?:{_AMOUNT}\s*h)?\s*(?:{_AMOUNT}\s*m(?:in)?)?\s*(?:{_AMOUNT}\s*s)?", re.IGNORECASE
)


def parse_budget(given: str | float) -> float:
    """Read a duration: text with units, such as 30m or 1h30m, or seconds; return seconds.

    Examples
    --------
    >>> parse_budget("30m"), parse_budget("1h30m"), parse_budget("90s"), parse_budget(12.5)
    (1800.0, 5400.0, 90.0, 12.5)
    """
    if isinstance(given, str):
        if re.fullmatch(_AMOUNT, text := given.strip()):
            raise InputError(
                f"a budget needs a unit: {text}s (seconds), {text}m (minutes) or {text}h (hours), "
                f"got {given!r}"
            )
        seconds = _seconds(text)
    else:
        seconds = math.nan if isinstance(given, bool) else float(given)
    if not 0 < seconds < math.inf:
        raise InputError(
            f"a budget is a duration above 0, such as 30m, 2h, 1h30m or 90s, got {given!r}"
        )
    return seconds


def _seconds(text: str) -> float:
    """Return the seconds of a text; not a number if it is not a duration."""
    found = _PARTS.fullmatch(text)
    if not text or found is None:
        return math.nan
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds
