"""Extraction: each image is decoded once, and failures stay local."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
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
from oodzoo.data import images
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.files import UnreadableImageError
from oodzoo.store.feature_store import FeatureStore
from oodzoo.zoo import ModelSpec

# --- extract -----------------------------------------------------------------------------------


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


# --- loop --------------------------------------------------------------------------------------


# --- decoding once ----------------------------------------------------------------------------


def test_images_are_given_in_batches_of_bounded_size(
    tmp_path: Path, make_model: MakeModel, extract: Extract, write_image: Callable[[Path], Path]
) -> None:
    """Memory does not grow with the data: no model ever sees more than a batch."""
    for number in range(300):
        write_image(tmp_path / "data" / "ab"[number % 2] / "xy"[number % 3 % 2] / f"{number}.png")
    seen: list[int] = []

    def look(batch: NDArray[np.float32]) -> Any:
        seen.append(len(batch))
        return batch.mean(axis=(2, 3))

    start = time.perf_counter()
    done = extract(tmp_path / "data", [make_model(look)], tmp_path / "s", batch_size=32)
    assert sum(seen) == 300
    assert max(seen) == 32
    assert 0 < done.waiting + done.running < 2 * (time.perf_counter() - start)


# --- models that fail -------------------------------------------------------------------------


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
            *zoo(),
        ],
        tmp_path / "s",
        batch_size=4,
    )
    name = one_of(data, "marker/1").relative_to(data).as_posix()
    assert done.failed.pop("nan") == f"model 'nan' returned NaN or infinite features for {name!r}"
    assert done.failed.pop("raises") == "RuntimeError: out of luck"
    assert "absent.onnx': No such file" in done.failed.pop("absent")
    assert "onnxruntime cannot open" in done.failed.pop("broken")
    assert "shape (4, 3) for 15 images; expected (15, 3)" in done.failed.pop("one row")
    assert "shape (15, 3) for 15 images; expected (15, 4)" in done.failed.pop("narrow")
    assert done.failed == {}
    assert len(calls) == 1  # who failed is not asked again
    assert done.decoded == 45
    store = FeatureStore(tmp_path / "s")
    assert store.models == ("mlp_glyphs_augmented", "separable_shapes")
    assert store.n_images == 45


# --- unreadable images ------------------------------------------------------------------------


def test_an_unreadable_image_has_no_row_anywhere(
    made: Path, data: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    bad = one_of(data, "marker/1")
    spoil(bad)
    name = bad.relative_to(data).as_posix()
    done = extract(data, zoo(), tmp_path / "s")
    assert (done.decoded, done.failed) == (45, {})
    store, whole = FeatureStore(tmp_path / "s"), FeatureStore(made)
    assert list(store.skipped) == [name]
    assert store.n_images == 44
    keep = [at for at, path in enumerate(whole.paths("marker")) if path != name]
    assert store.paths("marker") == [whole.paths("marker")[at] for at in keep]
    np.testing.assert_array_equal(store.labels("marker"), whole.labels("marker")[keep])
    for model in store.models:
        np.testing.assert_allclose(
            store.features(model, "marker"), whole.features(model, "marker")[keep], atol=1e-5
        )
    # a model that comes later has the same rows
    assert extract(data, zoo("cnn_photos"), tmp_path / "s").decoded == 45
    store = FeatureStore(tmp_path / "s")
    assert list(store.skipped) == [name]
    assert store.features("cnn_photos", "marker").shape[0] == 14


def test_a_mended_image_gets_its_row(
    data: Path, zoo: Zoo, extract: Extract, tmp_path: Path, stamps: Stamps
) -> None:
    bad = one_of(data, "marker/1")
    name = bad.relative_to(data).as_posix()
    content = spoil(bad)
    extract(data, zoo(), tmp_path / "s")
    times = stamps(tmp_path / "s")
    bad.write_bytes(content)
    done = extract(data, zoo(), tmp_path / "s")
    assert (done.decoded, done.shards) == (1, 2)
    assert stamps(tmp_path / "s").items() > times.items()
    store = FeatureStore(tmp_path / "s")
    assert store.skipped == {}
    assert store.n_images == 45
    assert store.paths("marker").count(name) == 1
    row = store.paths("marker").index(name)
    assert store.classes[store.labels("marker")[row]] == "1"
    spec = zoo()[0]
    expected, _ = literal(spec, bad)
    np.testing.assert_allclose(store.features(spec.name, "marker")[row], expected, atol=1e-5)
    # from now on it has features, which must stay true
    blacken(bad)
    with pytest.raises(InputError, match=rf"{bad.name}' \(changed\)"):
        extract(data, zoo(), tmp_path / "s")


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


def test_an_image_that_can_be_decoded_later_gets_its_row(
    made: Path, data: Path, zoo: Zoo, extract: Extract, tmp_path: Path, stamps: Stamps
) -> None:
    """The same file: a newer Pillow, say, reads what an older one could not."""
    bad = one_of(data, "marker/1")
    content, decode = bad.read_bytes(), images._decode

    def refuse(found: bytes, reserved: ExitStack) -> Image.Image:
        if found == content:
            raise UnreadableImageError("unknown codec")
        return decode(found, reserved)

    store = tmp_path / "s"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "_decode", refuse)
        extract(data, zoo(), store)
    assert FeatureStore(store).skipped == {bad.relative_to(data).as_posix(): "unknown codec"}
    times = stamps(store)
    # a model that comes before the others try it again cannot change their rows
    extract(data, zoo("cnn_photos"), store)
    assert FeatureStore(store).n_images == 44
    done = extract(data, zoo(), store)
    assert (done.decoded, done.shards) == (1, 2)
    assert stamps(store).items() > times.items()
    extract(data, zoo("cnn_photos"), made_too := shutil.copytree(made, tmp_path / "made"))
    require_same_rows(store, made_too)


# --- files that cannot be read now ------------------------------------------------------------


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


NOT_ON_WINDOWS = pytest.mark.skipif(os.name == "nt", reason="needs named pipes")
NOT_AS_ROOT = pytest.mark.skipif(
    os.name == "nt" or os.geteuid() == 0, reason="root may read everything"
)
CHANGES = [
    pytest.param(Path.unlink, "No such file or directory", id="missing"),
    pytest.param(make_pipe, "not a regular file", id="pipe", marks=NOT_ON_WINDOWS),
    pytest.param(lambda p: p.chmod(0), "Permission denied", id="permission", marks=NOT_AS_ROOT),
    pytest.param(spoil, "the file has changed since it was listed", id="truncated"),
    pytest.param(blacken, "the file has changed since it was listed", id="another image"),
]


def restore(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(content)


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_a_file_that_cannot_be_read_after_listing_is_not_recorded(
    made: Path,
    data: Path,
    zoo: Zoo,
    extract: Extract,
    tmp_path: Path,
    tree: Tree,
    stamps: Stamps,
    change: Callable[[Path], Any],
    reason: str,
) -> None:
    bad, store = one_of(data, "marker/1"), tmp_path / "s"
    content = bad.read_bytes()
    dataset = ImageDomains(data)
    assert None not in dataset.digests  # computed now; later changes are not noticed
    change(bad)
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
    restore(bad, content)
    done = extract(data, zoo(), store)
    assert (done.decoded, done.shards) == (15, 2)
    assert stamps(store).items() > kept.items()
    assert tree(store) == tree(made)


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_the_models_of_a_store_stay_if_a_file_cannot_be_read(
    store: Path,
    data: Path,
    zoo: Zoo,
    extract: Extract,
    tree: Tree,
    change: Callable[[Path], Any],
    reason: str,
) -> None:
    """Other models have its features: without it the rows would not be aligned."""
    dataset = ImageDomains(data)
    assert dataset.digests
    before = tree(store)
    change(one_of(data, "marker/1"))
    with pytest.raises(InputError, match=rf"1 image could not be read .*{reason}"):
        extract(dataset, zoo("cnn_photos"), store)
    after = tree(store)
    assert {name: after[name] for name in before} == before
    assert FeatureStore(store).models == ("mlp_glyphs_augmented", "separable_shapes")


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


def test_files_that_cannot_be_read_at_all(
    data: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    dataset = ImageDomains(data)
    for path in data.rglob("*.png"):
        path.unlink()
    with pytest.raises(InputError, match=r"none of the images can be read; first error: 'chalk/0/"):
        extract(dataset, zoo(), tmp_path / "s")
    assert not (tmp_path / "s").exists()


# --- disk space -------------------------------------------------------------------------------


def test_too_small_a_disk_is_noticed_before_the_work(
    small_disk: Callable[[str], Path], data: Path, make_model: MakeModel, extract: Extract
) -> None:
    disk = small_disk("size=256k")
    wide = make_model(lambda batch: np.ones((len(batch), 5000)), feature_dim=5000)
    with pytest.raises(InputError, match=r"the features need 0.90 MB, the disk .* 0.2. MB free"):
        extract(data, [wide], disk / "store")
