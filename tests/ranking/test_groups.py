"""Groups that occur in several domains are not trained on when one of these is held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles import folds as oracle
from tests.oracles.unseen import skill as skill_of
from tests.ranking.data import Arrays, Data, folds_of, read, simulate_models

import oodzoo
from oodzoo.extraction.features import ArraySource
from oodzoo.ranking.ranker import rank_for_test_domains
from oodzoo.ranking.transfer import RIDGES, ModelMoments, Transfer, read_moments
from oodzoo.ranking.zood import HeldOutDomains, HeldOutFold

Groups = list[str | None]
Grouped = tuple[Arrays, NDArray[np.int64], NDArray[Any], Groups]


def grouped(seed: int = 0, n_domains: int = 3, d: int = 6) -> Grouped:
    """Models of which some samples belong to groups, most of them in several domains."""
    data = simulate_models({"a": 0.8, "b": 2.0}, n=30, n_domains=n_domains, d=d, seed=seed)
    numbers = np.random.default_rng(seed).integers(0, 40, len(data[1]))
    return *data, [f"g{k}" if k < 15 else None for k in numbers]


def trained_on(data: Grouped, held_out: Sequence[str]) -> Data:
    """Samples of the other domains whose group is in none of the held-out domains."""
    features, y, domains, groups = data
    theirs = {g for g, d in zip(groups, domains, strict=True) if d in held_out and g is not None}
    keep = np.array(
        [d not in held_out and g not in theirs for d, g in zip(domains, groups, strict=True)]
    )
    assert not keep.all()
    names = [d for d in np.unique(domains).tolist() if d not in held_out]
    return {d: (features["a"][keep & (domains == d)], y[keep & (domains == d)]) for d in names}


def whole(data: Grouped, domain: str) -> oracle.Part:
    features, y, domains, _ = data
    return features["a"][domains == domain], y[domains == domain]


def inputs(data: Grouped) -> ModelMoments:
    return read_moments(ArraySource(*data), "a", None)


def folds_without_groups(data: Grouped) -> dict[str, list[tuple[HeldOutFold, Data]]]:
    """Folds for no held-out domain, "", and for each, with the samples that they train on."""
    held_out = HeldOutDomains(inputs(data))
    found = {"": held_out.folds(densities=True)}
    if len(held_out.moments) > 3:
        found |= {test: held_out.folds(test, densities=True) for test in held_out.moments}
    return {
        test: [(fold, trained_on(data, [*([test] if test else []), fold.domain])) for fold in folds]
        for test, folds in found.items()
    }


OF_TRAINING = ("discriminability", "stability", "stability_slope",
               "label_log_density", "feature_log_density", "labels", "n")  # fmt: skip
"""Results that depend on the training samples and the held-out domain alone."""


@pytest.mark.parametrize("d", [6, 150])
@pytest.mark.parametrize("n_domains", [3, 4])
def test_folds_are_trained_without_the_groups(n_domains: int, d: int) -> None:
    """As in a data set without the rows; regressions are those of the literal formula."""
    for seed in (0, 1) if d == 6 else (0,):
        data = grouped(seed, n_domains, d=d)
        for test, folds in folds_without_groups(data).items():
            parts = {}
            for fold, rows in folds:
                held_out = {**rows, fold.domain: whole(data, fold.domain)}
                (same,) = (each for each in folds_of(held_out) if each.domain == fold.domain)
                for name in OF_TRAINING:
                    np.testing.assert_allclose(
                        getattr(fold, name), getattr(same, name), rtol=1e-9, atol=1e-11
                    )
                parts[fold.domain] = oracle.pooled(rows, list(rows)), whole(data, fold.domain)
            expected = oracle.held_out(parts, 3)
            for fold, _ in folds:
                result = expected[fold.domain]
                assert fold.ridge == result.ridge
                assert fold.predicted.tolist() == result.predicted
                assert fold.metric == pytest.approx(result.accuracy)
                assert fold.second_metric == pytest.approx(result.balanced_accuracy)
            # the evidence does not contain the groups of held-out domains
            evidence, rest = HeldOutDomains(inputs(data)).evidence(*([test] if test else []))
            for (_, rows), found in zip(folds, rest, strict=True):
                known = HeldOutDomains(read(rows)).evidence()[0] if len(rows) > 1 else found
                assert found == pytest.approx(known)
            if test:
                known = HeldOutDomains(read(trained_on(data, [test]))).evidence()[0]
                assert evidence == pytest.approx(known)
    without = HeldOutDomains(read({d: whole(data, d) for d in inputs(data).moments}))
    _, rest = HeldOutDomains(inputs(data)).evidence()
    for found, other in zip(rest, without.evidence()[1], strict=True):  # so that this can fail
        assert found != pytest.approx(other, rel=1e-4)


def test_rankings_are_made_of_these_folds() -> None:
    data = grouped(n_domains=4)
    features, y, domains, groups = data
    rankings = rank_for_test_domains(features, y, domains, groups=groups)
    rankings[""] = oodzoo.rank(features, y, domains, groups=groups)
    skill = Transfer.of(inputs(data)).skill()
    assert rankings[""]["a"].transfer == pytest.approx(100 * skill)
    for test, folds in folds_without_groups(data).items():
        row = rankings[test]["a"]
        for (fold, _), found in zip(folds, row.folds, strict=True):
            assert found.accuracy == pytest.approx(100 * fold.metric)
            assert found.stability == pytest.approx(fold.stability)
        if test:  # transfer is trained without the groups of the held-out domain, too
            means = []
            for ridge in RIDGES:
                skills = [
                    skill_of(part, whole(data, target.domain), 3, ridge)
                    for target in row.folds
                    for part in trained_on(data, [test, target.domain]).values()
                ]
                means.append(np.mean(skills))
            assert row.transfer == pytest.approx(100 * max(means))


def test_a_domain_whose_samples_are_all_shared() -> None:
    features, y, domains, _ = grouped(n_domains=4)
    number = np.arange(len(y)) % 30
    groups = [
        f"g{k}" if d in ("d1", "d2") else f"{d}/{k}" for k, d in zip(number, domains, strict=True)
    ]
    words = r"all samples of domain 'd1' belong to .* they are trained on"
    with pytest.warns(UserWarning, match=words) as said:
        found = oodzoo.rank(features, y, domains, groups=groups)
    assert len(said) == 1
    for row in oodzoo.rank(features, y, domains):  # as if the groups were unknown
        accuracies = [fold.accuracy for fold in found[row.model].folds]
        assert accuracies == [fold.accuracy for fold in row.folds]
