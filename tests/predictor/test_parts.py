"""The parts of a predictor."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import oodzoo
from oodzoo.predictor.folder import read_folder
from oodzoo.predictor.parts import PredictorParts


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
