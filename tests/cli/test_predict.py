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
    assert set(first) == {
        "path", "label", "confidence", "probabilities", "distance", "out_of_domain"
    }  # fmt: skip
    assert first["confidence"] == first["probabilities"][first["label"]]
    assert first["probabilities"].keys() == {"0", "1", "2"}
    assert max(first["probabilities"], key=first["probabilities"].get) == first["label"]
    assert (noise["out_of_domain"], first["out_of_domain"]) == (True, False)
    (bad,) = done.document["unreadable"]
    assert (Path(bad["path"]).name, bad["error"]) == (
        "z.png",
        "not an image that Pillow can identify",
    )
    assert "cannot read" in done.err
    assert "; 1 could not be read\n" in done.err
    assert "1 of 3 images is unlike the training images" in done.err


def test_formats(run: Run, saved: Path, photos: Path, tmp_path: Path) -> None:
    (photos / "z.png").rename(photos / "a" / "0 bad.png")
    found = run("predict", saved, photos, "--json").document
    document = found["unreadable"] + found["predictions"]  # as the files are sorted
    lines = [
        json.loads(line)
        for line in run("predict", saved, photos, "--format", "jsonl").out.splitlines()
    ]
    assert lines == document
    rows = list(csv.DictReader(io.StringIO(run("predict", saved, photos, "--format", "csv").out)))
    for key in ("path", "label", "error"):
        assert [row[key] for row in rows] == [each.get(key, "") for each in document]
    assert [row["out_of_domain"] for row in rows] == ["", "0", "0", "1"]
    assert float(rows[1]["confidence"]) == pytest.approx(document[1]["confidence"], rel=1e-4)
    assert float(rows[1]["p(0)"]) == pytest.approx(document[1]["probabilities"]["0"], rel=1e-4)
    head, *table = run("predict", saved, photos).out.splitlines()
    assert head.split() == ["label", "prob.", "dist.", "image"]
    assert [" far " in line for line in table] == [False, False, True]
    for name in ("out.csv", "out.jsonl", "out.JSON"):
        assert run("predict", saved, photos, "--out", tmp_path / name).out == ""
    assert list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines())) == rows
    assert [json.loads(x) for x in (tmp_path / "out.jsonl").read_text().splitlines()] == document
    whole = json.loads((tmp_path / "out.JSON").read_text())
    assert whole == run("predict", saved, photos, "--json").document
    run("predict", saved, photos, "--out", tmp_path / "out.xls", "--format", "csv")
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
    run("predict", saved, *names, "--format", "table", "--out", "out.txt")
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
    sets = run("predict", model, *unseen, "--adapt", "--format", "csv", "--coverage", "0.95")
    assert " classes on average, measured without adapting\n" in sets.err
    rows = csv.DictReader(sets.out.splitlines())
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
    few = run("predict", model, photos, "--adapt", "--out", out).complaint
    assert "3 readable images, at least 20 are needed to adapt to them" in few
    assert not out.exists()
    old = oodzoo.Predictor(**{**vars(predictor._parts()), "adaptive": None}).save(tmp_path / "old")
    assert "cannot adapt to images; only a" in run("predict", old, photos, "--adapt").complaint


@pytest.mark.parametrize("form", ["csv", "table"])
def test_a_file_that_cannot_be_read_is_an_error_if_wanted(
    run: Run, saved: Path, photos: Path, form: str
) -> None:
    done = run("predict", saved, photos, "--strict", "--format", form)
    assert done.code == 2
    assert len(done.out.splitlines()) == 4  # those before it
    assert "z.png': not an image that Pillow can identify; leave out --strict" in done.err
    assert run("predict", saved, photos / "a", "--strict").code == 0
    (photos / "list.txt").write_text("none.png\n")
    listed = run("predict", saved, "--list", photos / "list.txt", "--strict").complaint
    assert "no such file or folder: 'none.png'; leave out --strict" in listed


@pytest.mark.parametrize("given", ["an image", "a listed image", "a list", "features"])
def test_an_input_is_not_replaced(run: Run, saved: Path, photos: Path, given: str) -> None:
    image, names, table = photos / "a" / "0.png", photos / "names.csv", photos / "features.csv"
    names.write_text(f"{image}\n")
    table.write_text("no features\n")
    cases: dict[str, tuple[list[str | Path], Path]] = {
        "an image": ([image], image),
        "a listed image": (["--list", names], image),
        "a list": (["--list", names], names),
        "features": ([table], table),
    }
    inputs, out = cases[given]
    before = out.read_bytes()
    done = run("predict", saved, *inputs, "--format", "csv", "--out", out)
    assert done.code == 2
    assert "is one of the inputs, which it would replace; name another file" in done.err
    assert out.read_bytes() == before


@pytest.mark.filterwarnings("default")
def test_linked_folders_are_classified_if_asked_and_loops_reported(
    run: Run, saved: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").rename(tmp_path / "elsewhere")
    photos.mkdir()
    (photos / "linked").symlink_to(tmp_path / "elsewhere" / "a")
    (photos / "loop").symlink_to(photos)
    assert "has 1 link to folders outside of it, ignored" in run("predict", saved, photos).err
    monkeypatch.setenv("OODZOO_FOLLOW_LINKS", "1")
    done = run("predict", saved, photos, "--json")
    assert len(done.document["predictions"]) == 2
    assert "'loop' links to a folder above it; ignored" in done.err


# --- features -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A predictor of features of two models, and features of ten rows."""
    rng = np.random.default_rng(0)
    y, domains = np.tile(["no", "yes"], 45), np.repeat(["a", "b", "c"], 30)
    X = rng.normal(size=(90, 4)) + 3 * (y == "yes")[:, None]
    fitted = oodzoo.fit({"wide": X, "narrow": X[:, :2]}, y, domains, choose="ensemble")
    folder = Path(fitted.save(tmp_path_factory.mktemp("features") / "model"))
    return folder, {"wide": X[:10], "narrow": X[:10, :2]}


def test_features(run: Run, features: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    model, given = features
    expected = oodzoo.load(model).predict_proba(given)
    names = [f"sample {number}" for number in range(10)]
    np.savez(tmp_path / "new.npz", **given, paths=names, labels=["?"] * 10, other=np.ones((10, 3)))
    for name, array in given.items():
        np.save(tmp_path / f"{name}.npy", array)
    both = [tmp_path / "wide.npy", tmp_path / "narrow.npy"]
    for files, paths in (([tmp_path / "new.npz"], names), (both, None)):
        done = run("predict", model, *files, "--json")
        rows = done.document["predictions"]
        assert [row["path"] for row in rows] == (paths or [f"row-{n:07d}" for n in range(10)])
        found = [list(row["probabilities"].values()) for row in rows]
        np.testing.assert_allclose(found, expected)
    head, first, *_ = run("predict", model, tmp_path / "new.npz").out.splitlines()
    assert head.split()[-1] == "row"
    assert first.endswith("sample 0")


def test_features_of_one_model_need_no_name(run: Run, tmp_path: Path) -> None:
    y, domains = np.tile(["no", "yes"], 45), np.repeat(["a", "b", "c"], 30)
    X = np.random.default_rng(0).normal(size=(90, 2)) + 3 * (y == "yes")[:, None]
    fitted = oodzoo.fit({"wine": X}, y, domains)
    fitted.save(tmp_path / "model")
    (tmp_path / "new.csv").write_text("x,y,path\n9,9,here\n-9,-9,there\n9,-8,far\n")
    np.save(tmp_path / "new.npy", np.array([[9, 9], [-9, -9], [9, -8]]))
    for file in ("new.csv", "new.npy"):
        done = run("predict", tmp_path / "model", tmp_path / file, "--json")
        assert [row["label"] for row in done.document["predictions"][:2]] == ["yes", "no"]
        assert "1 of 3 rows is unlike the training rows" in done.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wide": None}, "the features of model 'wide' are missing; got those of 'narrow'"),
        ({"wide": np.ones((10, 3))}, "'wide' must have 4 columns, as those that the predictor"),
        ({"wide": np.ones((9, 4))}, "each row must be the same sample in all of them"),
        ({"wide": np.full((10, 4), np.nan)}, "'wide' contain NaN or infinity, first in row 0"),
        ({"paths": ["x"]}, "has 1 paths, but 10 rows"),
        ({"wide": np.ones((0, 4)), "narrow": np.ones((0, 2))}, "has no rows"),
        ({"wide": None, "narrow": None, "paths": []}, "has no features"),
    ],
)
def test_features_that_do_not_fit(
    run: Run,
    features: tuple[Path, dict[str, Any]],
    change: dict[str, Any],
    message: str,
    tmp_path: Path,
) -> None:
    model, given = features
    arrays = {name: array for name, array in (given | change).items() if array is not None}
    np.savez(tmp_path / "new.npz", **arrays)
    assert message in run("predict", model, tmp_path / "new.npz").complaint


def test_images_for_a_predictor_of_features(
    run: Run, features: tuple[Path, dict[str, Any]], photos: Path
) -> None:
    complaint = run("predict", features[0], photos).complaint
    assert "have features only; give their features as one .npz, .parquet or .csv" in complaint


# --- options ------------------------------------------------------------------------------------


def test_the_most_probable_classes(run: Run, saved: Path, photos: Path) -> None:
    every = run("predict", saved, photos, "--json").document["predictions"]
    found = run("predict", saved, photos, "--json", "--top", "2").document["predictions"]
    for one, top in zip(every, found, strict=True):
        ranked = sorted(one["probabilities"].items(), key=lambda item: -item[1])[:2]
        assert list(top["probabilities"].items()) == ranked
        assert top["label"] == ranked[0][0]
    rows = list(
        csv.DictReader(
            run("predict", saved, photos, "--top", "9", "--format", "csv").out.splitlines()
        )
    )
    assert rows.pop()["label_1"] == ""  # of the file that is no image
    assert [row["label_1"] for row in rows] == [row["label"] for row in rows]
    assert "label_3" in rows[0]
    assert "label_4" not in rows[0]
    assert all(float(row["p_1"]) >= float(row["p_2"]) >= float(row["p_3"]) for row in rows)
    head, first, *_ = run("predict", saved, photos, "--top", "2").out.splitlines()
    assert head.split() == ["label", "prob.", "#2", "prob.", "dist.", "image"]
    assert first.split()[2] == list(found[0]["probabilities"])[1]
    assert "--top must be 1 or more, got 0" in run("predict", saved, photos, "--top", "0").complaint


def test_predictions_that_are_not_confident_have_no_label(
    run: Run, saved: Path, unseen: list[Path]
) -> None:
    every = run("predict", saved, *unseen, "--json").document["predictions"]
    least = sorted(max(each["probabilities"].values()) for each in every)[10]
    confidence = f"{(least + 1) / 2:.15f}"
    done = run("predict", saved, *unseen, "--json", "--min-confidence", confidence)
    below = [max(each["probabilities"].values()) < float(confidence) for each in every]
    assert done.document["abstained"] == sum(below) > 0
    for old, new, is_below in zip(every, done.document["predictions"], below, strict=True):
        assert new["abstained"] == is_below
        assert new["label"] == (None if is_below else old["label"])
    assert f"{sum(below)} of 36 images have no label: confidence below" in done.err
    assert "% of the others were right" in done.err
    table = run("predict", saved, *unseen, "--min-confidence", confidence).out.splitlines()[1:]
    assert [line.startswith("- ") for line in table] == below
    rows = csv.DictReader(
        io.StringIO(
            run("predict", saved, *unseen, "--min-confidence", confidence, "--format", "csv").out
        )
    )
    assert [(row["label"], row["abstained"]) for row in rows] == [
        ("", "1") if is_below else (old["label"], "0")
        for old, is_below in zip(every, below, strict=True)
    ]
    wrong = run("predict", saved, *unseen, "--min-confidence", "90").complaint
    assert "must be from 0 to 1, got 90.0" in wrong


def test_prediction_sets(run: Run, saved: Path, unseen: list[Path]) -> None:
    predictor = oodzoo.load(saved)
    assert predictor.left_out is not None
    chosen = predictor.left_out.at_coverage(0.95)
    expected = [list(each) for each in predictor.predict_sets(unseen, 0.95)]
    done = run("predict", saved, *unseen, "--json", "--coverage", "0.95")
    assert [each["set"] for each in done.document["predictions"]] == expected
    assert done.document["coverage"]["average"] == chosen.average
    assert done.document["coverage"]["worst"] == chosen.worst[1]
    assert f"sets cover {chosen.average:.1f} % on left-out domains on average" in done.err
    assert f"(worst domain {chosen.worst[1]:.1f} %, {chosen.worst[0]})" in done.err
    text = run("predict", saved, *unseen, "--coverage", "0.95", "--format", "csv").out
    assert [row["set"].split("|") for row in csv.DictReader(io.StringIO(text))] == expected
    table = run("predict", saved, *unseen, "--coverage", "0.95").out.splitlines()
    assert table[0].split()[2] == "set"
    assert ", ".join(expected[0]) in table[1]
    other = run("predict", saved, *unseen, "--coverage", "0.5").complaint
    assert "the coverage must be one of 0.8, 0.9, 0.95, got 0.5" in other


def test_sorting(run: Run, saved: Path, photos: Path, tmp_path: Path) -> None:
    labels = {
        Path(each["path"]).name: each["label"]
        for each in run("predict", saved, photos, "--json").document["predictions"]
    }
    into = ("--sort-into", tmp_path / "sorted")
    done = run("predict", saved, photos, *into)
    assert done.code == 0
    assert done.out.split()[:2] == ["folder", "images"]
    files = sorted((tmp_path / "sorted").rglob("*.png"))
    assert {path.name: path.parent.name for path in files} == labels
    assert "noise.png' is unlike the training images; it is in" in done.err
    again = run("predict", saved, photos, *into, "--json", "--min-confidence", "1").document
    assert again["sorted"]["images"] == {"_unsure": 3}
    assert [Path(path).name for path in again["sorted"]["unlike_training"]] == ["noise.png"]
    third = run("predict", saved, photos, *into, "--out", tmp_path / "out.csv")
    assert "3 of them were there already" in third.err
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 5
    inside = run("predict", saved, tmp_path / "sorted", *into).complaint
    assert "choose a folder outside of the images" in inside
    alone = run("predict", saved, photos, "--link", "soft").complaint
    assert "--link soft is for --sort-into" in alone


def test_features_cannot_be_sorted(
    run: Run, features: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    np.savez(tmp_path / "new.npz", **features[1])
    complaint = run("predict", features[0], tmp_path / "new.npz", "--sort-into", "x").complaint
    assert "only images can be sorted into folders, not rows" in complaint
