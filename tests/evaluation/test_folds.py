"""Results of test domains, kept in a store and put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import stored, task_zoo, zoo

import oodzoo
from oodzoo.events import Listener
from oodzoo.extraction.importing import import_features
from oodzoo.extraction.source import StoreSource
from oodzoo.store.local import update_local


@pytest.mark.parametrize("seed", [0, 1])
def test_the_accuracy_of_the_recommendation_is_that_of_what_is_recommended_for_each_domain(
    seed: int,
) -> None:
    result = oodzoo.evaluate(*zoo(n=18, seed=seed), top_k=2, baselines=False)
    best = result.recommended
    assert set(best.choices) == set(best.domains) == set(result.domains)
    for test, choice in best.choices.items():
        assert best.domains[test] == result.rows[choice].measure("accuracy")[test]
    assert best.average == pytest.approx(np.mean(list(best.domains.values())))
    assert best.interval is not None
    low, high = best.interval
    assert 0 <= low <= best.average <= high <= 100


def test_an_evaluation_that_was_stopped_continues(tmp_path: Path) -> None:
    data = zoo(n=21, n_domains=3)
    source = stored(tmp_path, *data)
    options: dict[str, Any] = {"top_k": 2, "baselines": False, "with_target": True}
    lines: list[str] = []

    class Stop(Listener):
        def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
            if facts.get("message", "").startswith("test domain 'd1': training"):
                raise KeyboardInterrupt

    class Lines(Listener):
        def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
            lines.append(facts.get("message", ""))

    with pytest.raises(KeyboardInterrupt):
        oodzoo.evaluate(source, **options, listener=Stop())

    def tests(changed: StoreSource = source, **more: Any) -> list[str]:
        """The test domains that are evaluated, not read."""
        lines.clear()
        oodzoo.evaluate(changed, **options | more, listener=Lines())
        return sorted({line.split("'")[1] for line in lines if line.startswith("test domain")})

    assert tests() == ["d1", "d2"]
    assert tests() == []
    again = oodzoo.evaluate(source, **options)
    assert again == oodzoo.evaluate(stored(tmp_path / "fresh", *data), **options)
    every = ["d0", "d1", "d2"]
    assert tests(max_models=1) == every
    update_local(source.store.path, "best", {"milliseconds_per_image": 2.0})
    assert tests() == every  # the cost matters
    features, y, domains = data
    changed = features | {"poor": features["poor"] + 1 / 3}
    other = stored(tmp_path / "other", changed, y, domains)
    (source.store.path / "cache").rename(other.store.path / "cache")
    assert tests(other) == every


@pytest.mark.filterwarnings("ignore:no feature of:UserWarning")
def test_intervals_of_other_tasks() -> None:
    """An explained variance has no lower limit, and at most 100 %; a precision has both."""
    features, y, domains = task_zoo("regression", n=12, d=20)
    noise = {"noise": features["noise"], "other": features["noise"][::-1]}
    labels = {"regression": y, "multilabel": (y > y.mean(axis=0)).astype(float)}
    for kind, values in labels.items():
        found = oodzoo.evaluate(noise, values, domains, task=kind, top_k=1, baselines=False)
        assert found.recommended.interval is not None
        low, high = found.recommended.interval
        assert low < found.recommended.average < high <= 100
        assert low < 0 if kind == "regression" else low >= 0


def test_labels_of_one_domain_only() -> None:
    features, y, domains = task_zoo("multilabel", n=12)
    y[:, 1] = (domains == "d1") & (y[:, 0] > 0)
    found = oodzoo.evaluate(features, y, domains, task="multilabel", top_k=1, baselines=False)
    assert found.unseen == {"d1": ("1",)}
    line = "The label '1' occurs only in domain 'd1' and cannot be learned without it."
    assert line in found.findings()


def test_kept_results_have_the_measures_of_each_output(tmp_path: Path) -> None:
    features, y, domains = task_zoo("regression", n=12, n_domains=3)
    arrays: Any = {"labels": y, "domains": domains} | features
    np.savez(tmp_path / "f.npz", **arrays)
    store = import_features([tmp_path / "f.npz"], tmp_path / "store", task="regression")
    first = oodzoo.evaluate(store, top_k=1, baselines=False)
    again = oodzoo.evaluate(store, top_k=1, baselines=False)
    assert len(first.outputs) == 2
    assert again == first
