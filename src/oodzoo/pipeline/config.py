"""Options of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from oodzoo.engine.choice import array_device, require_engine
from oodzoo.evaluation.options import require_seed, resolve_trials
from oodzoo.evaluation.published import require_published
from oodzoo.features.config import ExtractionConfig
from oodzoo.heads.classes import require_classes_for
from oodzoo.racing.policy import parse_budget
from oodzoo.ranking.constraints import Constraints, Limits
from oodzoo.ranking.ranker import as_score, require_score, require_score_of_task
from oodzoo.ranking.top_k import TopK, parse_top_k
from oodzoo.task import Task


@dataclass(frozen=True)
class RunConfig:
    """Options of a run, checked before it starts.

    Attributes
    ----------
    top_k, score, protocol, baselines, seed, max_models, max_ms, published
        See :func:`oodzoo.evaluate`.
    max_parameters, licence
        Extract and use only models that meet these constraints, see :func:`oodzoo.load_zoo`.
    engine, address
        Where models run, heads are trained and test domains are judged.
    extraction : ExtractionConfig
        See :func:`oodzoo.extract`.
    testbed : bool
        Compare the scores on these models, with `baselines` only.
    race : bool
        Drop models early, see :func:`oodzoo.racing.race`.
    budget : float or str, optional
        Time for the extraction, in seconds or as "30m"; implies `race`.
    """

    top_k: TopK = 3
    score: str = "unseen"
    protocol: Literal["fast", "domainbed"] = "fast"
    baselines: bool = True
    seed: int = 0
    max_models: int | None = None
    max_ms: float | None = None
    max_parameters: float | str | None = None
    licence: str | Sequence[str] | None = None
    published: str | None = None
    engine: str = "local"
    address: str | None = None
    extraction: ExtractionConfig = field(default_factory=ExtractionConfig)
    testbed: bool = True
    race: bool = False
    budget: float | str | None = None

    def __post_init__(self) -> None:
        parse_top_k(self.top_k)
        resolve_trials(self.protocol)
        require_score(self.score)
        require_seed(self.seed)
        Limits(self.max_models, self.max_ms)
        Constraints(self.max_ms, self.max_parameters, self.licence)
        require_engine(self.engine, self.address)
        if self.budget is not None:
            parse_budget(self.budget)

    def require_possible(self, task: Task, *, target: bool) -> None:
        """Raise an InputError if an option, or a target, is not for this task."""
        require_score_of_task(as_score(self.score), task)
        if self.protocol == "domainbed":
            require_classes_for(task, "the protocol 'domainbed'")
        if target:
            require_classes_for(task, "a target")
        if self.published is not None:
            require_published(self.published, task)

    @property
    def is_race(self) -> bool:
        """Whether models are dropped early."""
        return self.race or self.budget is not None

    @property
    def compute_device(self) -> str | None:
        """Where to compute on moments: NumPy, unless a CUDA device was named."""
        device = self.extraction.device
        return array_device(device, self.engine) if device.startswith("cuda") else None

    @property
    def evaluation_device(self) -> str | None:
        """Where to evaluate: as above, or on several devices."""
        device = self.extraction.device
        return device if device.startswith("cuda") or "," in device else None
