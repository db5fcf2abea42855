"""`--target` of rank, fit and run: by name, from a folder, and bad input."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.data import write_zoo
from tests.conftest import Outcome, Run
from tests.features import conftest as fixtures
from tests.features.data import Extract, Stamps, Zoo, one_of
from tests.fixtures import draw_digits
from tests.ranking.data import saved, simulate_models
from tests.s3 import Bucket

from oodzoo.demo import write_digits
from oodzoo.store.feature_store import FeatureStore
from oodzoo.zoo import ModelSpec, load_zoo

# The digits, models and stores that the tests of features use.
digits, zoo, zoo_file, extract = fixtures.digits, fixtures.zoo, fixtures.zoo_file, fixtures.extract
made, store, stamps, tree = fixtures.made, fixtures.store, fixtures.stamps, fixtures.tree

WITHOUT_TIMES = ("--json", "--quiet")
NEW = 27


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits that the store does not have. Tests must not change them."""
    return draw_digits(tmp_path_factory.mktemp("images") / "new", 3, skip=5)


@pytest.fixture
def folder(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them in the working folder, which a test may change."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(images, tmp_path / "new")


def models(document: Any) -> list[str]:
    return [row["model"] for row in document["ranking"]]


# --- names and folders ---------------------------------------------------------------------------


def test_a_folder_is_extracted_once(run: Run, store: Path, folder: Path, stamps: Stamps) -> None:
    first = run("rank", store, "--target", folder, "--json")
    assert (first.code, "2 models, 27 images" in first.err) == (0, True), first.err
    opened = FeatureStore(store)
    assert (opened.unlabelled, len(opened.paths("new"))) == (("new",), NEW)
    times = stamps(store)
    for again in ("new", "./new", folder):
        outcome = run("rank", store, "--target", again, "--json")
        assert outcome.document == first.document
        assert outcome.err == ""
    assert stamps(store) == times


def test_images_at_a_url(run: Run, store: Path, folder: Path, s3: Bucket) -> None:
    local = run("rank", store, "--target", f"web={folder}", *WITHOUT_TIMES).document
    url = s3.upload(folder, "web")
    remote = run("rank", store, "--target", f"other={url}", *WITHOUT_TIMES).document
    assert [row["score"] for row in remote["ranking"]] == [r["score"] for r in local["ranking"]]
    assert FeatureStore(store).unlabelled == ("other", "web")
    assert run("rank", store, "--target", url).code == 0  # named after its last part
    nothing = run("rank", store, "--target", f"{s3.url}/nothing")
    assert nothing.code == 2
    assert f"{s3.url}/nothing" in nothing.err


def test_it_is_used_only_when_given(run: Run, store: Path, folder: Path) -> None:
    plain = run("rank", store, *WITHOUT_TIMES).document
    targeted = run("rank", store, "--target", f"hospital={folder}", *WITHOUT_TIMES).document
    assert FeatureStore(store).unlabelled == ("hospital",)
    assert [row["score"] for row in targeted["ranking"]] != [r["score"] for r in plain["ranking"]]
    again = run("rank", store, *WITHOUT_TIMES).document
    for row in (*plain["ranking"], *again["ranking"]):
        row["milliseconds"] = row["pareto_optimal"] = None  # measured again by the extraction
    assert again == plain


def test_fit_uses_the_models_that_rank_first_for_the_target(
    run: Run, store: Path, folder: Path
) -> None:
    ranking = run("rank", store, "--target", "new=new", *WITHOUT_TIMES).document
    options = ("--target", "new", "--top-k", "1", "--out", "model", *WITHOUT_TIMES)
    assert run("fit", store, *options).document["models"] == models(ranking)[:1]
    provenance = json.loads(Path("model/predictor.json").read_text())["provenance"]
    expected = {row["model"]: row["score"] for row in ranking["ranking"]}
    assert provenance["scores"] == expected


def test_fit_extracts_a_folder(run: Run, store: Path, folder: Path) -> None:
    done = run("fit", store, "--target", folder, "--out", "model", "--json")
    assert done.code == 0, done.err
    assert FeatureStore(store).unlabelled == ("new",)


def test_a_folder_that_has_changed(run: Run, store: Path, folder: Path) -> None:
    """The name of a domain is not a folder; a path is."""
    run("rank", store, "--target", "new")
    one_of(folder, "chalk/1").unlink()
    outcome = run("rank", store, "--target", "new")
    assert "the folder 'new' has other images than the unlabelled domain 'new'" in outcome.err
    assert "give --target ./new" in outcome.err
    assert len(FeatureStore(store).paths("new")) == NEW
    outcome = run("rank", store, "--target", "./new")
    assert "its 27 images were replaced by those of 'new'" in outcome.err
    assert len(FeatureStore(store).paths("new")) == NEW - 1


def test_models_that_have_moved(
    run: Run,
    digits: Path,
    folder: Path,
    zoo: Zoo,
    zoo_file: Callable[[list[ModelSpec]], Path],
    extract: Extract,
    tmp_path: Path,
) -> None:
    Path("old").mkdir()
    specs = [ModelSpec(**{**vars(spec), "folder": Path("old").resolve()}) for spec in zoo()]
    for spec, given in zip(zoo(), specs, strict=True):
        shutil.copy(spec.file, given.file)
    extract(digits, specs, tmp_path / "s")
    shutil.rmtree("old")
    complaint = run("rank", "s", "--target", folder, "--quiet").complaint
    assert "model 'mlp_glyphs_augmented' is no longer at" in complaint
    assert "give the new location of its zoo (--zoo" in complaint
    assert run("rank", "s", "--target", folder, "--zoo", zoo_file(zoo())).code == 0


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "nev"], "has no unlabelled domain 'nev'; it has none; add one with `oodzoo"),
        (["--target", "chalk"], "'chalk' is a labelled domain of the store"),
        (["--target", "chalk=new"], "named 'chalk', as a domain with labels; give them another"),
        (["--target", "x=nowhere"], "no such folder: 'nowhere'"),
        (["--target", "empty"], "no image found in 'empty'"),
        (["--target", "copy"], "all images of the target 'copy' are also in the training domains"),
        (["--target", "new", "--score", "lda"], "are for the score 'unseen' only, got 'lda'"),
        (["--target", "new", "--stability", "no"], "unknown stability 'no'"),
        (["--target", "new", "--max-ms", "1e-9"], "no model meets --max-ms 1e-09"),
        (["--target", "new", "--domain-weight", "no=2"], "unknown domain 'no'; expected one of"),
        (["--zoo", "demo"], "--zoo is only used with --target FOLDER"),
        (["--target", "new", "--zoo", "nowhere.toml"], "cannot read the zoo file 'nowhere.toml'"),
    ],
)
def test_bad_input_is_one_line(
    run: Run, store: Path, folder: Path, digits: Path, arguments: list[str], words: str
) -> None:
    Path("empty").mkdir()
    shutil.copytree(digits / "chalk", "copy")
    assert words in run("rank", store, *arguments, "--quiet").complaint
    assert FeatureStore(store).unlabelled == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--models", "separable_shapes"], "--target is only used to rank the models"),
        (["--models", "separable", "--choose", "pool"], "the store has no model 'separable'"),
        (["--choose", "best"], "the choice must be one of auto, single"),
        (["--engine", "no"], "unknown engine 'no'"),
    ],
)
def test_bad_input_of_fit(
    run: Run, store: Path, folder: Path, arguments: list[str], words: str
) -> None:
    options = ("--target", folder, "--out", "model", *arguments)
    assert words in run("fit", store, *options).complaint
    assert FeatureStore(store).unlabelled == ()


def test_imported_features(run: Run, folder: Path, tmp_path: Path) -> None:
    path = saved(tmp_path, *simulate_models({"a": 0.5, "b": 1.5})).path
    complaint = run("rank", path, "--target", folder).complaint
    assert "the features of model 'a' in the store" in complaint
    assert "were imported, so it cannot be run on other images" in complaint


@pytest.mark.filterwarnings("always")
def test_few_images_and_images_with_labels_are_warned_of(
    run: Run, store: Path, folder: Path, digits: Path
) -> None:
    shutil.rmtree(folder / "chalk")
    for name in ("paper/0", "paper/1"):
        shutil.copy(one_of(digits, name), folder / name)
    (folder / "cut.png").write_bytes(b"no image")
    shutil.rmtree(folder / "marker/0")
    outcome = run("rank", store, "--target", folder, "--json")
    assert outcome.code == 0
    warned = [line for line in outcome.err.splitlines() if line.startswith("warning: ")]
    assert [line for line in warned if "'new' has 17 images, too few to rank" in line]
    assert [line for line in warned if "2 of the 17 images of the target 'new' are also" in line]
    assert [line for line in warned if "skipped 'cut.png'" in line]
    assert len(warned) == 3


# --- the embedded digits, end to end -------------------------------------------------------------


def ranking_of(outcome: Outcome) -> Any:
    """What `oodzoo rank` prints, without what it was made of, which the record of a run has not."""
    document = outcome.document
    assert document.pop("store")["name"] == "store"
    document.pop("options")
    return document


def test_the_whole_job_for_a_domain_without_labels(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One domain of the digits is a folder of images without labels."""
    monkeypatch.chdir(tmp_path)
    write_digits("data")
    shutil.move("data/tilted", "images/tilted")
    for folder in ("data/collage", "data/marker", *(f"images/tilted/{i}" for i in range(3, 10))):
        shutil.rmtree(folder)
    options = ("--limit", "90", "--device", "cpu", "--no-baselines", "--json")
    zoo = write_zoo(tmp_path / "zoo", [spec.name for spec in load_zoo("demo")[::4]])
    command = ("run", "data", "--zoo", zoo, "--out", "job", *options)
    done = run(*command, "--target", "clinic=images/tilted")
    assert done.code == 0, done.err
    document = done.document
    assert document["settings"]["target"] == "clinic"
    assert document["settings"]["target_images"] == len([*Path("images").rglob("*.png")])
    assert document["command"].endswith("--target clinic=tilted")
    store = FeatureStore("job/store")
    assert (store.unlabelled, len(store.domains), len(store.models)) == (("clinic",), 3, 5)
    ranked = ranking_of(run("rank", "job/store", "--target", "clinic", *WITHOUT_TIMES))
    assert ranked == document["ranking"]
    assert document["predictor"]["choice"] == document["recommended"]["choice"]
    provenance = json.loads(Path("job/model/predictor.json").read_text())["provenance"]
    assert provenance["accuracy"] == document["recommended"]["average"]
    if provenance["choice"] == "pool":
        assert provenance["target"] == "clinic"
    assert document["evaluation"]["with_target"]["pool"]["average"] > 0
    again = run(*command, "--target=clinic=images/tilted")
    assert again.err.count("reused from an earlier run") == 6
    assert again.document["ranking"] == ranked

    plain = run(*command)
    assert plain.code == 0, plain.err
    assert not {"target", "target_images"} & plain.document["settings"].keys()
    without = ranking_of(run("rank", "job/store", *WITHOUT_TIMES))
    assert plain.document["ranking"] == without != ranked
    for name in ("recommended", "single", "pool", "ensemble", "selection"):
        assert plain.document["evaluation"][name] == document["evaluation"][name]
    assert plain.document["evaluation"]["with_target"] == {}
