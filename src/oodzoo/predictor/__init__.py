"""Predictors: fit to a feature store, save, load, classify images, export to ONNX."""

from __future__ import annotations

from oodzoo.predictor.fitting import fit
from oodzoo.predictor.prediction import Prediction, Unreadable
from oodzoo.predictor.predictor import Predictor, load

__all__ = ["Prediction", "Predictor", "Unreadable", "fit", "load"]
