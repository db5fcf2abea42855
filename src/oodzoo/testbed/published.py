"""Figures published in the ZooD paper: 35 models, 7 data sets, 6 scores.

Q. Dong, A. Muhammad, F. Zhou, C. Xie, T. Hu, Y. Yang, S.-H. Bae, Z. Li, ZooD: Exploiting Model Zoo
for Out-of-Distribution Generalization, NeurIPS 2022, tables of the appendix.
"""

from __future__ import annotations

from oodzoo.evaluation.published import read_table
from oodzoo.testbed.bed import RESAMPLES, SEED, Column, TestBed
from oodzoo.testbed.judging import judge

TITLES = {
    "leep": "Log expected empirical prediction",
    "nce": "Negative conditional entropy",
    "h_score": "H-Score",
    "knn": "k nearest neighbours",
    "logme": "Log maximum evidence",
    "zood": "ZooD",
}
HEAD_SCORES = ("leep", "nce")
"""Scores that 10 of the 35 models lack: they were pre-trained without a classifier head."""


def paper(
    *, with_head: bool = False, resamples: int = RESAMPLES, seed: int = SEED
) -> dict[str, TestBed]:
    """Return the paper's test bed for each of its data sets.

    Parameters
    ----------
    with_head : bool
        If true, the 25 models with a classifier head and all six scores; otherwise all 35 models
        and the four scores that need no head.
    resamples, seed : int
        Number and seed of the bootstrap resamples.

    Examples
    --------
    >>> beds = paper()
    >>> round(beds["PACS"].scores["zood"].weighted_tau, 2)
    0.91
    >>> len(paper(with_head=True)["PACS"].models)
    25
    """
    names = {
        row["model"]: f"{row['model']} {row['architecture']}, {row['pretraining_method']}"
        for row in read_table("models")
    }
    rows = read_table("scores")
    beds = {}
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        here = [row for row in rows if row["dataset"] == dataset]
        if with_head:
            here = [row for row in here if all(row[score] for score in HEAD_SCORES)]
        scores = [score for score in TITLES if with_head or score not in HEAD_SCORES]
        columns = {
            score: Column({names[row["model"]]: float(row[score]) for row in here}, TITLES[score])
            for score in scores
        }
        accuracy = {names[row["model"]]: float(row["accuracy"]) for row in here}
        data = {"name": dataset, "source": "ZooD, NeurIPS 2022"}
        beds[dataset] = judge(data, accuracy, columns, resamples=resamples, seed=seed)
    return beds
