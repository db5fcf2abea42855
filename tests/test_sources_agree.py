"""Whatever source images come from: the same features, the same ranking, the same digests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.fixtures import draw_digits
from tests.s3 import Bucket
from tests.sources.kinds import DECODED, WITH_FILES, Given, Outcome, extract, outcome, tars

import oodzoo
from oodzoo.zoo import ModelSpec


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> oodzoo.ImageDomains:
    """63 digits, most of them PNG, but some in other modes and orientations."""
    root = draw_digits(tmp_path_factory.mktemp("photos"), 7)
    for at, path in enumerate(sorted(root.rglob("*.png"))):
        image = Image.open(path).convert("RGB").resize((41, 32))
        if at % 7 == 0:
            exif = Image.Exif()
            exif[0x0112] = 6  # to be turned by 90 degrees
            image.save(path.with_suffix(".jpg"), quality=80, exif=exif)
            path.unlink()
        elif at % 7 == 1:
            image.convert("L").save(path)
        elif at % 7 == 2:
            image.convert("P").save(path, transparency=3)
        elif at % 7 == 3:
            image.convert("CMYK").save(path.with_suffix(".JPEG"))
            path.unlink()
    return oodzoo.ImageDomains(root)


@pytest.fixture(scope="module")
def store(
    data: oodzoo.ImageDomains, zoo: list[ModelSpec], tmp_path_factory: pytest.TempPathFactory
) -> oodzoo.FeatureStore:
    path = tmp_path_factory.mktemp("made") / "store"
    extract(data, zoo, path)
    return oodzoo.FeatureStore(path)


@pytest.fixture(scope="module")
def expected(store: oodzoo.FeatureStore) -> Outcome:
    return outcome(store)


def require_same(given: Given, zoo: list[ModelSpec], store: Path, expected: Outcome) -> None:
    """Extract from a source into a new store, and compare."""
    done = extract(given.open(), zoo, store)
    assert done.decoded == 63
    found = outcome(oodzoo.FeatureStore(store))
    assert found.labels == expected.labels
    for model in expected.features:
        assert found.features[model] == expected.features[model], model
    assert found == expected


def require_known(given: Given, data: oodzoo.ImageDomains, zoo: Any, store: Path) -> None:
    """Extract from a source into the store that the folder was extracted into."""
    opened = given.open()
    assert opened.digests == data.digests
    done = extract(opened, zoo, store)
    assert (done.decoded, done.shards) == (0, 0)


@pytest.mark.parametrize("name", [*WITH_FILES, *DECODED])
def test_the_same_features_and_ranking(
    name: str, data: oodzoo.ImageDomains, zoo: list[ModelSpec], expected: Outcome, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    given = {**WITH_FILES, **DECODED}[name](data, tmp_path / "source")
    require_same(given, zoo, tmp_path / "store", expected)


@pytest.mark.parametrize("name", WITH_FILES)
def test_images_of_another_source_are_known(
    name: str,
    data: oodzoo.ImageDomains,
    zoo: list[ModelSpec],
    store: oodzoo.FeatureStore,
    tmp_path: Path,
) -> None:
    require_known(WITH_FILES[name](data, tmp_path), data, zoo, store.path)


def test_a_folder_in_s3(
    s3: Bucket, data: oodzoo.ImageDomains, zoo: list[ModelSpec], expected: Outcome, tmp_path: Path
) -> None:
    assert data.root is not None
    given = Given(s3.upload(data.root, "some/photos"), {})
    require_same(given, zoo, tmp_path / "store", expected)
    require_known(given, data, zoo, tmp_path / "store")


def test_archives_in_s3(
    s3: Bucket, data: oodzoo.ImageDomains, zoo: list[ModelSpec], expected: Outcome, tmp_path: Path
) -> None:
    (tmp_path / "tars").mkdir()
    tars(data, tmp_path / "tars")
    given = Given(s3.upload(tmp_path / "tars", "tars") + "/{0..1}.tar", {})
    require_same(given, zoo, tmp_path / "store", expected)
    require_known(given, data, zoo, tmp_path / "store")


def test_other_pixels_are_other_features(
    data: oodzoo.ImageDomains, zoo: list[ModelSpec], expected: Outcome, tmp_path: Path
) -> None:
    """The comparison can fail: one image of 63 with another brightness."""
    given = DECODED["NumPy"](data, tmp_path)
    given.source[5] = 255 - given.source[5]
    with pytest.raises(AssertionError):
        require_same(given, zoo, tmp_path / "store", expected)
