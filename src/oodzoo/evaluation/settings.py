"""Options of an evaluation in a form that other processes can read."""

from __future__ import annotations

import msgspec

from oodzoo.combination.pool import Limits
from oodzoo.evaluation.options import main_top_k
from oodzoo.evaluation.training import Oracle, Trainer, domainbed_trainer, fast_trainer


class Settings(msgspec.Struct, frozen=True):
    """Options of an evaluation, checked; see :func:`oodzoo.evaluate`.

    `top_k` is None if K is chosen on the training domains, `peers` is None without baselines.
    """

    top_k: list[int] | None
    protocol: str
    score: str
    trials: int
    draws: int
    steps: int
    search_space: str
    selection: str
    seed: int
    peers: tuple[str, ...] | None
    with_target: bool
    max_models: int | None
    max_ms: float | None

    @property
    def main_top_k(self) -> int | None:
        return None if self.top_k is None else main_top_k(self.top_k)

    @property
    def limits(self) -> Limits:
        return Limits(self.max_models, self.max_ms)

    def trainer(self, device: str | None, oracle: Oracle | None = None) -> Trainer:
        if self.protocol == "domainbed":
            return domainbed_trainer(
                self.trials,
                self.draws,
                self.steps,
                self.seed,
                device,
                self.search_space,
                self.selection,
                oracle,
            )
        return fast_trainer(self.trials)

    def check(self, device: str | None) -> None:
        """Raise an InputError for options that only show to be wrong when they are used."""
        self.trainer(device)
        _ = self.limits
