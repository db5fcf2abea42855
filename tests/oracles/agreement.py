"""Agreement with the vote of the other models, image by image and in exact fractions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from tests.oracles.unseen import standardised


def vote_weights(scores: Sequence[float]) -> list[Fraction]:
    """Square of the rank of each model from below; ties count half."""
    weights = []
    for at, score in enumerate(scores):
        others = [other for number, other in enumerate(scores) if number != at]
        halves = sum(2 if other < score else int(other == score) for other in others)
        weights.append((1 + Fraction(halves, 2)) ** 2)
    return weights


def agreement(labels: Sequence[Sequence[int]], weights: Sequence[Fraction]) -> list[Fraction]:
    """Share of images on which each model predicts what the others vote for.

    Of classes with equally many votes the first wins.
    """
    shares = []
    for model, own in enumerate(labels):
        agreed = 0
        for image, label in enumerate(own):
            votes: dict[int, Fraction] = {}
            for other, theirs in enumerate(labels):
                if other != model:
                    voted = theirs[image]
                    votes[voted] = votes.get(voted, Fraction(0)) + weights[other]
            winner = min(votes, key=lambda c: (-votes[c], c))
            agreed += winner == label
        shares.append(Fraction(agreed, len(own)))
    return shares


def combined(
    scores: Mapping[str, float],
    agreements: Mapping[str, float],
    totals: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """One third of the scores and two thirds of the agreements, both standardised.

    `totals` are the scores whose mean and variance are used, if not `scores`.
    """
    of = list((scores if totals is None else totals).values())
    mean = sum(of) / len(of)
    spread = (sum((value - mean) ** 2 for value in of) / len(of)) ** 0.5
    z = standardised([float(agreements[model]) for model in scores])
    return {
        model: ((scores[model] - mean) / spread if spread > 0 else 0.0) / 3 + 2 * z[at] / 3
        for at, model in enumerate(scores)
    }
