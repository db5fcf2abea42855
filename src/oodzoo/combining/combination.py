"""A combination of models, as an object; :mod:`oodzoo.combining.ways` lists those that there are.

:func:`oodzoo.evaluate` asks each combination without each held-out domain, and on all domains::

    training = Training(source, order, limits, top_k)
    chosen = way.choose(training)            # which features of which models
    found = way.left_out(training, chosen)   # what decides between them

and measures `chosen.test`, or one head that is trained on `chosen.columns`, on the held-out domain.
:func:`oodzoo.fit` asks the combination that is recommended, or that a person insists on::

    training = way.limited(training)         # if a person insists on it
    chosen = way.choose(training)
    final = way.fit(training, chosen)        # the head of the predictor
    found = way.for_sets(training, chosen)   # what its prediction sets are measured by
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.predictions import Head, Heads, Outputs, Pooled, predict_with_heads
from oodzoo.core.limits import Limits
from oodzoo.core.text import count
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import FeatureSource
from oodzoo.linear.heads.adaptive import AdaptiveHead
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.ranking.constraints import TOP_K, TopK, one_top_k


@dataclass(frozen=True)
class Training:
    """What a combination may know.

    Attributes
    ----------
    source : FeatureSource
        The training domains only.
    order : sequence of str
        The models, the best of the ranking on these domains first.
    limits : Limits
    top_k : int, sequence of int or "auto", optional
        Number of models to concatenate, where the best ones are; None if it was not given.
    device : str, optional
        PyTorch device; NumPy if None.
    predicted : dict of str or None to Heads, optional
        Predictions of the heads of all models by held-out domain, and for none; they are computed
        when they are needed, if None.
    test : str, optional
        The held-out domain, which is none of those of the source.
    target : callable, optional
        Returns the features (n, d) of unlabelled images of a target, by the name of a model.
    method, threshold : str and float, optional
        How features are selected, see :func:`oodzoo.select_features`.
    """

    source: FeatureSource
    order: Sequence[str]
    limits: Limits = field(default_factory=Limits)
    top_k: TopK | None = None
    device: str | None = None
    predicted: Mapping[str | None, Heads] | None = None
    test: str | None = None
    target: Callable[[str], NDArray[np.float32]] | None = None
    method: str = "consistent"
    threshold: float | None = None

    @cached_property
    def heads_by_test(self) -> Mapping[str | None, Heads]:
        """Predictions of the heads of all models by held-out domain, and for none."""
        return self.predicted or predict_with_heads(self.source, device=self.device)

    @property
    def heads(self) -> Heads:
        """Predictions of the heads of all models, for the training and the held-out domains."""
        return self.heads_by_test[self.test]

    @cached_property
    def milliseconds(self) -> dict[str, float | None]:
        """Time per image of each model; None if it is unknown."""
        return {model: self.source.facts(model).milliseconds for model in self.source.models}

    def allows(self, models: Sequence[str]) -> bool:
        """Whether these models together are within the limits."""
        return self.limits.allow(models, self.milliseconds)

    def best(self, models: Sequence[str] | None = None) -> Sequence[str]:
        """The best models, as many as are to be concatenated; of all models or some."""
        order = self.order if models is None else models
        if isinstance(self.top_k, int) and self.top_k > len(order):
            warnings.warn(
                f"only {count(len(order), 'model')} available, fewer than {self.top_k}; using all",
                stacklevel=6,
            )
        number = one_top_k(TOP_K if self.top_k is None else self.top_k, self.source, order)
        return order[:number]


@dataclass(frozen=True)
class Chosen:
    """What a combination uses.

    Attributes
    ----------
    columns : Columns
        The features.
    n_candidates : int
        Number of features that they were chosen from.
    weights : dict of Head to float
        Of the heads of a pool; empty for one head that is trained on the columns.
    test : array (n, C), optional
        Outputs for the held-out domain by heads that are trained already.
    selected_from : tuple of str
        The models that the columns can be selected from again without a domain; empty if the same
        columns are used without it.
    """

    columns: Columns
    n_candidates: int
    weights: Mapping[Head, float] = field(default_factory=dict)
    test: Outputs | None = None
    selected_from: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """The models that are used; those of a pool in the order of their weights."""
        return self.columns.models


class ForSets(NamedTuple):
    """Predictions of held-out domains, by which prediction sets are measured.

    Attributes
    ----------
    values : list of arrays (n, C)
        Outputs for each domain, by a head that was trained without it.
    without : dict of str to list of arrays, optional
        The same by domain, with what all other domains choose; None if one domain cannot choose.
    """

    values: list[Outputs]
    without: dict[str, list[Outputs]] | None


@dataclass(frozen=True)
class FinalHead:
    """A linear head of columns of some models, trained on all domains.

    Attributes
    ----------
    columns : Columns
    head : LinearHead
    weights : dict of str to float
        Weight of each model in a pool; empty for other heads.
    adaptive : AdaptiveHead, optional
        Head of the same columns that adapts to the images of a domain.
    """

    columns: Columns
    head: LinearHead
    weights: dict[str, float] = field(default_factory=dict)
    adaptive: AdaptiveHead | None = None


class Combination(ABC):
    """A combination of models.

    Attributes
    ----------
    name : str
        As options, documents and rows of an evaluation call it: letters and underscores.
    title : str
        As texts call it.
    words : str
        What is combined; `{models}` is the number of models, such as "3 models".
    made : str
        How such a predictor was made, for its card; `{pooled}` is what a pool has the mean of.
    known_to_all : str
        What the held-out domains helped to choose when prediction sets are measured, such as "the
        models"; empty if nothing is.
    from_heads : bool
        Whether predictions of heads that are trained already are all that it needs, so that it is
        cheap to choose again within other limits.
    adapts : bool
        Whether it adapts to unlabelled images of a target: it has `choose_for_target`, and `fit`
        uses :attr:`Training.target`.
    """

    name: str
    title: str
    words: str
    made: str
    known_to_all: str = ""
    from_heads: bool = False
    adapts: bool = False

    @abstractmethod
    def choose(self, training: Training) -> Chosen:
        """Choose models and features."""

    @abstractmethod
    def left_out(self, training: Training, chosen: Chosen) -> Pooled:
        """Predict each training domain with what would be chosen without it, and within them.

        The decision between the combinations rests on it.
        """

    @abstractmethod
    def fit(self, training: Training, chosen: Chosen) -> FinalHead:
        """Fit a head on all domains."""

    @abstractmethod
    def for_sets(self, training: Training, chosen: Chosen) -> ForSets:
        """Predict held-out domains, to measure the prediction sets of the fitted head."""

    def choose_for_target(self, training: Training, chosen: Chosen) -> Chosen:
        """Choose again for unlabelled images of the held-out domain, which are the target."""
        raise NotImplementedError(f"{self.name} does not adapt to a target")

    def limited(self, training: Training) -> Training:
        """What to choose from if a person insists on it; it must then be within the limits.

        The same, unless features of fewer models can do.
        """
        return training

    def described(self, models: Sequence[str]) -> str:
        """What is combined, in words."""
        return models[0] if len(models) == 1 else self.words.format(models=_models(models))

    def shown(self, models: Sized) -> str:
        """The name that people read, for these models."""
        return self.name


def _models(models: Sized) -> str:
    return count(len(models), "model")
