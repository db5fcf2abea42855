"""The image files of the samples of a store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.evaluation.data import stored, zoo
from tests.striped import tiny_network, write_stripes

import oodzoo
from oodzoo.combining.evaluation.fine_tuning import find_images, require_store
from oodzoo.core.errors import InputError
from oodzoo.extraction.source import ArraySource, StoreSource

pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("striped")
    oodzoo.extract(
        write_stripes(folder / "data", per_cell=3),
        [tiny_network(folder / "zoo")],
        folder / "store",
        device="cpu",
    )
    return folder


@pytest.fixture
def source(folder: Path) -> StoreSource:
    return StoreSource(oodzoo.FeatureStore(folder / "store"))


def paths_of(source: StoreSource, data: oodzoo.ImageDomains) -> dict[str, list[str]]:
    """The paths that are found, in the order of the store."""
    images = find_images(source, data)
    found = {}
    for domain, rows in images.rows.items():
        names = [sample.path for sample in images.data.samples if sample.domain == domain]
        found[domain] = [names[row] for row in rows]
    return found


def test_the_order_is_that_of_the_store(folder: Path, source: StoreSource) -> None:
    data = oodzoo.ImageDomains(folder / "data")
    expected = {domain: source.store.paths(domain) for domain in source.domains}
    assert paths_of(source, data) == expected
    backwards = data.only(range(len(data) - 1, -1, -1))
    assert paths_of(source, backwards) == expected


def test_moved_images_and_other_images_do_not_matter(folder: Path, tmp_path: Path) -> None:
    write_stripes(tmp_path / "data", per_cell=3)
    write_stripes(tmp_path / "more", ("blue", "grey"), per_cell=5)
    for path in sorted((tmp_path / "data" / "blue" / "down").iterdir()):
        path.rename(path.with_name(f"moved-{path.name}"))
    (tmp_path / "more" / "grey").rename(tmp_path / "data" / "grey")
    source = StoreSource(oodzoo.FeatureStore(folder / "store"))
    found = find_images(source, tmp_path / "data")
    assert set(found.data.domains) == {"blue", "green", "red"}
    digests = [
        digest
        for sample, digest in zip(found.data.samples, found.data.digests, strict=True)
        if sample.domain == "blue"
    ]
    assert [digests[row] for row in found.rows["blue"]] == source.store.images("blue")


def test_images_that_are_not_there(source: StoreSource, tmp_path: Path) -> None:
    data = write_stripes(tmp_path / "data", per_cell=3)
    (data / "red" / "down" / "0.png").rename(data / "red" / "across" / "x.png")
    with pytest.raises(InputError) as caught:
        find_images(source, data)
    text = str(caught.value)
    assert f"{str(data)!r} is not the data of the store" in text
    assert "1 of its 18 images (such as 'red/down/0.png') is not there" in text


def test_other_labels(source: StoreSource, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = rng.integers(0, 255, (6, 16, 16, 3)).astype(np.uint8)
    numbers = oodzoo.ImageDomains(
        [
            (array, value, f"d{at % 3}")
            for at, (array, value) in enumerate(zip(arrays, rng.normal(size=6), strict=True))
        ],
        task="regression",
    )
    with pytest.raises(InputError, match="has labels for 'regression', but the store for 'class"):
        find_images(source, numbers)


def test_arrays_have_no_images(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are arrays of features only"):
        require_store(ArraySource(*zoo(n=4)))
    source = stored(tmp_path, *zoo(n=4))
    assert require_store(source) is source
