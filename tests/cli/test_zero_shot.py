"""Zero-shot predictions as a person asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Run
from tests.fixtures import draw_digits
from tests.small_clip import small_clip

from oodzoo.store.feature_store import FeatureStore

NAMES = "0=zero,1=one,2=two"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return draw_digits(tmp_path / "digits", 4)


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """A zoo file of a small CLIP."""
    small_clip(tmp_path)
    file = tmp_path / "zoo.toml"
    file.write_text('[[model]]\nname = "clip"\nsource = "open_clip/local-dir:clip"\n')
    return file


def test_extract_with_names_and_prompts(run: Run, data: Path, zoo: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    arguments = ("extract", data, "--zoo", zoo, "--store", store, "--device", "cpu")
    prompts = ("--prompt", "a {}.", "--prompt", "the {}, written")
    outcome = run(*arguments, "--class-names", NAMES, *prompts, "--json")
    assert (outcome.code, outcome.document["embedded"]) == (0, ["clip"])
    assert "Class names embedded by clip" in outcome.err
    found = FeatureStore(store).class_embeddings("clip")
    assert found is not None
    assert (found.names, found.prompts) == (("zero", "one", "two"), ("a {}.", "the {}, written"))
    again = run(*arguments, "--json")
    assert (again.document["embedded"], again.document["shards_written"]) == ([], 0)
    assert "Nothing to compute" in again.err
    (tmp_path / "names.txt").write_text("0=none\n1=one\n2=two\n")
    (tmp_path / "prompts.txt").write_text("a {}.\n")
    files = ("--class-names", tmp_path / "names.txt", "--prompts", tmp_path / "prompts.txt")
    other = run(*arguments, *files, "--json")
    assert (other.document["embedded"], other.document["shards_written"]) == (["clip"], 0)
    assert "Nothing to compute" not in other.err
    found = FeatureStore(store).class_embeddings("clip")
    assert found is not None
    assert (found.names, found.prompts) == (("none", "one", "two"), ("a {}.",))
