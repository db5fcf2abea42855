"""The same real images through every source: the same features of real networks, bit for bit.

Skipped where images and models are absent, see test_pacs.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.s3 import Bucket
from tests.sources.kinds import WITH_FILES, Given, Outcome, extract, outcome

import oodzoo
from oodzoo.zoo import ModelSpec

SHARED = Path(os.environ.get("OODZOO_SHARED", "../shared")).resolve()
DATA = SHARED / "data" / "pacs_mini"
MODELS = ("mobilenet_v1_025_128_imagenet", "resnet20_cifar10")

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"there is no {DATA.name} beside us")


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
    assert set(found.features) == set(MODELS)
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
