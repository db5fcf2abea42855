"""The figures of the ZooD paper: 35 models, 7 data sets, 6 scores.

Q. Dong, A. Muhammad, F. Zhou, C. Xie, T. Hu, Y. Yang, S.-H. Bae, Z. Li, ZooD: Exploiting Model Zoo
for Out-of-Distribution Generalization, NeurIPS 2022, tables of the appendix.
"""

from __future__ import annotations

import csv
from importlib.resources import files

from oodzoo.testbed.bed import RESAMPLES, SEED, Column, TestBed, judge

TITLES = {
    "leep": "Log expected empirical prediction",
    "nce": "Negative conditional entropy",
    "h_score": "H-Score",
    "knn": "k nearest neighbours",
    "logme": "Log maximum evidence",
    "zood": "ZooD",
}
NEED_A_HEAD = ("leep", "nce")
"""Scores that 10 of the 35 models do not have: they were pre-trained without a classifier."""


def read(table: str) -> list[dict[str, str]]:
    """The rows of one of the paper's tables, by the name of its file."""
    text = (files("oodzoo.testbed") / "paper" / f"{table}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def paper(
    *, with_head: bool = False, resamples: int = RESAMPLES, seed: int = SEED
) -> dict[str, TestBed]:
    """The paper's test bed, for each of its data sets.

    Parameters
    ----------
    with_head : bool
        The 25 models that have a classifier head, and the scores that need one beside the
        others; without it all 35, and the scores that need none.

    Examples
    --------
    >>> beds = paper()
    >>> round(beds["PACS"].scores["zood"].weighted_tau, 2)
    0.91
    >>> len(paper(with_head=True)["PACS"].models)
    25
    """
    names = {row["model"]: _name(row) for row in read("models")}
    rows = read("scores")
    beds = {}
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        here = [row for row in rows if row["dataset"] == dataset]
        if with_head:
            here = [row for row in here if all(row[score] for score in NEED_A_HEAD)]
        scores = [score for score in TITLES if with_head or score not in NEED_A_HEAD]
        columns = {
            score: Column({names[row["model"]]: float(row[score]) for row in here}, TITLES[score])
            for score in scores
        }
        accuracy = {names[row["model"]]: float(row["accuracy"]) for row in here}
        data = {"name": dataset, "source": "ZooD, NeurIPS 2022"}
        beds[dataset] = judge(data, accuracy, columns, resamples=resamples, seed=seed)
    return beds


def _name(row: dict[str, str]) -> str:
    return f"{row['model']} {row['architecture']}, {row['pretraining_method']}"
