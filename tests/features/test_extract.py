"""The features of a store are those of a literal loop over images and models."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.features.data import (
    Extract,
    MakeModel,
    Stamps,
    Zoo,
    blacken,
    dark_is_nan,
    literal,
    one_of,
    require_same_rows,
)

import oodzoo
from oodzoo.errors import InputError
from oodzoo.store.feature_store import FeatureStore


def test_features_are_those_of_a_literal_loop(made: Path, digits: Path, zoo: Zoo) -> None:
    store = FeatureStore(made)
    for spec in zoo():
        for domain in store.domains:
            features = store.features(spec.name, domain)
            logits = store.logits(spec.name, domain)
            for row in (0, 7, 14):
                expected = literal(spec, digits / store.paths(domain)[row])
                np.testing.assert_allclose(features[row], expected[0], rtol=1e-5, atol=1e-5)
                np.testing.assert_allclose(logits[row], expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 4, 15, 64])
def test_the_batch_size_changes_nothing(
    made: Path, digits: Path, zoo: Zoo, extract: Extract, tmp_path: Path, batch_size: int
) -> None:
    extract(digits, zoo(), tmp_path / "s", batch_size=batch_size)
    for name in ("mlp_glyphs_augmented", "separable_shapes"):
        np.testing.assert_allclose(
            FeatureStore(tmp_path / "s").features(name, "chalk"),
            FeatureStore(made).features(name, "chalk"),
            rtol=1e-5,
            atol=1e-5,
        )


def test_float16(made: Path, digits: Path, zoo: Zoo, extract: Extract, tmp_path: Path) -> None:
    extract(digits, zoo(), tmp_path / "s", dtype="float16")
    halved, whole = FeatureStore(tmp_path / "s"), FeatureStore(made)
    for name in halved.models:
        features = halved.features(name, "paper")
        assert features.dtype == np.float16
        np.testing.assert_array_equal(features, whole.features(name, "paper").astype(np.float16))


def test_a_model_too_large_for_float16_is_left_out(
    digits: Path, make_model: MakeModel, extract: Extract, tmp_path: Path
) -> None:
    large = make_model(lambda batch: np.full((len(batch), 3), 1e5), name="large")
    done = extract(digits, [large, make_model()], tmp_path / "s", dtype="float16")
    assert done.failed == {"large": "values up to 1e+05 do not fit float16; store them as float32"}
    assert FeatureStore(tmp_path / "s").models == ("function",)
    assert not list((tmp_path / "s/models/large").rglob("*.npy"))
    assert list((tmp_path / "s/models/function").rglob("*.npy"))


def test_a_warning_names_a_model_that_failed(
    data: Path, make_model: MakeModel, tmp_path: Path
) -> None:
    blacken(one_of(data, "marker/1"))
    with pytest.warns(UserWarning, match="model 'nan' is left out: .* returned NaN"):
        store = oodzoo.extract(
            data, [make_model(dark_is_nan, name="nan"), make_model()], tmp_path / "s"
        )
    assert store.models == ("function",)


def test_a_warning_names_an_image_that_cannot_be_read(data: Path, zoo: Zoo, tmp_path: Path) -> None:
    image = next(data.rglob("*.png"))
    image.unlink()
    image.symlink_to("nowhere.png")
    path = image.relative_to(data).as_posix()
    words = f"left out 1 image that cannot be read; the first is '{path}': No such file"
    with pytest.warns(UserWarning, match=re.escape(words)):
        store = oodzoo.extract(data, zoo(), tmp_path / "store", device="cpu")
    assert store.n_images == len([*data.rglob("*.png")]) - 1


def test_no_model_is_left(
    data: Path, make_model: MakeModel, extract: Extract, tmp_path: Path
) -> None:
    def fail(batch: Any) -> Any:
        raise RuntimeError("broken")

    with pytest.raises(
        InputError, match=r"no model could be used; first error: model 'a': Runtime.*broken"
    ):
        extract(data, [make_model(fail, name="a"), make_model(fail, name="b")], tmp_path / "s")
    with pytest.raises(InputError, match="no finished model yet"):
        FeatureStore(tmp_path / "s")


# --- copies of an image -----------------------------------------------------------------------


def copy_three_times(image: Path, data: Path) -> list[str]:
    """Into the same class, another class, and another domain."""
    copies = ["marker/1/copy.png", "marker/2/copy.png", "paper/0/copy.png"]
    for name in copies:
        shutil.copy(image, data / name)
    return copies


def rows(store: FeatureStore, model: str) -> dict[str, tuple[str, Any]]:
    """Class and features of each path."""
    return {
        path: (store.classes[label], row)
        for domain in store.domains
        for path, label, row in zip(
            store.paths(domain), store.labels(domain), store.features(model, domain), strict=True
        )
    }


def test_copies_have_a_row_each_and_are_decoded_once(
    data: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    image = one_of(data, "marker/1")
    copies = copy_three_times(image, data)
    assert extract(data, zoo(), tmp_path / "s").decoded == 45
    store = FeatureStore(tmp_path / "s")
    assert store.n_images == 48
    (_, spec) = zoo()
    found = rows(store, spec.name)
    assert [found[name][0] for name in copies] == ["1", "2", "0"]
    expected, _ = literal(spec, image)
    for name in (*copies, image.relative_to(data).as_posix()):
        np.testing.assert_allclose(found[name][1], expected, rtol=1e-5, atol=1e-5)
    assert len(list(store.shard_files())) == 12  # features and logits of two models, three domains
    assert sum(len(np.load(path)) for path, _ in store.shard_files()) == 4 * 45


def test_copies_that_come_later_are_not_decoded(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tmp_path: Path, stamps: Stamps
) -> None:
    times = stamps(store)
    image = one_of(data, "marker/1")
    copies = copy_three_times(image, data)
    done = extract(data, zoo(), store)
    assert (done.decoded, done.shards) == (0, 0)
    assert stamps(store) == times
    extract(data, zoo(), tmp_path / "at once")
    require_same_rows(store, tmp_path / "at once")
    # the image has features as long as one of them is there
    image.unlink()
    (data / copies[0]).unlink()
    assert extract(data, zoo(), store).decoded == 0
    assert FeatureStore(store).n_images == 46
