"""The recipe of CONTRIBUTING.md: a task is a class that is registered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import oodzoo
from oodzoo.report import write_test_report
from oodzoo.tasks import TASKS, task_of
from oodzoo.tasks.task import MEASURES

RECIPE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def grades(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The task of the recipe, known during a test."""
    [code] = re.findall(r"### To add a task\n.*?```python\n(.*?)```", RECIPE.read_text(), re.S)
    tasks, measures = dict(TASKS), dict(MEASURES)
    (tmp_path / "grades_of_the_recipe.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    import_module("grades_of_the_recipe")
    yield "grades"
    for known, before in ((TASKS, tasks), (MEASURES, measures)):
        for name in known.keys() - before.keys():
            del known[name]


def test_a_task_made_by_the_recipe(grades: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(1, 6, 240)
    domains = np.repeat(["a", "b", "c", "d"], 60)
    features = {
        name: np.float32(rng.normal(size=(240, 8)) + y[:, None] * rng.normal(size=8) * strength)
        for name, strength in (("good", 0.7), ("fair", 0.3), ("poor", 0.02))
    }
    ranking = oodzoo.rank(features, y, domains, task=grades)
    assert (ranking.best, ranking.task, ranking.metric) == ("good", grades, "within_one")
    assert "within one" in str(ranking)
    by_metric = oodzoo.rank(features, y, domains, task=grades, score="within_one")
    assert [row.model for row in by_metric.rows] == ["good", "fair", "poor"]

    found = oodzoo.evaluate(features, y, domains, task=grades)
    assert found.metric == "within_one"
    assert 60 < found.recommended.average <= 100
    assert type(found).from_dict(found.to_dict()).to_dict() == found.to_dict()

    predictor = oodzoo.fit(features, y, domains, task=grades)
    assert predictor.task == task_of(grades, ["y"])
    given = {model.name: features[model.name] for model in predictor.models}
    grade = predictor.predict(given)
    near = np.mean(np.abs(grade - y) < 1)
    assert predictor.score(given, y) == pytest.approx(near)
    predictor.save(tmp_path / "model")
    again = oodzoo.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(given), grade)
    assert again.task.kind == grades

    tested = oodzoo.test(again, given, labels=y, domains=domains)
    assert tested.value == pytest.approx(100 * near)
    assert f"Within one {tested.value:.1f} %" in str(tested)
    page = write_test_report(tested, tmp_path / "test.html").read_text()
    assert "The share of grades less than 1 off." in page
