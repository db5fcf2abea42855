r"""Text towers of CLIP-like models: the embeddings of classes, for zero-shot classification.

The embedding of a class is the mean over prompts of the embeddings of unit length of its texts,
brought to unit length again [1]_. Logits are scaled cosines of images and classes,

.. math:: \ell_c(f) = s\,\frac{f^\top t_c}{\lVert f\rVert} + b,

with the scale s and the bias b that the model was trained with; only sigmoid losses have a bias.

References
----------
.. [1] Radford et al.: Learning transferable visual models from natural language supervision,
   ICML 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.zoo.prompts import PLACE

_TEXTS = 256
"""Texts that are embedded at a time."""


@dataclass(frozen=True)
class TextTower:
    """The text part of a model.

    Attributes
    ----------
    embed : callable
        Embeds texts as an array (n, d), in the space of the image features.
    scale, bias : float
        Of the logits.
    """

    embed: Callable[[Sequence[str]], NDArray[np.floating[Any]]]
    scale: float
    bias: float = 0.0


def embed_classes(
    tower: TextTower, names: Sequence[str], prompts: Sequence[str]
) -> NDArray[np.float32]:
    """Embed classes as vectors of unit length (C, d), from names and templates."""
    texts = [prompt.replace(PLACE, name) for name in names for prompt in prompts]
    parts = [tower.embed(texts[at : at + _TEXTS]) for at in range(0, len(texts), _TEXTS)]
    each = _unit(np.concatenate(parts).astype(np.float64))
    means = each.reshape(len(names), len(prompts), -1).mean(axis=1)
    embeddings = _unit(means).astype(np.float32)
    if not np.isfinite(embeddings).all():
        raise InputError("the text tower returns NaN or infinite embeddings")
    return embeddings


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float64] = vectors / np.maximum(lengths, np.finfo(np.float64).tiny)
    return unit
