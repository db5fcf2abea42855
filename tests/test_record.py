"""The record of a run: typed, written, read back, or rejected in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oodzoo
from oodzoo import testbed
from oodzoo.combining.selection import select_features
from oodzoo.core.errors import InputError
from oodzoo.data.files import EmbeddedFile, LocalFile, StoredFile
from oodzoo.extraction.features import as_source
from oodzoo.report import record
from oodzoo.report.record import NAME, DataSummary, Example, ExtractionSummary, Run, read_run
from oodzoo.store.format import sealed


@pytest.fixture(scope="module")
def run() -> Run:
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 60), np.repeat(["a", "b", "c"], 40)
    clear = np.stack([y, 1 - y], 1)
    features = {f"m{k}": clear + k * rng.normal(size=(120, 2)) for k in (1, 2, 3)}
    source = as_source(features, y, domains)
    return Run(
        command="oodzoo run photos/",
        settings={"top_k": [1, 2], "seed": 0},
        versions={"oodzoo": "0.2.0"},
        machine={"cores": 2},
        stages=(record.Stage("ranking", 0.5, False, "digest"),),
        data=DataSummary(
            "photos", "f", 120, ("0", "1"), {"a": {"0": 20, "1": 20}}, 1,
            {"a": (Example("a/0/x.png", "0"),)},
        ),
        extraction=ExtractionSummary(("m1",), {"m9": "no file"}, (), 120, {"x.png": "empty"}, "s"),
        ranking=oodzoo.rank(source),
        selection=select_features(source, ["m1", "m2"]).summary(),
        evaluation=oodzoo.evaluate(source, top_k=(1, 2)),
        predictor=record.PredictorSummary("model", ("m1", "m2"), "digest"),
        testbed=testbed.run(source, resamples=50),
    )  # fmt: skip


def test_a_run_survives_json(run: Run) -> None:
    assert Run.from_dict(json.loads(json.dumps(run.to_dict()))) == run


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": 99}, "has the schema 99, this version of oodzoo reads 5; upgrade oodzoo"),
        ({"schema": 3}, "has the schema 3, .*; run `oodzoo run` again with the same --out"),
        ({"stages": 3}, "is damaged: Expected `array`, got `int` - at `\\$.stages`"),
        ({"ranking": {"score": "zood"}}, "is damaged: ranking: no 'left_out'"),
        ({"data": {"images": "many"}}, "is damaged: data: "),
        ({"evaluation": []}, "is damaged: evaluation: "),
    ],
)
def test_a_damaged_record_is_rejected(
    run: Run, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    (tmp_path / NAME).write_bytes(sealed(run.to_dict() | change))
    with pytest.raises(InputError, match=reason) as raised:
        read_run(tmp_path)
    assert "\n" not in str(raised.value)


def test_the_files_of_the_images(tmp_path: Path) -> None:
    assert record.image_files(tmp_path) == {}
    files: dict[str, StoredFile] = {"a.png": LocalFile("photos/a.png"), "b": EmbeddedFile(b"\xff")}
    record.write_local(tmp_path, files)
    assert record.image_files(tmp_path) == files
    written = (tmp_path / record.LOCAL).read_text()
    for damaged in ("{", written.replace("photos/a", "photos/c"), '{"files": {}}'):
        (tmp_path / record.LOCAL).write_text(damaged)
        assert record.image_files(tmp_path) == {}


def test_html_lists_the_stages(run: Run) -> None:
    html = replace(run, command="<b>")._repr_html_()
    assert html.count("<tr>") == 3  # the heading, the data and the ranking
    assert "3 models by unseen: 1 m1" in html
    assert "'photos': 120 images".replace("'", "&#x27;") in html
    assert "<b>" not in html
    assert Run("oodzoo run")._repr_html_().count("<tr>") == 1


def _rename(document: Any) -> None:
    document["evaluation"]["domains"][0] = "z"


def _number_as_text(document: Any) -> None:
    document["ranking"]["ranking"][0]["score"] = "nan"


def _other_bins(document: Any) -> None:
    bins = document["evaluation"]["diagnosis"]["a"]["reliability"]["bins"]
    bins[0] |= {"low": 1.0, "high": 99.0}


def _empty_bin(document: Any) -> None:
    document["evaluation"]["diagnosis"]["a"]["reliability"]["bins"][0]["images"] = 0


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_rename, "evaluation: not all rows have the domains z, b, c"),
        (_number_as_text, "ranking: .*Expected `float`, got `str`"),
        (_other_bins, "evaluation: the bins overlap from"),
        (_empty_bin, "0 images from .* are no bin"),
    ],
)
def test_parts_that_do_not_fit_together_are_rejected(run: Run, damage: Any, reason: str) -> None:
    document = json.loads(json.dumps(run.to_dict()))
    damage(document)
    with pytest.raises(InputError, match=f"is damaged: .*{reason}"):
        Run.from_dict(document)
