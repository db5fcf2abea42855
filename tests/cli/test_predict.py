"""`oodzoo predict`."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.predictor.adapting import with_adaptive

import oodzoo

Run = Callable[..., Any]


@pytest.fixture
def photos(unseen: list[Path], tmp_path: Path) -> Path:
    """Two digits, an image of noise and a file that is not an image, in folders."""
    for at, path in enumerate(unseen[:2]):
        target = tmp_path / "photos" / "a" / f"{at}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "photos" / "noise.png")
    (tmp_path / "photos" / "z.png").write_text("no image")
    return tmp_path / "photos"


def test_json(run: Run, saved: Path, photos: Path) -> None:
    done = run("predict", saved, photos, "--json")
    assert done.code == 0
    first, second, noise = done.document["predictions"]
    assert [Path(p["path"]).name for p in (first, second, noise)] == ["0.png", "1.png", "noise.png"]
    assert set(first) == {"path", "label", "probabilities", "distance", "out_of_domain"}
    assert first["probabilities"].keys() == {"0", "1", "2"}
    assert max(first["probabilities"], key=first["probabilities"].get) == first["label"]
    assert (noise["out_of_domain"], first["out_of_domain"]) == (True, False)
    (bad,) = done.document["unreadable"]
    assert (Path(bad["path"]).name, bad["reason"]) == (
        "z.png",
        "not an image that Pillow can identify",
    )
    assert "cannot read" in done.err
    assert "1 of 3 images is unlike the training images" in done.err


def test_formats(run: Run, saved: Path, photos: Path, tmp_path: Path) -> None:
    document = run("predict", saved, photos, "--json").document["predictions"]
    lines = [
        json.loads(line)
        for line in run("predict", saved, photos, "--format", "jsonl").out.splitlines()
    ]
    assert lines == document
    rows = list(csv.DictReader(io.StringIO(run("predict", saved, photos, "--format", "csv").out)))
    assert [row["label"] for row in rows] == [p["label"] for p in document]
    assert [row["out_of_domain"] for row in rows] == ["0", "0", "1"]
    assert float(rows[1]["p(0)"]) == pytest.approx(document[1]["probabilities"]["0"], rel=1e-4)
    head, *table = run("predict", saved, photos).out.splitlines()
    assert head.split() == ["label", "prob.", "dist.", "image"]
    assert [" far " in line for line in table] == [False, False, True]
    for name in ("out.csv", "out.jsonl", "out.JSON"):
        assert run("predict", saved, photos, "--output", tmp_path / name).out == ""
    assert list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines())) == rows
    for name in ("out.jsonl", "out.JSON"):
        assert [json.loads(x) for x in (tmp_path / name).read_text().splitlines()] == document
    run("predict", saved, photos, "--output", tmp_path / "out.xls", "--format", "csv")
    assert (tmp_path / "out.xls").read_text() == (tmp_path / "out.csv").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="such names are not allowed")
def test_names_that_are_formulas_or_have_control_characters(
    run: Run, saved: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["=1+1.png", "a\x1b[31mb.png"]
    monkeypatch.chdir(photos)
    for name in names:
        shutil.copyfile("a/0.png", name)
    rows = list(csv.DictReader(io.StringIO(run("predict", saved, *names, "--format", "csv").out)))
    assert [row["path"] for row in rows] == ["'=1+1.png", names[1]]
    table = run("predict", saved, *names).out
    assert [line.split()[-1] for line in table.splitlines()[1:]] == [names[0], r"a\x1b[31mb.png"]
    run("predict", saved, *names, "--format", "table", "--output", "out.txt")
    assert names[1] in Path("out.txt").read_text()
    document = run("predict", saved, *names, "--json").document
    assert [found["path"] for found in document["predictions"]] == names


def test_adapting(
    run: Run,
    predictor: oodzoo.Predictor,
    store: oodzoo.FeatureStore,
    unseen: list[Path],
    tmp_path: Path,
) -> None:
    adaptive = with_adaptive(predictor, store)
    model = adaptive.save(tmp_path / "model")
    done = run("predict", model, *unseen, "--adapt", "--json")
    assert done.document["adapted"] == len(unseen) == 36
    assert "adapted to 36 images, without labels" in done.err
    found = [[*p["probabilities"].values()] for p in done.document["predictions"]]
    np.testing.assert_allclose(found, adaptive.adapted(unseen).predict_proba(unseen), atol=1e-6)
    plain = run("predict", model, *unseen, "--json")
    assert plain.document["adapted"] is None
    assert plain.document["predictions"] != done.document["predictions"]
    assert "adapted" not in plain.err
    lines = run("predict", model, *unseen, "--adapt", "--format", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == done.document["predictions"]
    rows = csv.DictReader(
        run("predict", model, *unseen, "--adapt", "--format", "csv").out.splitlines()
    )
    assert [row["label"] for row in rows] == [p["label"] for p in done.document["predictions"]]


def test_images_that_nothing_adapts_to(
    run: Run,
    predictor: oodzoo.Predictor,
    store: oodzoo.FeatureStore,
    photos: Path,
    tmp_path: Path,
) -> None:
    model = with_adaptive(predictor, store).save(tmp_path / "model")
    out = tmp_path / "out.csv"
    few = run("predict", model, photos, "--adapt", "--output", out).complaint
    assert "3 readable images, at least 20 are needed to adapt to them" in few
    assert not out.exists()
    old = oodzoo.Predictor(**{**vars(predictor._parts()), "adaptive": None}).save(tmp_path / "old")
    assert "cannot adapt to images; only a" in run("predict", old, photos, "--adapt").complaint


def test_no_readable_image(run: Run, saved: Path, photos: Path, tmp_path: Path) -> None:
    done = run("predict", saved, photos / "z.png", "--output", tmp_path / "out.csv")
    assert (done.code, done.out) == (2, "")
    assert "none of the images can be read; first error:" in done.err.splitlines()[-1]
    assert not (tmp_path / "out.csv").exists()


def test_invalid_arguments(run: Run, saved: Path, photos: Path) -> None:
    nowhere = run("predict", saved, "nowhere.png").complaint
    assert "no such file or folder: 'nowhere.png'" in nowhere
    assert "no such predictor: 'nowhere'" in run("predict", "nowhere", photos).complaint
    assert "unknown format 'xml'" in run("predict", saved, photos, "--format", "xml").complaint
    together = run("predict", saved, photos, "--json", "--format", "csv").complaint
    assert "--json prints one JSON document" in together
    assert "batch size" in run("predict", saved, photos, "--batch-size", "0").complaint
    assert "device 'tpu'" in run("predict", saved, photos, "--device", "tpu").complaint
    assert "is a folder" in run("predict", saved, photos, "--output", photos).complaint
    unknown = run("predict", saved, photos, "--output", "x.xls").complaint
    assert "the suffix '.xls' sets no format; use .csv or .jsonl or .json" in unknown


def test_output_to_a_device(run: Run, saved: Path, photos: Path) -> None:
    done = run("predict", saved, photos, "--output", "/dev/null", "--format", "csv")
    assert done.code == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.filterwarnings("default")
def test_linked_folders_are_classified_and_loops_reported(
    run: Run, saved: Path, photos: Path, tmp_path: Path
) -> None:
    (tmp_path / "photos").rename(tmp_path / "elsewhere")
    photos.mkdir()
    (photos / "linked").symlink_to(tmp_path / "elsewhere" / "a")
    (photos / "loop").symlink_to(photos)
    done = run("predict", saved, photos, "--json")
    assert len(done.document["predictions"]) == 2
    assert "'loop' links to a folder above it; ignored" in done.err
