"""The whole protocol on small planted data."""

from __future__ import annotations

import numpy as np
import pytest
from tests.heads.partition import require_whole

from oodzoo.core.errors import InputError
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.domainbed import RULES, sweep
from oodzoo.linear.heads.domainbed.protocol import hyperparameters


def planted(n_domains: int = 3, each: int = 24, n_classes: int = 3) -> Samples:
    rng = np.random.default_rng(1)
    n = n_domains * each
    labels, domains = np.arange(n) % n_classes, np.arange(n) // each
    features = rng.normal(size=(n, 5)) + 3 * np.eye(n_classes, 5)[labels]
    return Samples(features.astype(np.float32), labels, domains)


@pytest.mark.parametrize("rule", list(RULES))
def test_chosen_heads_have_the_accuracy_of_their_records(rule: str) -> None:
    samples = planted()
    found = sweep(samples, 3, draws=3, trials=2, steps=60, checkpoint_every=20)
    for domain, each in found.chosen(rule).items():
        assert [c.record.trial for c in each] == [0, 1]
        for trial, (record, head) in enumerate(each):
            rows = found.splits[trial, domain].inside
            right = head.logits(samples.features[rows]).argmax(axis=1) == samples.labels[rows]
            assert record.test_domains == (domain,)
            assert record.accuracy == right.mean()


def test_the_test_domain_is_not_looked_at() -> None:
    """With other features and labels there, all that is chosen without the oracle stays."""
    samples = planted(4)
    other = Samples(samples.features.copy(), samples.labels.copy(), samples.domains)
    there = samples.domains == 2
    other.features[there] = 100 * np.random.default_rng(3).normal(size=(there.sum(), 5))
    other.labels[there] = other.labels[there][::-1]
    for rule in ("training-domain", "leave-one-domain-out"):
        one, two = (
            sweep(s, 3, test_domains=[2], draws=3, trials=2, steps=40, checkpoint_every=20)
            .chosen(rule)[2]
            for s in (samples, other)
        )  # fmt: skip
        for before, after in zip(one, two, strict=True):
            assert (before.record.draw, before.record.step) == (
                after.record.draw,
                after.record.step,
            )
            np.testing.assert_array_equal(before.head.weights, after.head.weights)


def test_one_test_domain_is_as_in_the_whole_sweep() -> None:
    whole, one = (
        sweep(planted(), 3, test_domains=test_domains, draws=1, trials=1, steps=30)
        for test_domains in (None, [1])
    )
    expected = [r for r in whole.records if 1 in r.test_domains]
    assert sorted(one.records, key=lambda r: (r.step, r.test_domains)) == sorted(
        expected, key=lambda r: (r.step, r.test_domains)
    )


def test_numpy_and_torch_agree_without_dropout() -> None:
    pytest.importorskip("torch")
    one, two = (
        sweep(planted(), 3, draws=1, trials=2, steps=40, device=device) for device in (None, "cpu")
    )
    for before, after in zip(one.chosen()[0], two.chosen()[0], strict=True):
        np.testing.assert_allclose(before.head.weights, after.head.weights, atol=1e-6)


def test_learns_what_is_easy() -> None:
    rng = np.random.default_rng(0)
    labels, domains = np.arange(72) % 3, np.arange(72) // 24
    features = rng.normal(size=(72, 200)) + rng.normal(size=(3, 200))[labels]
    samples = Samples(features.astype(np.float32), labels, domains)
    found = sweep(samples, 3, draws=2, trials=2, steps=1000, checkpoint_every=500)
    assert np.mean(list(found.accuracies("training-domain").values())) > 0.8


def test_two_domains_leave_nothing_for_pairs() -> None:
    found = sweep(planted(2), 3, draws=1, trials=1, steps=5)
    assert set(found.accuracies("training-domain")) == {0, 1}
    with pytest.raises(InputError, match="needs three domains, got two"):
        found.chosen("leave-one-domain-out")


def test_progress_ends_with_all_runs() -> None:
    seen: list[tuple[int, int]] = []
    sweep(planted(), 3, draws=2, trials=1, steps=3, progress=lambda *at: seen.append(at))
    assert seen == [(6, 12), (12, 12)]


def test_splits_keep_groups_whole_and_accuracies_are_of_their_own_size() -> None:
    """Out-splits of groups differ in size between trials; each accuracy is a share of its own."""
    samples = planted(3, each=40)
    groups = [f"{row % 2}-{(row * row) % 11}" for row in range(len(samples.labels))]
    found = sweep(samples, 3, groups=groups, draws=1, trials=3, steps=60, checkpoint_every=20)
    names = np.array(groups)
    sizes = set()
    for (trial, domain), (inside, outside) in found.splits.items():
        here = np.flatnonzero(samples.domains == domain)
        require_whole(names[here], inside - here[0], outside - here[0])
        sizes.add(len(outside))
        head = found.chosen("oracle")[domain][trial]
        for rows, accuracy in ((inside, head.record.inside), (outside, head.record.outside)):
            right = head.head.logits(samples.features[rows]).argmax(axis=1) == samples.labels[rows]
            assert accuracy[domain] == pytest.approx(right.mean())
    assert len(sizes) > 1


def test_the_search_space_reaches_the_draws() -> None:
    found = sweep(planted(), 3, draws=3, trials=1, steps=2, search_space="DomainNet")
    drawn = {record.draw: record.hyperparameters for record in found.records}
    assert drawn == {draw: hyperparameters(draw, 0, "DomainNet") for draw in range(3)}


@pytest.mark.parametrize(
    ("search_space", "steps"),
    [("default", [0, 300, 600, 900, 1001]), ("DomainNet", [0, 1000, 1001])],
)
def test_checkpoints_are_those_of_domainbed(search_space: str, steps: list[int]) -> None:
    found = sweep(planted(), 3, draws=1, trials=1, steps=1002, search_space=search_space)
    assert sorted({record.step for record in found.records}) == steps


def test_what_cannot_be_swept() -> None:
    samples = planted()
    with pytest.raises(InputError, match="unknown search space 'VLCS'"):
        sweep(samples, 3, search_space="VLCS")
    with pytest.raises(InputError, match="all samples of domain 1 are of one group"):
        sweep(samples, 3, groups=np.where(samples.domains == 1, 99, np.arange(72)).tolist())
    with pytest.raises(InputError, match="72 samples, but groups of 3"):
        sweep(samples, 3, groups=["a", "b", "c"])
    with pytest.raises(InputError, match="one class, 0 "):
        sweep(samples._replace(labels=np.zeros(72, np.int64)), 3)
    with pytest.raises(InputError, match="at least two domains, got 1"):
        sweep(planted(1), 3)
    with pytest.raises(
        InputError, match=r"test_domains must be distinct domains of \[0, 1, 2\], got \[7\]"
    ):
        sweep(samples, 3, test_domains=[7])
    with pytest.raises(InputError, match="domain 0 has 4 samples; at least 5"):
        sweep(planted(3, each=4), 3)
    with pytest.raises(InputError, match="labels of 2 classes must be 0 to 1, got 0 to 2"):
        sweep(samples, 2)
    with pytest.raises(InputError, match="draws must be at least 1, got 0"):
        sweep(samples, 3, draws=0)
    with pytest.raises(InputError, match="unknown selection rule 'best'"):
        sweep(samples, 3, draws=1, trials=1, steps=2).chosen("best")
    samples.features[5, 1] = np.nan
    with pytest.raises(InputError, match="sample 5 are not finite"):
        sweep(samples, 3)
