"""From a store to a model that labels images, with everything it needs in one folder."""

from __future__ import annotations

from oodzoo.predictor.fitting import fit
from oodzoo.predictor.folder import load
from oodzoo.predictor.predictor import Prediction, Predictor, Unreadable

__all__ = ["Prediction", "Predictor", "Unreadable", "fit", "load"]
