"""Pre-trained models: named zoos, zoo files, and one loader per source."""

from oodzoo.zoo.model import Model, ModelInfo, Outputs
from oodzoo.zoo.preprocessing import Geometry, Preprocessing
from oodzoo.zoo.sources import load_model
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.zoos import load_zoo, zoo_names

__all__ = [
    "Geometry",
    "Model",
    "ModelInfo",
    "ModelSpec",
    "Outputs",
    "Preprocessing",
    "load_model",
    "load_zoo",
    "zoo_names",
]
