"""`oodzoo domains`, and data without domains from `oodzoo data` to `oodzoo rank`."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from tests.conftest import Run

import oodzoo

ZOO = "demo/mlp_glyphs_augmented,demo/resnet_glyphs_augmented,demo/separable_glyphs_colour"


@pytest.fixture(scope="module")
def table(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits of three domains as a table with the column `camera`, but without domains."""
    path = tmp_path_factory.mktemp("table") / "photos.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "camera", "serial"])
        for row, image in enumerate(sorted(digits.rglob("*.png"))):
            domain, label, _ = image.relative_to(digits).parts
            writer.writerow([image, label, domain, row])
    return path


@pytest.fixture(scope="module")
def made(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the table with one domain. Tests must not change it."""
    data = oodzoo.ImageDomains(table, domains="one")
    store = tmp_path_factory.mktemp("made") / "store"
    specs = oodzoo.load_zoo(ZOO)
    return oodzoo.extract(data, specs, store, device="cpu").path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


def test_data_without_domains_name_the_proposals(run: Run, table: Path) -> None:
    outcome = run("data", table)
    assert outcome.code == 0
    assert "has no column 'domain'" in outcome.err
    assert "Proposed domains: 3 values of the column 'camera'" in outcome.out
    assert "serial cannot be used: another value for each image." in outcome.out
    document = run("data", table, "--json").document
    assert document["domains_proposed"] == "camera"
    assert [each["name"] for each in document["proposals"]] == ["camera", "serial"]
    assert document["domains"] == ["chalk", "marker", "paper"]


def test_data_with_domains_are_as_before(run: Run, digits: Path) -> None:
    outcome = run("data", digits, "--json")
    assert not {"domains_proposed", "proposals"} & outcome.document.keys()


def test_extract_needs_to_be_told(run: Run, table: Path, tmp_path: Path) -> None:
    options = ("--zoo", ZOO, "--store", tmp_path / "s", "--device", "cpu")
    outcome = run("extract", table, *options)
    assert outcome.code == 2
    assert "--domains propose" in outcome.complaint
    outcome = run("extract", table, *options, "--domains", "propose")
    assert outcome.code == 0
    assert "Proposed domains: 3 values of the column 'camera'" in outcome.err
    quiet = run("extract", table, *options, "--domains", "propose", "-q")
    assert (quiet.code, "Proposed" in quiet.out + quiet.err) == (0, False)
    assert run("store", "ls", tmp_path / "s", "--json").document["domains_proposed"] == "camera"
    assert "domains: proposed by camera" in run("store", "ls", tmp_path / "s").out
    outcome = run("rank", tmp_path / "s")
    assert "Domains: proposed by camera, not given" in outcome.out
    assert run("rank", tmp_path / "s", "--json").document["domains_proposed"] == "camera"


def test_proposals_use_and_undo(run: Run, store: Path) -> None:
    outcome = run("rank", store)
    assert (outcome.code, "oodzoo domains" in outcome.complaint) == (2, True)
    outcome = run("domains", store)
    assert outcome.code == 0
    assert "The first model, " in outcome.out
    assert "Proposed domains are a guess" in outcome.out
    assert outcome.err.rstrip().endswith("--use camera")
    document = run("domains", store, "--json").document
    assert document["recommended"] == "camera"
    assert document["sensitivity"]["chosen"] == "camera"
    assert run("domains", store, "--no-rank", "--json").document["sensitivity"] is None
    outcome = run("domains", store, "--use", "camera", "--json")
    assert outcome.document["domains_proposed"] == "camera"
    assert outcome.document["domains"] == {"chalk": 36, "marker": 36, "paper": 36}
    again = run("domains", store, "--no-rank")
    assert "They are in use: the domains are proposed by camera." in again.err
    assert "Use them with" not in again.err
    assert run("rank", store, "--json").document["domains_proposed"] == "camera"
    assert "1 domain in" in run("domains", store, "--use", "given").out
    assert run("store", "check", store).code == 0


def test_sync_keeps_domains_in_use(run: Run, store: Path, table: Path) -> None:
    assert run("domains", store, "--use", "clusters").code == 0
    before = oodzoo.FeatureStore(store).table
    outcome = run("store", "sync", store, table, "--domains", "one")
    assert (outcome.code, outcome.out.strip()) == (0, "no changes")
    assert oodzoo.FeatureStore(store).table == before
    assert run("store", "sync", store, table, "--domains", "column:camera").code == 0
    assert oodzoo.FeatureStore(store).domains_proposed == "camera"
    assert "--domains must be" in run("store", "sync", store, table, "--domains", "x").complaint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--use", "camra"], "no proposal 'camra'"),
        (["--use", "clusters:9"], "108 samples in 108 groups are too few for 9 clusters"),
        (["--use", "clusters", "--clusters", "3"], "give --use clusters:3"),
        (["--models", "resnet"], "has no model 'resnet'"),
        (["--compare", "site"], "no proposal 'site'"),
        (["--score", "logmee"], "did you mean logme"),
    ],
)
def test_bad_options(run: Run, store: Path, options: list[str], words: str) -> None:
    outcome = run("domains", store, *options)
    assert outcome.code == 2
    assert words in outcome.complaint


def test_a_run_with_one_domain_divides_it_into_clusters(
    run: Run, table: Path, tmp_path: Path
) -> None:
    arguments = ("run", table, "--zoo", ZOO, "--out", tmp_path / "job", "--no-baselines")
    outcome = run(*arguments, "--domains", "one", "--device", "cpu")
    assert outcome.code == 0
    assert "clusters of features are the proposed domains" in outcome.err
    again = run(*arguments, "--domains", "one", "--device", "cpu", "--json")
    document = again.document
    by = document["ranking"]["domains_proposed"]
    assert "clusters of features of 3 models, seed 0" in by
    assert document["data"]["domains_proposed"] == by
    assert all(stage["reused"] for stage in document["stages"])
    assert by in (tmp_path / "job" / "report.html").read_text(encoding="utf-8")
