"""Scores of pre-trained networks for labelled data: pure functions of arrays, higher is better.

Every score takes NumPy arrays or PyTorch tensors, leaves them as they are, and returns a number
that depends on one network alone, so that adding another to the zoo changes nothing.
"""

from zood.scores._gbc import gbc
from zood.scores._h_score import h_score
from zood.scores._knn import knn
from zood.scores._lda import lda
from zood.scores._leep import leep
from zood.scores._logme import logme
from zood.scores._nce import nce
from zood.scores._nleep import nleep
from zood.scores._parc import parc
from zood.scores._regularized_h_score import regularized_h_score
from zood.scores._sfda import sfda
from zood.scores._transrate import transrate
from zood.scores.registry import Score, get, names, register, score, unregister

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
]
