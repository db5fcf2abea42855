"""From texts to the selected features of several models, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from oodzoo.errors import InputError
from oodzoo.features.columns import Columns
from oodzoo.features.forward import Job, run_jobs
from oodzoo.predictor.encoders import batches
from oodzoo.predictor.images import FeatureChunk
from oodzoo.zoo import Model

_CHUNK_SIZE = 256
"""Texts per chunk, unless a batch is larger."""


def iter_texts(
    texts: Iterable[Any],
    models: Mapping[str, Model],
    columns: Columns,
    batch_size: int,
    start: int = 0,
) -> Iterator[FeatureChunk]:
    """Compute the given columns of the models' features for any number of texts.

    A blank text has no features, as in a table of texts.
    """
    for chunk in batches(texts, max(batch_size, _CHUNK_SIZE), start):
        _require_texts(chunk)
        jobs = [Job(name, [model], chunk, batch_size) for name, model in models.items()]
        parts = {}
        for done in run_jobs(jobs):
            if done.outputs is None:
                raise done.error or RuntimeError("no outputs")
            parts[done.job.tag] = columns.of(done.job.tag, done.outputs[0].features)
        features = np.concatenate([parts[name] for name in models], axis=1)
        finite = np.asarray(np.isfinite(features).all(axis=1))
        problems = dict.fromkeys(
            np.flatnonzero(~finite).tolist(), "a model returns NaN or infinite features for it"
        )
        blank = np.array([not text.strip() for text in chunk])
        problems |= dict.fromkeys(np.flatnonzero(blank).tolist(), "the text is blank")
        usable = finite & ~blank
        yield FeatureChunk(
            [None] * len(chunk), np.flatnonzero(usable).tolist(), features[usable], problems
        )


def _require_texts(texts: Iterable[Any]) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise InputError(
                f"the models of this predictor take texts; a text must be a string, got "
                f"{type(text).__name__} {str(text)[:40]!r}"
            )
