"""Tables of scores: totals, values per domain, and what is left without a domain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles import unseen as oracle
from tests.ranking.data import Data, lacking, moments_of, simulate_models

from oodzoo.features.source import as_source
from oodzoo.ranking.folds import Fold, Stability, leave_one_domain_out
from oodzoo.ranking.intervals import covariance_of_means
from oodzoo.ranking.ridge import Transfer
from oodzoo.ranking.terms import FOLD_SCORES, Terms, image_covariances, score_table

Floats = NDArray[np.float64]

WEIGHTS = [
    pytest.param((0.25, 0.25, 0.25, 0.25), id="equal"),
    pytest.param((0.1, 0.2, 0.3, 0.4), id="unequal"),
    pytest.param((0.0, 0.5, 0.25, 0.25), id="one zero"),
    pytest.param((0.0, 1.0, 0.0, 0.0), id="all on one"),
]


def terms_of(data: Data, n_classes: int = 3, stability: Stability = "robust") -> Terms:
    moments = moments_of(data, n_classes)
    folds = leave_one_domain_out(moments, lambda name: [data[name]], stability=stability)
    return Terms(folds, Transfer.of(moments), n_classes, stability)


def simulate() -> dict[str, Data]:
    features, y, domains = simulate_models({"a": 0.7, "b": 1.0, "c": 1.5, "d": 2.5}, n=20, seed=1)
    return {
        model: {
            domain: (X[domains == domain], y[domains == domain])
            for domain in np.unique(domains).tolist()
        }
        for model, X in features.items()
    }


@pytest.fixture(scope="module")
def models() -> dict[str, Data]:
    return simulate()


@pytest.fixture(scope="module")
def terms(models: dict[str, Data]) -> list[Terms]:
    return [terms_of(data) for data in models.values()]


def without(models: dict[str, Data], name: str) -> dict[str, Data]:
    return {
        model: {domain: part for domain, part in data.items() if domain != name}
        for model, data in models.items()
    }


def named(weights: Any, data: Data) -> dict[str, float]:
    return dict(zip(data, weights, strict=True))


def mean(values: Floats, weights: Any) -> Floats:
    """Weighted over columns; plain if there is no weight."""
    shares = np.array(weights) if sum(weights) > 0 else np.ones(len(weights))
    found: Floats = sum(s * column for s, column in zip(shares, values.T, strict=True)) / sum(
        shares
    )
    return found


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("score", FOLD_SCORES)
def test_total_is_the_weighted_mean_of_the_values(
    terms: list[Terms], score: str, weights: Any
) -> None:
    table = score_table(terms, score, np.array(weights))
    assert table.values.shape == table.rest.shape == (4, 4)
    assert np.isfinite(table.rest).all()
    assert table.values @ np.array(weights) == pytest.approx(table.totals, abs=1e-10)


FIELDS = {"accuracy": "metric", "balanced_accuracy": "second_metric"}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(
    "score", ["discriminability", "stability", "accuracy", "balanced_accuracy", "zood"]
)
def test_scores_of_folds(terms: list[Terms], score: str, weights: Any) -> None:
    table = score_table(terms, score, np.array(weights))
    for at, each in enumerate(terms):
        for number, fold in enumerate(each.folds):
            value = (
                fold.discriminability + fold.stability / (3 * 3)
                if score == "zood"
                else getattr(fold, FIELDS.get(score, score))
            )
            assert table.values[at, number] == pytest.approx(value)
    for i in range(4):
        others = [number for number in range(4) if number != i]
        expected = mean(table.values[:, others], [weights[number] for number in others])
        assert table.rest[:, i] == pytest.approx(expected)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_transfer(models: dict[str, Data], terms: list[Terms], weights: Any) -> None:
    table = score_table(terms, "transfer", np.array(weights))
    for at, data in enumerate(models.values()):
        shares = named(weights, data)
        into = np.array(list(oracle.into(oracle.pairs(data, 3, shares), data).values()))
        assert table.totals[at] == pytest.approx(oracle.transfer(data, 3, shares), abs=1e-9)
        assert table.values[at] == pytest.approx(into, abs=1e-9)
        for i in range(4):
            others = [number for number in range(4) if number != i]
            expected = mean(into[None, others], [weights[number] for number in others])
            assert table.rest[at, i] == pytest.approx(expected[0], abs=1e-9)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_unseen(models: dict[str, Data], terms: list[Terms], weights: Any) -> None:
    table = score_table(terms, "unseen", np.array(weights))
    shares = named(weights, models["a"])
    expected = oracle.unseen(models, 3, shares)
    assert table.totals == pytest.approx(list(expected.values()), abs=1e-7)
    for i, domain in enumerate(models["a"]):
        rest = oracle.unseen(models, 3, shares, without=domain)
        assert table.rest[:, i] == pytest.approx(list(rest.values()), abs=1e-7)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_values_of_unseen_are_those_of_the_jackknife(
    models: dict[str, Data], terms: list[Terms], weights: Any
) -> None:
    """Each domain is left out for good: neither its features nor its labels are used."""
    table = score_table(terms, "unseen", np.array(weights))
    left: list[list[float]] = []
    for domain in models["a"]:
        part = without(models, domain)
        shares = {d: w for d, w in named(weights, models["a"]).items() if d != domain}
        left.append(list(oracle.unseen(part, 3, shares).values()))
    jackknife = np.array(left).T
    for i in range(4):
        change = jackknife[:, i] - sum(w * jackknife[:, j] for j, w in enumerate(weights))
        assert table.values[:, i] == pytest.approx(table.totals - 3 * change, abs=1e-6)


def test_the_rest_does_not_depend_on_results_on_the_domain(terms: list[Terms]) -> None:
    changed = [
        Terms(
            [fold if fold.domain != "d1" else _spoiled(fold) for fold in each.folds],
            each.transfer,
            3,
            "robust",
        )
        for each in terms
    ]
    for score in ("zood", "discriminability", "stability", "accuracy", "balanced_accuracy"):
        one, two = (score_table(t, score, np.full(4, 0.25)) for t in (terms, changed))
        np.testing.assert_array_equal(one.rest[:, 1], two.rest[:, 1])
        assert not np.allclose(one.totals, two.totals)


def _spoiled(fold: Fold) -> Fold:
    names = ("discriminability", "stability", "metric", "second_metric")
    return replace(fold, **dict.fromkeys(names, -5.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("score", FOLD_SCORES)
def test_a_single_model_and_two_domains(score: str) -> None:
    data = {name: simulate()["a"][name] for name in ("d0", "d1")}
    table = score_table([terms_of(data)], score, np.array([0.5, 0.5]))
    assert np.isfinite(table.rest).all()
    assert table.values @ [0.5, 0.5] == pytest.approx(table.totals)


def test_two_domains_without_one_leave_the_evidence() -> None:
    models = {
        name: {domain: data[domain] for domain in ("d0", "d1")} for name, data in simulate().items()
    }
    terms = [terms_of(data) for data in models.values()]
    table = score_table(terms, "unseen", np.array([0.5, 0.5]))
    assert table.totals == pytest.approx(list(oracle.unseen(models, 3).values()), abs=1e-7)
    left = [
        oracle.standardised([oracle.evidence({d: data[d]}) for data in models.values()])
        for d in ("d1", "d0")
    ]
    expected = table.totals - (np.array(left[0]) - np.mean(left, axis=0))
    assert table.values[:, 0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("score", FOLD_SCORES)
def test_a_domain_with_one_class(score: str) -> None:
    models = simulate()
    for data in models.values():
        data["d2"] = (data["d2"][0], np.full(20, 1))
    terms = [terms_of(data) for data in models.values()]
    weights = np.array([0.4, 0.3, 0.2, 0.1])
    table = score_table(terms, score, weights)
    assert np.isfinite(table.totals).all()
    assert np.isfinite(table.rest).all()
    assert table.values @ weights == pytest.approx(table.totals, abs=1e-10)
    if score == "unseen":
        shares = named(weights, models["a"])
        expected = oracle.unseen(models, 3, shares)
        assert table.totals == pytest.approx(list(expected.values()), abs=1e-7)


def test_transfer_leaves_out_a_domain_with_one_class() -> None:
    """Its labels cannot be predicted better or worse, so it counts for no model."""
    models = simulate()
    for data in models.values():
        data["d2"] = (data["d2"][0], np.full(20, 1))
    terms = [terms_of(data) for data in models.values()]
    table = score_table(terms, "transfer", np.full(4, 0.25))
    expected = [oracle.transfer(data, 3) for data in models.values()]
    assert table.totals == pytest.approx(expected, abs=1e-9)


# --- contributions of images --------------------------------------------------------------------


@pytest.mark.parametrize("stability", ["robust", "paper"])
def test_images_average_to_the_score_of_the_fold(stability: Stability) -> None:
    """Exactly for accuracies; as differences for log-densities, which are up to a constant."""
    data = lacking()
    terms = terms_of(data, stability=stability)
    for at, fold in enumerate(terms.folds):
        correct = [bool(p == y) for p, y in zip(fold.predicted, fold.labels, strict=True)]
        assert terms.images("accuracy", at).mean() == pytest.approx(sum(correct) / fold.n)
        assert fold.metric == pytest.approx(sum(correct) / fold.n)
        recalls = []
        for c in sorted(set(fold.labels.tolist())):
            of_class = [right for right, y in zip(correct, fold.labels, strict=True) if y == c]
            recalls.append(sum(of_class) / len(of_class))
        balanced = sum(recalls) / len(recalls)
        assert terms.images("balanced_accuracy", at).mean() == pytest.approx(balanced)
        assert fold.second_metric == pytest.approx(balanced)
        assert len(terms.images("zood", at)) == fold.n
        zood = terms.images("discriminability", at) + terms.weight(fold) * terms.images(
            "stability", at
        )
        assert terms.images("zood", at) == pytest.approx(zood)


def test_images_of_balanced_accuracy_differ_from_those_of_accuracy() -> None:
    terms = terms_of(lacking())
    (at,) = (number for number, fold in enumerate(terms.folds) if fold.domain == "c")
    assert terms.images("balanced_accuracy", at) != pytest.approx(terms.images("accuracy", at))


@pytest.mark.parametrize("score", FOLD_SCORES)
def test_covariances_of_images(score: str) -> None:
    features, y, domains = simulate_models({"a": 0.7, "b": 1.0}, n=20)
    groups = [str(number // 2) for number in range(len(y))]
    source = as_source(features, y, domains, groups)
    terms = {
        model: terms_of(
            {d: (X[domains == d], y[domains == d]) for d in np.unique(domains).tolist()}
        )
        for model, X in features.items()
    }
    found = image_covariances(source, terms, score)
    assert [part.shape for part in found] == [(2, 2)] * 4
    for at, covariance in enumerate(found):
        if score in ("unseen", "transfer"):
            np.testing.assert_array_equal(covariance, 0)
            continue
        images = np.stack([terms[model].images(score, at) for model in "ab"], axis=1)
        expected = covariance_of_means(images, groups[20 * at : 20 * at + 20])
        np.testing.assert_allclose(covariance, expected)
    assert score in ("unseen", "transfer") or np.sum(found) > 0
