"""The parts of a predictor."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import oodzoo
from oodzoo.predictor.folder import read_folder
from oodzoo.predictor.parts import Cost, PredictorParts


def test_every_part_is_an_attribute(predictor: oodzoo.Predictor) -> None:
    for field in fields(PredictorParts):
        name = "classes_" if field.name == "classes" else field.name
        assert hasattr(predictor, name)


def test_the_parts_of_a_saved_predictor(predictor: oodzoo.Predictor, saved: Path) -> None:
    parts = read_folder(saved)
    assert parts.classes == predictor.classes_.tolist()
    assert parts.provenance == predictor.provenance
    assert parts.provenance.domains == ("chalk", "marker", "paper")
    assert parts.provenance.n_images == 108
    assert set(parts.provenance.scores) > {model.name for model in parts.models}
    assert parts.head.C == predictor.head.C


def test_costs_are_summed(predictor: oodzoo.Predictor, saved: Path) -> None:
    one, two = predictor.loadable_models
    sizes = [model.spec.file.stat().st_size for model in (one, two)]
    assert [one.bytes, two.bytes] == sizes
    assert one.milliseconds is not None
    assert two.milliseconds is not None
    assert one.parameters is not None
    assert two.parameters is not None
    expected = Cost(
        one.milliseconds + two.milliseconds, one.parameters + two.parameters, sum(sizes)
    )
    assert predictor.cost == expected
    assert oodzoo.load(saved).cost == expected
    assert min(expected.milliseconds or 0, expected.parameters or 0) > 0
    unknown = Cost.of([one, replace(two, milliseconds=None)])
    assert unknown == replace(expected, milliseconds=None)


def test_facts_for_json(predictor: oodzoo.Predictor) -> None:
    one, two = predictor.models
    facts = replace(
        predictor.provenance,
        choice="pool",
        pool={one.name: 0.75, two.name: 0.25},
        accuracy=81.5,
        accuracy_interval=(78.0, 85.0),
        target="photos",
    )
    document = json.loads(json.dumps(replace(predictor._parts(), provenance=facts).to_dict()))
    assert (document["choice"], document["accuracy"]) == ("pool", 81.5)
    assert document["accuracy_interval"] == [78, 85]
    assert document["classes"] == ["0", "1", "2"]
    assert [(m["name"], m["weight"]) for m in document["models"]] == list(facts.pool.items())
    kept = [len(columns) for columns in predictor.columns.by_model.values()]
    assert [m["kept"] for m in document["models"]] == kept
    assert [m["features"] for m in document["models"]] == [one.feature_dim, two.feature_dim]
    assert sum(m["parameters"] for m in document["models"]) == document["cost"]["parameters"]
    assert [m["licence"] for m in document["models"]] == ["Apache-2.0"] * 2
    assert all(m["pretraining"].startswith("glyphs") for m in document["models"])
    assert document["provenance"]["score"] == "unseen"
    assert document["provenance"]["target"] == "photos"
    assert document["provenance"]["n_images"] == 108
    assert "pool" not in document["provenance"]
    own = predictor.to_dict()
    assert own["choice"] == predictor.provenance.choice
    assert own["adaptive"] == (predictor.adaptive is not None)
