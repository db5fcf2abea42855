"""The same real images through every source: the same features of real networks, bit for bit.

Skipped where images and models are absent, see test_pacs.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.s3 import Bucket
from tests.sources.kinds import WITH_FILES, Given

import oodzoo
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.outcome import Extraction, ExtractionConfig
from oodzoo.zoo import ModelSpec

SHARED = Path(os.environ.get("OODZOO_SHARED", "../shared")).resolve()
DATA = SHARED / "data" / "pacs_mini"
MODELS = ("mobilenet_v1_025_128_imagenet", "resnet20_cifar10")

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"there is no {DATA.name} beside us")


Outcome = tuple[dict[tuple[str, str], tuple[bytes, ...]], list[Any]]


def outcome(store: oodzoo.FeatureStore) -> Outcome:
    """All that must be equal, bit for bit; so without the times that it took."""
    arrays = {
        (model, domain): tuple(
            each.tobytes()
            for each in (
                store.labels(domain), store.features(model, domain), store.logits(model, domain),
            )
        )
        for model in store.models
        for domain in store.domains
    }  # fmt: skip
    rows = oodzoo.rank(store).rows
    return arrays, [replace(row, milliseconds=None, pareto_optimal=False) for row in rows]


def extract(data: oodzoo.ImageDomains, zoo: Any, store: Path) -> Extraction:
    """Extract the features that a store lacks, and say what was done."""
    return run_extraction(data, zoo, store, ExtractionConfig(device="cpu"))[1]


@pytest.fixture(scope="module")
def data() -> oodzoo.ImageDomains:
    return oodzoo.ImageDomains(DATA)


@pytest.fixture(scope="module")
def zoo() -> list[ModelSpec]:
    known = oodzoo.load_zoo(SHARED / "zoo" / "zoo.toml")
    return [spec for spec in known if spec.name in MODELS]


@pytest.fixture(scope="module")
def store(
    data: oodzoo.ImageDomains, zoo: list[ModelSpec], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("made") / "store"
    extract(data, zoo, path)
    return path


@pytest.fixture(scope="module")
def expected(store: Path) -> Outcome:
    found = outcome(oodzoo.FeatureStore(store))
    assert {model for model, _ in found[0]} == set(MODELS)
    return found


Require = Callable[[Given], None]


@pytest.fixture
def require_same(zoo: list[ModelSpec], expected: Outcome, tmp_path: Path) -> Require:
    """Compare features and ranking of an extraction into a new store."""

    def require(given: Given) -> None:
        assert extract(given.open(), zoo, tmp_path / "store").decoded == 1400
        assert outcome(oodzoo.FeatureStore(tmp_path / "store")) == expected

    return require


@pytest.fixture
def require_known(data: oodzoo.ImageDomains, zoo: list[ModelSpec], store: Path) -> Require:
    """Extract into the store that the folder was extracted into: nothing is computed."""

    def require(given: Given) -> None:
        opened = given.open()
        assert opened.digests == data.digests
        done = extract(opened, zoo, store)
        assert (done.decoded, done.shards) == (0, 0)

    return require


@pytest.mark.parametrize("name", WITH_FILES)
def test_sources_of_files(
    name: str,
    data: oodzoo.ImageDomains,
    require_known: Require,
    require_same: Require,
    tmp_path: Path,
) -> None:
    (tmp_path / "source").mkdir()
    given = WITH_FILES[name](data, tmp_path / "source")
    require_known(given)
    require_same(given)


def test_a_folder_in_s3(s3: Bucket, require_known: Require, require_same: Require) -> None:
    given = Given(s3.upload(DATA, "pacs"), {})
    require_known(given)
    require_same(given)
