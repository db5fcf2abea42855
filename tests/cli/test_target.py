"""`--target` of rank, fit and run: a name, a folder or a URL; `test_golden.py` has the words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cluster.data import write_zoo
from tests.conftest import Run, linked
from tests.fixtures import draw_digits

import oodzoo

WITHOUT_TIMES = ("--json", "--quiet")
MODELS = ("mlp_glyphs_augmented", "separable_shapes")
NEW = 27


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits, a zoo, their store, and digits that the store does not have."""
    folder = tmp_path_factory.mktemp("job")
    draw_digits(folder / "data", 5)
    draw_digits(folder / "new", 3, skip=5)
    zoo = oodzoo.load_zoo(write_zoo(folder / "zoo", list(MODELS)))
    oodzoo.extract(folder / "data", zoo, folder / "s", device="cpu")
    return folder


@pytest.fixture
def store(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it all in the working folder, which a test may change."""
    monkeypatch.chdir(linked(job, tmp_path / "job"))
    return Path("s")


def scores(document: Any) -> dict[str, float]:
    return {row["model"]: row["score"] for row in document["ranking"]}


def test_a_folder_is_extracted_once(run: Run, store: Path) -> None:
    plain = run("rank", store, *WITHOUT_TIMES).document
    first = run("rank", store, "--target", "new", "--json")
    assert (first.code, "2 models, 27 images" in first.err) == (0, True), first.err
    opened = oodzoo.FeatureStore(store)
    assert (opened.unlabelled, len(opened.paths("new"))) == (("new",), NEW)
    times = {path: path.stat().st_mtime_ns for path in store.rglob("*.npy")}
    for again in ("new", "./new", Path("new").resolve()):
        outcome = run("rank", store, "--target", again, "--json")
        assert (outcome.document, outcome.err) == (first.document, "")
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*.npy")} == times
    # it is used only when given
    assert scores(first.document) != scores(plain)
    again = run("rank", store, *WITHOUT_TIMES).document
    for row in (*plain["ranking"], *again["ranking"]):
        row["milliseconds"] = row["pareto_optimal"] = None  # measured again by the extraction
    assert again == plain
    options = ("--target", "new", "--top-k", "1", "--out", "model", *WITHOUT_TIMES)
    fitted = run("fit", store, *options).document
    assert fitted["models"] == [first.document["ranking"][0]["model"]]
    provenance = json.loads(Path("model/predictor.json").read_text())["provenance"]
    assert provenance["scores"] == scores(first.document)


def test_a_pool_adapts_to_the_target(run: Run, store: Path) -> None:
    for name, target in (("plain", ()), ("adapted", ("--target", "new"))):
        arguments = ("--choose", "pool", "--out", name, *target, *WITHOUT_TIMES)
        assert run("fit", store, *arguments).document["choice"] == "pool"
    images = sorted(Path("new").rglob("*.png"))
    labels = [path.parent.name for path in images]
    plain, adapted = (oodzoo.load(name) for name in ("plain", "adapted"))
    assert not np.allclose(adapted.predict_proba(images), plain.predict_proba(images), atol=1e-3)
    assert adapted.score(images, labels) > 0.7
    assert adapted.provenance.target == "new"


def test_a_folder_that_has_changed(run: Run, store: Path) -> None:
    """The name of a domain is not a folder; a path is."""
    run("rank", store, "--target", "new")
    sorted(Path("new/chalk/1").iterdir())[0].unlink()
    outcome = run("rank", store, "--target", "new")
    assert "the folder 'new' has other images than the unlabelled domain 'new'" in outcome.err
    assert "give --target ./new" in outcome.err
    assert len(oodzoo.FeatureStore(store).paths("new")) == NEW
    outcome = run("rank", store, "--target", "./new")
    assert "its 27 images were replaced by those of 'new'" in outcome.err
    assert len(oodzoo.FeatureStore(store).paths("new")) == NEW - 1


@pytest.mark.filterwarnings("always")
def test_few_images_and_images_with_labels_are_warned_of(run: Run, store: Path) -> None:
    shutil.rmtree("new/chalk")
    for name in ("paper/0", "paper/1"):
        shutil.copy(sorted(Path("data", name).iterdir())[2], Path("new", name))
    Path("new/cut.png").write_bytes(b"no image")
    shutil.rmtree("new/marker/0")
    outcome = run("rank", store, "--target", "new", "--json")
    assert outcome.code == 0
    warned = [line for line in outcome.err.splitlines() if line.startswith("warning: ")]
    assert [line for line in warned if "'new' has 17 images, too few to rank" in line]
    assert [line for line in warned if "2 of the 17 images of the target 'new' are also" in line]
    assert [line for line in warned if "skipped 'cut.png'" in line]
    assert len(warned) == 3
