"""Scores of pre-trained models for labelled data: pure functions of arrays, higher is better.

Every score takes NumPy arrays or PyTorch tensors, does not modify them, and returns a number that
depends on one model only: adding models to a zoo does not change the scores of the others.
"""

from oodzoo.scores._gbc import gbc
from oodzoo.scores._h_score import h_score
from oodzoo.scores._knn import knn
from oodzoo.scores._lda import lda
from oodzoo.scores._leep import leep
from oodzoo.scores._logme import logme
from oodzoo.scores._nce import nce
from oodzoo.scores._nleep import nleep
from oodzoo.scores._parc import parc
from oodzoo.scores._regularized_h_score import regularized_h_score
from oodzoo.scores._sfda import sfda
from oodzoo.scores._transrate import transrate
from oodzoo.scores._zero_shot import zero_shot
from oodzoo.scores.registry import Score, get, names, register, score, unregister

__all__ = [
    "Score",
    "gbc",
    "get",
    "h_score",
    "knn",
    "lda",
    "leep",
    "logme",
    "names",
    "nce",
    "nleep",
    "parc",
    "register",
    "regularized_h_score",
    "score",
    "sfda",
    "transrate",
    "unregister",
    "zero_shot",
]
