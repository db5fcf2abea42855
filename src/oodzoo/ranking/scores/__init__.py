"""Scores of pre-trained models for labelled data: pure functions of arrays, higher is better.

Every score takes NumPy arrays or PyTorch tensors, does not modify them, and returns a number that
depends on one model only: adding models to a zoo does not change the scores of the others.
"""

from oodzoo.ranking.scores._gbc import gbc
from oodzoo.ranking.scores._h_score import h_score, regularized_h_score
from oodzoo.ranking.scores._knn import knn
from oodzoo.ranking.scores._lda import lda
from oodzoo.ranking.scores._leep import leep
from oodzoo.ranking.scores._logme import logme
from oodzoo.ranking.scores._nce import nce
from oodzoo.ranking.scores._nleep import nleep
from oodzoo.ranking.scores._parc import parc
from oodzoo.ranking.scores._sfda import sfda
from oodzoo.ranking.scores._transrate import transrate
from oodzoo.ranking.scores._zero_shot import zero_shot
from oodzoo.ranking.scores.catalogue import Score, get, names, register, score, unregister

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
