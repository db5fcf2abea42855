"""Results of an evaluation among published accuracies."""

from __future__ import annotations

import csv
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from oodzoo.ranking.testbed.published import (
    N_DOMAINS,
    accuracies,
    feature_ratios,
    gpu_hours,
    published,
    source_of,
)

NO_HOURS = {"extraction": None, "fine_tuned": None}


def test_every_cell_of_the_table_is_read() -> None:
    path = Path(str(files("oodzoo.ranking.testbed"))) / "paper" / "accuracy.csv"
    with path.open(newline="") as file:
        rows = {row.pop("method"): row for row in csv.DictReader(file)}
    ratios = rows.pop("F. Ratio (% )")
    found = accuracies()
    assert list(found) == list(rows)
    for method, row in rows.items():
        assert found[method] == {name: float(cell) for name, cell in row.items() if cell}
        if method != "Fine-tuned":  # which is not known on all data sets
            mean = np.mean([found[method][name] for name in N_DOMAINS])
            assert found[method]["average"] == pytest.approx(mean, abs=0.1)  # of rounded numbers
    assert feature_ratios() == {name: float(ratios[name]) / 100 for name in N_DOMAINS}
    for hours in gpu_hours().values():
        assert hours["speed_up"] == pytest.approx(hours["fine_tuning"] / hours["zood"], rel=0.005)
    sources = {"ERM": "DomainBed", "RSC": "DomainBed", "SWAD": "SWAD", "Single": "ZooD"}
    assert {method: source_of(method) for method in sources} == sources


def test_ones_own_rows_are_in_their_places() -> None:
    table = published("PACS", {"Pool": 90.0, "Single": 10.0}, 4, NO_HOURS)
    values = [each.accuracy for each in table.figures]
    assert values == sorted(values, reverse=True)
    names = [(each.method, each.source) for each in table.figures]
    at = names.index(("Pool", "yours"))
    assert (names[at - 1], names[at + 1]) == (("Fine-tuned", "ZooD"), ("SWAD", "SWAD"))
    assert (names[-1], len(names)) == (("Single", "yours"), 19 + 2)
    other = published("DomainNet", {}, 4, NO_HOURS)
    assert len(other.figures) == 18
    assert "DomainNet has 6 domains, this evaluation 4." in other.caveat
    assert "this evaluation" not in table.caveat
    assert "Your cost is not known." in table.cost
    cost = published("PACS", {}, 4, NO_HOURS | {"extraction": 0.5}).cost
    for words in (
        "0.27 to rank 35 models, 2,662 to train a head of each",
        "9,859 times as much",
        "Yours: 0.50 hours for the features of all models",
    ):
        assert words in cost
    assert "fine-tuning without" not in cost
