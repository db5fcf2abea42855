"""Timings and locations of models, kept in the store for the place of the extraction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from oodzoo.features.config import Extraction, Timing
from oodzoo.features.progress import ExtractionProgress
from oodzoo.store.local import read_local, update_local
from oodzoo.zoo import Model, ModelSpec


class Timings:
    """Adds the timings of an extraction to those of earlier ones.

    Several processes may do so for the same store; each adds what is new since it last did.
    """

    def __init__(self, path: Path, extraction: Extraction, progress: ExtractionProgress) -> None:
        self._path = path
        self._extraction = extraction
        self._progress = progress
        self._saved: dict[str, Timing] = {}

    def known(self, model: str) -> Timing:
        """Return what a model has taken in all extractions into this store."""
        facts, new = read_local(self._path, model), self._new(model)
        return Timing(facts.get("images", 0) + new.images, facts.get("seconds", 0) + new.seconds)

    def save(self, model: str, member: ModelSpec | Model) -> None:
        """Write the timing of a model, if it has run, and its location."""
        facts: dict[str, Any] = {}
        if isinstance(member, ModelSpec):
            facts |= {"source": member.source, "folder": str(member.folder.resolve())}
        if self._new(model).images:
            known = self.known(model)
            milliseconds = 1000 * known.seconds / known.images
            facts |= {"seconds": known.seconds, "images": known.images}
            facts["milliseconds_per_image"] = milliseconds
            self._saved[model] = replace(self._extraction.timings[model])
            self._progress.measured(model, milliseconds)
        known_facts = read_local(self._path, model)
        if known_facts | facts != known_facts:  # other processes may write it, too
            update_local(self._path, model, facts)

    def _new(self, model: str) -> Timing:
        now = self._extraction.timings.get(model, Timing())
        before = self._saved.get(model, Timing())
        return Timing(now.images - before.images, now.seconds - before.seconds)
