"""`oodzoo predict`: forms of output, inputs, options."""

from __future__ import annotations

import csv
import functools
import http.server
import io
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.conftest import Run
from tests.predictor.adapting import with_adaptive

import oodzoo
from oodzoo.cli.predict import Summary
from oodzoo.predictor import Prediction
from oodzoo.predictor.prediction_sets import ConfidencePoint, LeftOut

TypeIn = Callable[[str], None]


@pytest.fixture
def photos(unseen: list[Path], tmp_path: Path) -> Path:
    """Two digits, an image of noise and a file that is not an image, in folders."""
    folder = tmp_path / "photos"
    (folder / "a").mkdir(parents=True)
    for at, path in enumerate(unseen[:2]):
        shutil.copyfile(path, folder / "a" / f"{at}.png")
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "noise.png")
    (folder / "z.png").write_text("no image")
    return folder


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch) -> TypeIn:
    """Set what is on stdin."""

    def type_in(text: str) -> None:
        stream = io.TextIOWrapper(io.BytesIO(text.encode()))
        monkeypatch.setattr(sys, "stdin", stream)

    return type_in


@pytest.fixture(scope="module")
def adaptive(
    predictor: oodzoo.Predictor,
    store: oodzoo.FeatureStore,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A predictor that can adapt."""
    return with_adaptive(predictor, store).save(tmp_path_factory.mktemp("adaptive") / "model")


def cells(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def paths(rows: list[Any]) -> list[str]:
    return [row["path"] for row in rows]


# --- forms of output -----------------------------------------------------------------------------


def test_forms(run: Run, saved: Path, photos: Path, tmp_path: Path) -> None:
    (photos / "z.png").rename(photos / "a" / "0 bad.png")
    done = run("predict", saved, photos, "--json")
    for words in ("cannot read", "; 1 could not be read\n", "1 of 3 images is unlike the training"):
        assert words in done.err
    found = done.document
    document = found["unreadable"] + found["predictions"]  # as the files are sorted
    lines = run("predict", saved, photos, "--format", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == document
    rows = cells(run("predict", saved, photos, "--format", "csv").out)
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
    assert cells((tmp_path / "out.csv").read_text()) == rows
    assert [json.loads(x) for x in (tmp_path / "out.jsonl").read_text().splitlines()] == document
    assert json.loads((tmp_path / "out.JSON").read_text()) == found
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
    rows = cells(run("predict", saved, *names, "--format", "csv").out)
    assert paths(rows) == ["'=1+1.png", names[1]]
    table = run("predict", saved, *names).out
    assert [line.split()[-1] for line in table.splitlines()[1:]] == [names[0], r"a\x1b[31mb.png"]
    run("predict", saved, *names, "--format", "table", "--out", "out.txt")
    assert names[1] in Path("out.txt").read_text()
    assert paths(run("predict", saved, *names, "--json").document["predictions"]) == names


def test_what_is_said_at_the_end() -> None:
    def summary(*labels: str | None) -> Summary:
        found, p = Summary("image"), np.array([0.6, 0.4])
        for label in labels:
            found.add(Prediction(0, "a.png", label, p, 0.5, False, abstained=label is None))
        return found

    labels = [name for n, name in enumerate("abcdefg", start=1) for _ in range(n)]
    text = summary(*labels, None).text()
    assert text == "29 images: g (7), f (6), e (5), d (4), c (3) and 2 other classes (3)"
    assert summary("a").text() == "1 image: a (1)"
    half = summary("a", None)
    unknown = half.abstained_text(0.9, None)
    assert unknown.startswith("1 of 2 images has no label: confidence below 0.9; ")
    assert "not measured" in unknown
    points = (ConfidencePoint(0.0, 100, 80.0, 60.0), ConfidencePoint(0.9, 0.0, None, None))
    assert "no image had this confidence" in half.abstained_text(0.9, LeftOut((), points))
    assert half.abstained_text(0.5, LeftOut((), points)).endswith(
        "on held-out domains at 0, 80.0 % of the others were right (worst domain 60.0 %), and 0 % "
        "had no label"
    )


# --- adapting ------------------------------------------------------------------------------------


def test_adapting(
    run: Run, adaptive: Path, unseen: list[Path], photos: Path, tmp_path: Path, type_in: TypeIn
) -> None:
    done = run("predict", adaptive, *unseen, "--adapt", "--json")
    assert done.document["adapted"] == len(unseen) == 36
    assert "adapted to 36 images, without labels" in done.err
    found = [[*p["probabilities"].values()] for p in done.document["predictions"]]
    expected = oodzoo.load(adaptive).adapted(unseen).predict_proba(unseen)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    plain = run("predict", adaptive, *unseen, "--json")
    assert plain.document["adapted"] is None
    assert plain.document["predictions"] != done.document["predictions"]
    assert "adapted" not in plain.err
    type_in("\n".join(map(str, unseen[20:])))
    assert run("predict", adaptive, *unseen[:20], "-", "--adapt", "--json").out == done.out
    sets = run("predict", adaptive, *unseen, "--adapt", "--format", "csv", "--coverage", "0.95")
    assert " classes on average, measured without adapting\n" in sets.err
    labels = [p["label"] for p in done.document["predictions"]]
    assert [row["label"] for row in cells(sets.out)] == labels
    few = run("predict", adaptive, photos, "--adapt", "--out", tmp_path / "out.csv").complaint
    assert "3 readable images, at least 20 are needed to adapt to them" in few
    assert not (tmp_path / "out.csv").exists()


# --- inputs --------------------------------------------------------------------------------------


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


def test_an_input_is_not_replaced(run: Run, saved: Path, photos: Path) -> None:
    image, names, table = photos / "a" / "0.png", photos / "names.csv", photos / "features.csv"
    names.write_text(f"{image}\n")
    table.write_text("no features\n")
    cases: list[tuple[list[str | Path], Path]] = [
        ([image], image), (["--list", names], image), (["--list", names], names), ([table], table)
    ]  # fmt: skip
    for inputs, out in cases:
        before = out.read_bytes()
        complaint = run("predict", saved, *inputs, "--format", "csv", "--out", out).complaint
        assert "is one of the inputs, which it would replace; name another file" in complaint
        assert out.read_bytes() == before


def test_lists(run: Run, saved: Path, unseen: list[Path], tmp_path: Path, type_in: TypeIn) -> None:
    """A bad line is reported, and the rest goes on."""
    (tmp_path / "z.png").write_text("no image")
    names = tmp_path / "list.txt"
    lines = [unseen[0], tmp_path / "none.png", "", unseen[1], tmp_path / "z.png"]
    names.write_text("\n".join(map(str, lines)))
    done = run("predict", saved, "--list", names, "--json")
    assert done.code == 0
    assert paths(done.document["predictions"]) == [str(p) for p in unseen[:2]]
    missing, broken = done.document["unreadable"]
    assert (missing["line"], missing["list"]) == (2, str(names))
    assert "no such file or folder" in missing["error"]
    assert (broken["line"], Path(broken["path"]).name) == (5, "z.png")
    assert f"warning: line 2 of '{names}': no such file or folder" in done.err
    assert f"(line 5 of '{names}'): not an image" in done.err
    first, second = done.document["predictions"]
    given = ("predict", saved, unseen[2], "--list", names, "--list", names)
    rows = [json.loads(row) for row in run(*given, "--format", "jsonl").out.splitlines()]
    assert rows[1:] == [first, missing, second, broken] * 2
    type_in("\0".join(map(str, unseen[1:3])))
    done = run("predict", saved, unseen[0], "-", "-0", "--json")
    assert paths(done.document["predictions"]) == [str(p) for p in unseen[:3]]


def test_predictions_are_written_as_lines_come(saved: Path, unseen: list[Path]) -> None:
    """The first prediction is there before the list goes on."""
    command = [sys.executable, "-m", "oodzoo", "predict", str(saved), "-", "-q"]
    command += ["--format", "jsonl"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for path in unseen[:2]:
            child.stdin.write(f"{path}\n")
            assert json.loads(child.stdout.readline())["path"] == str(path)
        child.stdin.close()
        assert child.stdout.read() == ""
        assert child.wait() == 0


def test_nothing_to_predict(run: Run, saved: Path, tmp_path: Path, type_in: TypeIn) -> None:
    type_in("\n\n")
    assert "stdin has no lines" in run("predict", saved, "-").complaint
    assert "stdin is given twice" in run("predict", saved, "-", "-").complaint
    (tmp_path / "bad.txt").write_text("none.png\n")
    done = run("predict", saved, "--list", tmp_path / "bad.txt", "--out", tmp_path / "out.csv")
    assert (done.code, done.out) == (2, "")
    assert "none of the images can be read; first error: no such file" in done.err.splitlines()[-1]
    assert not (tmp_path / "out.csv").exists()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web(unseen: list[Path], tmp_path: Path) -> Iterator[str]:
    """A web server with two images and a list of them."""
    pytest.importorskip("aiohttp")
    folder = tmp_path / "web"
    folder.mkdir()
    for name, path in zip(("a.png", "b.png"), unseen, strict=False):
        shutil.copyfile(path, folder / name)
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        (folder / "list.txt").write_text(f"{url}/a.png\n{url}/none.png\n{url}/b.png\n")
        yield url
        server.shutdown()
        thread.join()


def test_images_and_lists_of_a_web_server(
    run: Run, saved: Path, web: str, unseen: list[Path], tmp_path: Path
) -> None:
    local = run("predict", saved, *unseen[:2], "--json").document["predictions"]
    into = ("--sort-into", tmp_path / "s")
    done = run("predict", saved, "--list", f"{web}/list.txt", "--json", *into)
    found = done.document["predictions"]
    assert paths(found) == [f"{web}/a.png", f"{web}/b.png"]
    assert [each["probabilities"] for each in found] == [each["probabilities"] for each in local]
    assert f"no such file: '{web}/none.png'" in done.err
    assert {path.name for path in (tmp_path / "s").rglob("*.png")} == {"a.png", "b.png"}
    link = run("predict", saved, f"{web}/a.png", "--sort-into", tmp_path / "t", "--link", "soft")
    assert (link.code, link.out) == (2, "")
    assert "is not a local file and cannot be linked" in link.err


def test_folders_and_lists_of_a_bucket(
    run: Run, saved: Path, unseen: list[Path], s3: Any, type_in: TypeIn
) -> None:
    names = ("new/a.png", "new/deep/b.png", "c.png")
    for name, path in zip(names, unseen, strict=False):
        s3.put(name, path.read_bytes())
    type_in(f"{s3.url}/new\n{s3.url}/c.png\n{s3.url}/none.png\n")
    done = run("predict", saved, "-", "--json")
    assert paths(done.document["predictions"]) == [f"{s3.url}/{name}" for name in names]
    assert [each["line"] for each in done.document["unreadable"]] == [3]


# --- features ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A predictor of features of two models, and features of ten rows."""
    rng = np.random.default_rng(0)
    y, domains = np.tile(["no", "yes"], 45), np.repeat(["a", "b", "c"], 30)
    X = rng.normal(size=(90, 4)) + 3 * (y == "yes")[:, None]
    fitted = oodzoo.fit({"wide": X, "narrow": X[:, :2]}, y, domains, choose="ensemble")
    folder = Path(fitted.save(tmp_path_factory.mktemp("features") / "model"))
    return folder, {"wide": X[:10], "narrow": X[:10, :2]}


def test_features(
    run: Run, features: tuple[Path, dict[str, Any]], photos: Path, tmp_path: Path
) -> None:
    model, given = features
    expected = oodzoo.load(model).predict_proba(given)
    names = [f"sample {number}" for number in range(10)]
    np.savez(tmp_path / "new.npz", **given, paths=names, labels=["?"] * 10, other=np.ones((10, 3)))
    for name, array in given.items():
        np.save(tmp_path / f"{name}.npy", array)
    both = [tmp_path / "wide.npy", tmp_path / "narrow.npy"]
    for files, known in (([tmp_path / "new.npz"], names), (both, None)):
        rows = run("predict", model, *files, "--json").document["predictions"]
        assert paths(rows) == (known or [f"row-{n:07d}" for n in range(10)])
        found = [list(row["probabilities"].values()) for row in rows]
        np.testing.assert_allclose(found, expected)
    head, first, *_ = run("predict", model, tmp_path / "new.npz").out.splitlines()
    assert head.split()[-1] == "row"
    assert first.endswith("sample 0")
    into = run("predict", model, tmp_path / "new.npz", "--sort-into", "x").complaint
    assert "only images can be sorted into folders, not rows" in into
    complaint = run("predict", model, photos).complaint
    assert "have features only; give their features as one .npz, .parquet or .csv" in complaint


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


# --- options -------------------------------------------------------------------------------------


def test_options_in_json(
    run: Run, predictor: oodzoo.Predictor, saved: Path, unseen: list[Path]
) -> None:
    """The other forms are in `test_golden.py`."""
    p = predictor.predict_proba(unseen)
    limit = float(np.sort(p.max(axis=1))[10] / 2 + np.sort(p.max(axis=1))[11] / 2)
    options = ("--top", "2", "--coverage", "0.95", "--min-confidence", f"{limit:.15f}", "--json")
    document = run("predict", saved, *unseen, *options).document
    names = predictor.classes_.tolist()
    sets = predictor.predict_sets(unseen, 0.95)
    assert document["abstained"] == sum(p.max(axis=1) < limit) == 11
    for row, probabilities, chosen in zip(document["predictions"], p, sets, strict=True):
        first, second = np.argsort(-probabilities)[:2]
        assert list(row["probabilities"]) == [names[first], names[second]]
        assert row["abstained"] == (probabilities[first] < limit)
        assert row["label"] == (None if row["abstained"] else names[first])
        assert row["set"] == list(chosen)
    assert predictor.left_out is not None
    found = predictor.left_out.at_coverage(0.95)
    assert document["coverage"]["average"] == found.average
    assert document["coverage"]["worst"] == found.worst[1]


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
