"""Callbacks for the progress of a run."""

from __future__ import annotations

from typing import Any


class Observer:
    """Callbacks for the progress of a run; the base class does nothing.

    The stages are "extraction", "ranking", "selection", "evaluation", "predictor", "testbed".
    """

    reporter: Any = None
    """Callbacks for the extraction, see :class:`oodzoo.features.config.Reporter`."""

    def begin(self, stage: str) -> None:
        """A stage begins."""

    def progress(self, done: int, total: int) -> None:
        """Part of a stage is done."""

    def log(self, message: str) -> None:
        """One line about the current step."""

    def end(self, stage: str, result: Any, *, reused: bool) -> None:
        """A stage ended; its result may be that of an earlier run."""

    def skip(self, stage: str, reason: str) -> None:
        """A stage is skipped."""
