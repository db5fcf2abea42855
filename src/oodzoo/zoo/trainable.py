"""Models as PyTorch modules whose weights can be trained."""

from __future__ import annotations

from collections.abc import Sequence

from oodzoo.zoo.model_spec import ModelSpec
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.trainable_model import Module, Trainable

__all__ = ["Trainable", "load_trainable", "load_trainable_network"]


def load_trainable(spec: ModelSpec, preprocessing: Preprocessing) -> Trainable:
    """Load a model as a module that can be trained.

    Raises
    ------
    InputError
        If its source has no weights that PyTorch can train, or an ONNX file has an operator that
        cannot be converted.
    """
    return get_source(spec.kind).trainable(spec, preprocessing)


def load_trainable_network(specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> Module:
    """Load models that are layers of one network as a single module, as :func:`load_trainable`.

    The module maps a normalised batch to a tuple of features, one for each of the models.
    """
    return get_source(specs[0].kind).trainable_network(specs, preprocessing)
