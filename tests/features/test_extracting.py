"""Extraction: each image is decoded once, and failures stay local."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.features.data import (
    Extract,
    MakeModel,
    Stamps,
    Tree,
    Zoo,
    blacken,
    dark_is_nan,
    literal,
    one_of,
    require_same_rows,
    spoil,
)

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.store.feature_store import FeatureStore
from oodzoo.zoo import ModelSpec


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


def test_a_warning_names_an_image_that_cannot_be_read(data: Path, zoo: Zoo, tmp_path: Path) -> None:
    image = next(data.rglob("*.png"))
    image.unlink()
    image.symlink_to("nowhere.png")
    path = image.relative_to(data).as_posix()
    words = f"left out 1 image that cannot be read; the first is '{path}': No such file"
    with pytest.warns(UserWarning, match=re.escape(words)):
        store = oodzoo.extract(data, zoo(), tmp_path / "store", device="cpu")
    assert store.n_images == len([*data.rglob("*.png")]) - 1


def test_a_model_that_fails_does_not_stop_the_others(
    data: Path, zoo: Zoo, make_model: MakeModel, extract: Extract, tmp_path: Path
) -> None:
    blacken(one_of(data, "marker/1"))
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    calls = []

    def raises(batch: NDArray[np.float32]) -> Any:
        calls.append(len(batch))
        raise RuntimeError("out of\nluck")

    done = extract(
        data,
        [
            ModelSpec("absent", "onnx/absent.onnx", folder=tmp_path),
            ModelSpec("broken", "onnx/broken.onnx", folder=tmp_path),
            make_model(dark_is_nan, name="nan"),
            make_model(raises, name="raises"),
            make_model(lambda batch: batch.mean(axis=(0, 2, 3))[None], name="one row"),
            make_model(lambda batch: batch.mean(axis=(2, 3)), name="narrow", feature_dim=4),
            make_model(lambda batch: np.full((len(batch), 3), 1e5), name="large"),
            *zoo(),
        ],
        tmp_path / "s",
        batch_size=4,
        dtype="float16",
    )
    name = one_of(data, "marker/1").relative_to(data).as_posix()
    assert done.failed.pop("nan") == f"model 'nan' returned NaN or infinite features for {name!r}"
    assert done.failed.pop("raises") == "RuntimeError: out of luck"
    assert "absent.onnx': No such file" in done.failed.pop("absent")
    assert "onnxruntime cannot open" in done.failed.pop("broken")
    assert "shape (4, 3) for 15 images; expected (15, 3)" in done.failed.pop("one row")
    assert "shape (15, 3) for 15 images; expected (15, 4)" in done.failed.pop("narrow")
    assert "do not fit float16" in done.failed.pop("large")
    assert done.failed == {}
    assert len(calls) == 1  # who failed is not asked again
    assert done.decoded == 45
    store = FeatureStore(tmp_path / "s")
    assert store.models == ("mlp_glyphs_augmented", "separable_shapes")
    assert store.n_images == 45


def test_fail_stops_at_an_unreadable_image(
    made: Path, data: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    bad = one_of(data, "marker/1")
    content = spoil(bad)
    with pytest.raises(InputError, match=rf"cannot read 'marker/1/{bad.name}': "):
        extract(data, zoo(), tmp_path / "s", on_error="fail")
    # only the shards of the domain before it are there
    shards = list((tmp_path / "s").rglob("*.npy"))
    assert len(shards) == 4
    assert {path.name.partition(".")[0] for path in shards} == {"00000-00000"}
    assert not list((tmp_path / "s").rglob(".tmp-*"))
    with pytest.raises(InputError, match="no finished model yet"):
        FeatureStore(tmp_path / "s")
    # the image is mended, or the person changes their mind: both go on from here
    bad.write_bytes(content)
    done = extract(data, zoo(), tmp_path / "s", on_error="fail")
    assert done.decoded == 30
    require_same_rows(tmp_path / "s", made)


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGES: dict[str, Callable[[Path], Any]] = {
    "No such file or directory": Path.unlink,
    "not a regular file": make_pipe,
    "the file has changed since it was listed": blacken,
}


@pytest.mark.skipif(os.name == "nt", reason="needs named pipes")
@pytest.mark.parametrize("reason", CHANGES)
def test_a_file_that_cannot_be_read_after_listing_is_not_recorded(
    made: Path,
    data: Path,
    zoo: Zoo,
    extract: Extract,
    tmp_path: Path,
    tree: Tree,
    stamps: Stamps,
    reason: str,
) -> None:
    bad, store = one_of(data, "marker/1"), tmp_path / "s"
    content = bad.read_bytes()
    dataset = ImageDomains(data)
    assert None not in dataset.digests  # computed now; later changes are not noticed
    CHANGES[reason](bad)
    name = bad.relative_to(data).as_posix()
    with pytest.raises(InputError) as caught:
        extract(dataset, zoo(), store)
    assert str(caught.value) == (
        f"1 image could not be read after the data set was listed, the first is {name!r}: "
        f"{reason}; restore or remove it, and rerun the command to finish: all other features are "
        "kept"
    )
    # features and logits of two models and two of the three domains
    kept = stamps(store)
    assert len(kept) == 8
    with pytest.raises(InputError, match="no finished model yet"):
        FeatureStore(store)
    bad.unlink(missing_ok=True)
    bad.write_bytes(content)
    done = extract(data, zoo(), store)
    assert (done.decoded, done.shards) == (15, 2)
    assert stamps(store).items() > kept.items()
    assert tree(store) == tree(made)


def test_a_file_that_cannot_be_read_when_listed_comes_later(
    made: Path, data: Path, zoo: Zoo, extract: Extract, tmp_path: Path, stamps: Stamps
) -> None:
    bad, store = one_of(data, "marker/1"), tmp_path / "s"
    name, content = bad.relative_to(data).as_posix(), bad.read_bytes()
    dataset = ImageDomains(data)
    bad.unlink()  # before the files are hashed
    with pytest.raises(InputError, match=f"cannot read {name!r}: No such file or directory"):
        extract(dataset, zoo(), store, on_error="fail")
    assert not store.exists()
    done = extract(dataset, zoo(), store)
    assert done.unreadable == {name: "No such file or directory"}
    assert (done.decoded, done.interrupted) == (44, {})
    opened = FeatureStore(store)
    assert (opened.n_images, opened.skipped) == (44, {})
    kept = stamps(store)
    bad.write_bytes(content)
    done = extract(data, zoo(), store)
    assert (done.decoded, done.shards, done.unreadable) == (1, 2, {})
    assert stamps(store).items() > kept.items()
    require_same_rows(store, made)
    # from now on the store has features of it
    dataset = ImageDomains(data)
    bad.unlink()
    with pytest.raises(InputError, match=rf"cannot read {name!r} any more \(No such file"):
        extract(dataset, zoo(), store)


def test_no_image_can_be_read(data: Path, zoo: Zoo, extract: Extract, tmp_path: Path) -> None:
    dataset = ImageDomains(data)
    for path in data.rglob("*.png"):
        path.unlink()
    with pytest.raises(InputError, match=r"none of the images can be read; first error: 'chalk/0/"):
        extract(dataset, zoo(), tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_too_small_a_disk_is_noticed_before_the_work(
    small_disk: Callable[[str], Path], data: Path, make_model: MakeModel, extract: Extract
) -> None:
    disk = small_disk("size=256k")
    wide = make_model(lambda batch: np.ones((len(batch), 5000)), feature_dim=5000)
    with pytest.raises(InputError, match=r"the features need 0.90 MB, the disk .* 0.2. MB free"):
        extract(data, [wide], disk / "store")
