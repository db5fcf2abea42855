"""From a store to a model that labels images, with everything it needs in one folder."""

from __future__ import annotations

from zood.predictor.fitting import fit
from zood.predictor.folder import load
from zood.predictor.model import Prediction, Predictor, Unreadable

__all__ = ["Prediction", "Predictor", "Unreadable", "fit", "load"]
