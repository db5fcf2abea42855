"""The events of an extraction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from oodzoo.core.events import Listeners, Stage

STAGE = "extraction"


class ExtractionProgress(Stage):
    """Counts the images of each model and emits the events of an extraction.

    Parameters
    ----------
    listener : Listener or sequence of Listener, optional
    models : sequence of str
    n_images : int
        Images that each model is to be run on.
    """

    def __init__(
        self, listener: Listeners | None = None, models: Sequence[str] = (), n_images: int = 0
    ) -> None:
        super().__init__(listener, STAGE, models=list(models), images=n_images)
        self._n_images = n_images
        self._total = len(models) * n_images
        self._done: Counter[str] = Counter()
        self._at = (0, self._total)

    def advance(self, model: str, n_images: int, seconds: float) -> None:
        """Features of more images have been written to disk."""
        self._done[model] = min(self._done[model] + n_images, self._n_images)
        self._emit(model=model, images=n_images, seconds=seconds)

    def has(self, model: str, n_images: int) -> None:
        """Features of so many images need not be computed here."""
        if (new := n_images - self._done[model]) > 0:
            self.advance(model, new, 0.0)

    def fail(self, model: str, reason: str) -> None:
        """A model failed and is skipped; the others continue."""
        self.leave(model)
        self._emit(model=model, failed=reason)

    def leave(self, model: str) -> None:
        """No more images of a model will be done."""
        self._done[model] = self._n_images

    def measured(self, model: str, milliseconds: float) -> None:
        """The time of a forward pass, per image, is known."""
        self.events.metric(STAGE, f"{model}/milliseconds_per_image", milliseconds)

    def _emit(self, **facts: Any) -> None:
        self._at = (self._done.total(), self._total)
        self.events.progress(STAGE, *self._at, **facts)
