"""The events of an extraction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from oodzoo.events import Listener

STAGE = "extraction"


class ExtractionProgress:
    """Counts images of models and tells a listener.

    Parameters
    ----------
    listener : Listener
    models : sequence of str
    n_images : int
        Images that each model is to be run on.
    """

    def __init__(
        self, listener: Listener | None = None, models: Sequence[str] = (), n_images: int = 0
    ) -> None:
        self._listener = listener or Listener()
        self._n_images = n_images
        self._total = len(models) * n_images
        self._done: Counter[str] = Counter()
        self._listener.start(STAGE, models=list(models), images=n_images)

    def say(self, message: str) -> None:
        """Tell one line of text."""
        self._listener.progress(STAGE, self._done.total(), self._total, message=message)

    def advance(self, model: str, n_images: int, seconds: float) -> None:
        """Features of more images have been written to disk."""
        self._done[model] = min(self._done[model] + n_images, self._n_images)
        self._listener.progress(
            STAGE, self._done.total(), self._total, model=model, images=n_images, seconds=seconds
        )

    def has(self, model: str, n_images: int) -> None:
        """Features of so many images were on disk before."""
        if (new := n_images - self._done[model]) > 0:
            self.advance(model, new, 0.0)

    def fail(self, model: str, reason: str) -> None:
        """A model failed and is skipped; the others continue."""
        self.leave(model)
        self._listener.progress(STAGE, self._done.total(), self._total, model=model, failed=reason)

    def leave(self, model: str) -> None:
        """No more images of a model will be done."""
        self._done[model] = self._n_images

    def measured(self, model: str, milliseconds: float) -> None:
        """The time of a forward pass, per image, is known."""
        self._listener.metric(STAGE, f"{model}/milliseconds_per_image", milliseconds)

    def end(self, status: str, **facts: object) -> None:
        self._listener.end(STAGE, status=status, **facts)
