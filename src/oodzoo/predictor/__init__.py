"""Predictors: fit to a feature store, save, load, classify images, export to ONNX."""

from __future__ import annotations

from oodzoo.predictor.fitting import fit
from oodzoo.predictor.predictor import Prediction, Predictor, Unreadable, load

__all__ = ["Prediction", "Predictor", "Unreadable", "fit", "load"]
