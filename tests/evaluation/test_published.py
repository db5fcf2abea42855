"""Results of an evaluation among published accuracies."""

from __future__ import annotations

import csv
import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from tests.evaluation.data import task_zoo, zoo
from tests.evaluation.test_result import evaluation

import oodzoo
from oodzoo.combining.evaluation import Evaluation
from oodzoo.core.errors import InputError
from oodzoo.ranking.testbed.published import (
    N_DOMAINS,
    accuracies,
    feature_ratios,
    gpu_hours,
    published,
    source_of,
)


def test_every_cell_of_the_table_is_read() -> None:
    path = Path(str(files("oodzoo.ranking.testbed"))) / "paper" / "accuracy.csv"
    with path.open(newline="") as file:
        rows = {row.pop("method"): row for row in csv.DictReader(file)}
    ratios = rows.pop("F. Ratio (% )")
    found = accuracies()
    assert list(found) == list(rows)
    for method, row in rows.items():
        assert found[method] == {name: float(cell) for name, cell in row.items() if cell}
    assert feature_ratios() == {name: float(ratios[name]) / 100 for name in N_DOMAINS}


def test_the_averages_are_those_of_the_rows() -> None:
    for method, row in accuracies().items():
        if method != "Fine-tuned":  # which is not known on all data sets
            mean = np.mean([row[name] for name in N_DOMAINS])
            assert row["average"] == pytest.approx(mean, abs=0.1)  # of rounded numbers
    assert accuracies()["Fine-tuned"].keys() == N_DOMAINS.keys() - {"DomainNet"}


def test_the_speed_up_is_the_ratio_of_the_costs() -> None:
    for row in gpu_hours().values():
        assert row["speed_up"] == pytest.approx(row["fine_tuning"] / row["zood"], rel=0.005)


@pytest.mark.parametrize(
    ("method", "source"),
    [("ERM", "DomainBed"), ("RSC", "DomainBed"), ("SWAD", "SWAD"), ("Single", "ZooD")],
)
def test_who_has_published_a_figure(method: str, source: str) -> None:
    assert source_of(method) == source


def test_ones_own_rows_are_in_their_places() -> None:
    table = published("PACS", {"Pool": 90.0, "Single": 10.0}, 4, {"extraction": None})
    values = [each.accuracy for each in table.figures]
    assert values == sorted(values, reverse=True)
    names = [(each.method, each.source) for each in table.figures]
    at = names.index(("Pool", "yours"))
    assert names[at - 1] == ("Fine-tuned", "ZooD")
    assert names[at + 1] == ("SWAD", "SWAD")
    assert names[-1] == ("Single", "yours")
    assert len(names) == 19 + 2
    assert len(published("DomainNet", {}, 6, {"extraction": None}).figures) == 18


def test_a_different_number_of_domains_is_pointed_out() -> None:
    hours = {"extraction": None, "fine_tuned": None}
    assert (
        "DomainNet has 6 domains, this evaluation 4."
        in published("DomainNet", {"Pool": 1.0}, 4, hours).caveat
    )
    assert "this evaluation" not in published("PACS", {"Pool": 1.0}, 4, hours).caveat


def test_what_is_known_of_the_cost() -> None:
    known = published("PACS", {}, 4, {"extraction": 0.5, "fine_tuned": None}).cost
    assert "0.27 to rank 35 models, 2,662 to train a head of each" in known
    assert "9,859 times as much" in known
    assert "Yours: 0.50 hours for the features of all models" in known
    assert "fine-tuning without" not in known
    unknown = published("PACS", {}, 4, {"extraction": None, "fine_tuned": None}).cost
    assert "Your cost is not known." in unknown


def test_an_evaluation_among_published_accuracies() -> None:
    result = oodzoo.evaluate(*zoo(n=12), baselines=False, published="VLCS")
    table = result.beside_published()
    assert table is not None
    mine = {each.method: each.accuracy for each in table.figures if each.source == "yours"}
    assert mine == {
        "Recommended": result.recommended.average,
        "Single": result.single.average,
        "Pool": result.pool.average,
        "Ensemble": result.ensemble.average,
        "Selection": result.selection.average,
    }
    document = json.loads(json.dumps(result.to_dict()))
    assert document["published"]["dataset"] == "VLCS"
    assert len(document["published"]["rows"]) == 19 + 5
    assert document["published"]["gpu_hours"]["fine_tuning"] == 2706.67
    assert Evaluation.from_dict(document) == result


def test_the_cost_of_the_extraction_survives_json() -> None:
    result = evaluation(published="PACS", extraction_hours=0.25)
    again = Evaluation.from_dict(json.loads(json.dumps(result.to_dict())))
    assert (again.published, again.extraction_hours) == ("PACS", 0.25)


def test_without_a_name_nothing_is_compared() -> None:
    assert evaluation().beside_published() is None
    assert "published" not in evaluation().to_dict()


@pytest.mark.parametrize(
    ("name", "hint"),
    [("pacs", "; did you mean PACS?"), ("Office-Home", "; did you mean OfficeHome?"), ("x", "")],
)
def test_an_unknown_data_set(name: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        oodzoo.evaluate(*zoo(n=12), published=name)
    expected = "expected one of PACS, VLCS, OfficeHome, TerraIncognita, DomainNet"
    assert str(caught.value) == f"no accuracies are published for {name!r}, {expected}{hint}"


def test_numbers_have_no_accuracy() -> None:
    with pytest.raises(InputError, match="are of classes, but the task is 'regression'"):
        oodzoo.evaluate(*task_zoo("regression"), published="PACS")
