"""Accuracy and cost of what was chosen, on the test domain."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, mean_absolute_error, r2_score
from tests.combination.data import Costly
from tests.evaluation.data import task_zoo, zoo

import oodzoo
from oodzoo.combining.heads import predict_with_heads
from oodzoo.extraction.source import ArraySource
from oodzoo.tasks.metrics import contributions


def test_a_class_of_the_test_domain_only_is_misclassified() -> None:
    features, y, domains = zoo()
    labels = np.array(["x", "y", "z"], dtype=object)[y]
    labels[np.flatnonzero(domains == "d0")[:15]] = "a new one"
    result = oodzoo.evaluate(features, labels, domains, baselines=False, with_target=True)
    assert result.unseen == {"d0": ("a new one",)}
    for row in result.rows.values():
        assert row.measure("accuracy")["d0"] <= 50
        assert row.measure("accuracy")["d1"] > 60
    line = "The class 'a new one' occurs only in domain 'd0' and is always misclassified there."
    assert line in str(result)


def test_limits_of_what_is_recommended() -> None:
    data = zoo(n=18)
    one = oodzoo.evaluate(*data, top_k=2, baselines=False, max_models=1)
    assert len(one.recommended.models) == 1
    assert set(one.recommended.choices.values()) <= {"single", "pool"}
    assert {len(cell.models) for cell in one.pool.cells.values()} == {1}
    assert {len(cell.models) for cell in one.ensemble.cells.values()} == {2}  # still a row
    times = {"poor": 1.0, "best": 9.0, "fair": 2.0, "good": 9.0}
    source = Costly(*data, times, dict.fromkeys(times, 7))
    fast = oodzoo.evaluate(source, top_k=2, baselines=False, max_ms=3)
    assert set(fast.recommended.models) <= {"fair", "poor"}
    for cell in fast.pool.cells.values():
        assert cell.milliseconds == sum(times[model] for model in cell.models) <= 3
        assert cell.parameters == 7 * len(cell.models)
    with pytest.raises(oodzoo.InputError, match=r"--max-ms 0.1: the fastest, 'poor', takes 1 ms"):
        oodzoo.evaluate(source, baselines=False, max_ms=0.1)
    with pytest.raises(oodzoo.InputError, match="--max-ms 100: time per image unknown"):
        oodzoo.evaluate(*data, baselines=False, max_ms=100)


def test_images_of_the_test_domain_help_where_domains_are_shifted() -> None:
    features, y, domains = zoo(n=24)
    rng = np.random.default_rng(5)
    for name, array in features.items():
        features[name] = array + np.repeat(4 * rng.normal(size=(4, array.shape[1])), 24, axis=0)
    result = oodzoo.evaluate(features, y, domains, top_k=2, baselines=False, with_target=True)
    assert list(result.with_target) == ["pool"]
    assert result.with_target["pool"].average > result.pool.average + 10


def test_pools_with_and_without_target_images_are_scored_on_the_same_rows() -> None:
    few = {"draws": 1, "steps": 2, "trials": 2}
    result = oodzoo.evaluate(
        *zoo(n=25, n_domains=3), top_k=1, baselines=False, with_target=True, protocol="domainbed",
        **few,  # type: ignore[arg-type]
    )  # fmt: skip
    for row in (result.pool, result.with_target["pool"]):
        for cell in row.cells.values():
            assert len(cell.measures) == 2
            for each in cell.measures:
                assert each[0] / 5 == pytest.approx(round(each[0] / 5))  # of 20 of 25 samples


@pytest.mark.parametrize("groups", [None, [f"g{row // 3}" for row in range(48)]])
def test_the_variance_of_a_metric_is_that_of_its_contributions(groups: list[str] | None) -> None:
    features, y, domains = task_zoo("regression", n=12)
    found = oodzoo.evaluate(features, y, domains, groups=groups, top_k=1, baselines=False)
    source = ArraySource(features, y, domains, groups, "regression")
    heads = predict_with_heads(source)
    for test in source.domains:
        cell = found.single.cells[test]
        predicted = heads[test].alone[cell.models[0]].test
        assert predicted is not None
        values = 100 * contributions("regression", predicted, source.labels(test))
        assert values.mean() == pytest.approx(cell.accuracy)
        parts = np.split(values - values.mean(), 12 if groups is None else 4)
        n = len(parts)
        expected = sum(part.sum() ** 2 for part in parts) * n / (n - 1) / 12**2
        assert cell.variance == pytest.approx(expected)


def test_measures_of_each_number_equal_scikit_learn() -> None:
    features, y, domains = task_zoo("regression", n=12)
    found = oodzoo.evaluate(features, y, domains, task="regression", top_k=1)
    source = ArraySource(features, y, domains, task="regression")
    heads = predict_with_heads(source)
    assert found.outputs == source.task.outputs
    explained, errors = [], []
    for test, cell in found.single.cells.items():
        predicted = heads[test].alone[cell.models[0]].test
        assert predicted is not None
        labels = y[domains == test]
        explained.append(r2_score(labels, predicted, multioutput="raw_values"))
        errors.append(mean_absolute_error(labels, predicted, multioutput="raw_values"))
    for column, name in enumerate(found.outputs):
        assert found.single.outputs[name] == pytest.approx(
            {
                "explained_variance": 100 * np.mean(explained, axis=0)[column],
                "absolute_error": np.mean(errors, axis=0)[column],
            }
        )
    for name, row in found.rows.items():  # also of means over draws
        values = [each["explained_variance"] for each in row.outputs.values()]
        assert np.mean(values) == pytest.approx(row.average), name


def test_labels_that_a_domain_lacks_are_skipped() -> None:
    features, y, domains = task_zoo("multilabel", n=15)
    y[domains == "d1", 0] = 0
    found = oodzoo.evaluate(features, y, domains, task="multilabel", top_k=1, baselines=False)
    heads = predict_with_heads(ArraySource(features, y, domains, task="multilabel"))
    first, second = found.outputs
    expected = {}
    for test, cell in found.single.cells.items():
        predicted = heads[test].alone[cell.models[0]].test
        assert predicted is not None
        if test != "d1":
            labels = y[domains == test, 0]
            expected[test] = 100 * average_precision_score(labels, predicted[:, 0])
        assert (first in cell.outputs, second in cell.outputs) == (test != "d1", True)
    average = found.single.outputs[first]["average_precision"]
    assert average == pytest.approx(np.mean(list(expected.values())))
    document = found.to_dict()["single"]["outputs"]
    assert document[first]["average_precision"]["domains"] == pytest.approx(expected)
