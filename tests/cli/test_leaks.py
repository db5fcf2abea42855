"""Near-duplicates in `oodzoo data --store`, `oodzoo store check` and `oodzoo run`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.leaks.data import extract_copies


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_copies(tmp_path_factory.mktemp("copied"))


def test_data_lists_the_worst_pairs_and_what_to_do(run: Run, copied: Path) -> None:
    outcome = run("data", copied / "data", "--store", copied / "store")
    assert outcome.code == 0
    lines = {tuple(line.split()[:4]): line for line in outcome.out.splitlines()}
    (line,) = (lines[key] for key in lines if "marker/1/again.jpg" in key)
    assert "same pixels" in line
    assert "Near-duplicate images in different domains" in outcome.out
    assert "Near-duplicate images in the same domain" in outcome.out
    assert "remove one image of each pair" in outcome.err
    assert "give both the same group" in outcome.err
    assert "by features of 7 models." in outcome.out


def test_data_as_json(run: Run, copied: Path) -> None:
    document = run("data", copied / "data", "--store", copied / "store", "--json").document
    found = document["near_duplicates"]
    assert found["across"]["counts"]["identical"] == 1
    assert found["across"]["worst"][0]["identical"] is True
    assert found["scope"] == "all"
    assert found["images"] == document["images"]  # those of the target are not in this data
    assert "near_duplicates" not in run("data", copied / "data", "--json").document


def test_images_without_features_are_named(run: Run, copied: Path, tmp_path: Path) -> None:
    data = shutil.copytree(copied / "data", tmp_path / "data")
    shutil.copyfile(copied / "target" / "3.png", data / "chalk" / "1" / "known.png")
    (data / "chalk" / "1" / "new.jpg").write_bytes(
        (data / "marker/1/again.jpg").read_bytes() + b" "
    )
    outcome = run("data", data, "--store", copied / "store")
    assert outcome.code == 0
    assert "1 image without features in" in outcome.err


def test_check_finds_probable_pairs_and_succeeds(run: Run, copied: Path) -> None:
    outcome = run("store", "check", copied / "store")
    assert outcome.code == 0
    assert "probable" in outcome.out
    assert "leak between domains" in outcome.err
    found = run("store", "check", copied / "store", "--json").document["near_duplicates"]
    paths = [set(pair["paths"]) for pair in found["across"]["worst"]]
    assert any("other.jpg" in pair for pair in paths)  # without a label
    assert all(pair["correlation"] is None for pair in found["across"]["worst"])


def test_check_compares_the_pairs_that_are_asked_for(run: Run, copied: Path) -> None:
    def checked(*arguments: str) -> object:
        return run("store", "check", copied / "store", "--json", *arguments).document

    assert checked("--leaks", "none")["near_duplicates"] is None  # type: ignore[index]
    assert checked("--leaks", "class")["near_duplicates"]["scope"] == "class"  # type: ignore[index]
    assert (
        "Only pairs with the same label"
        in run("store", "check", copied / "store", "--leaks", "class").out
    )
    complaint = run("store", "check", copied / "store", "--leaks", "some").complaint
    assert "--leaks 'some'; expected auto, all, class, none" in complaint


def test_damaged_features_are_not_compared(run: Run, copied: Path, tmp_path: Path) -> None:
    store = shutil.copytree(copied / "store", tmp_path / "store")
    shard = sorted(store.glob("models/*/*.npy"))[0]
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    outcome = run("store", "check", store, "--json")
    assert outcome.code == 2
    assert outcome.document["near_duplicates"] is None
    assert len(outcome.document["damaged"]) == 1
