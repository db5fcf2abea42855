"""The extraction loop: each image is decoded once, and failures stay local."""

from __future__ import annotations

import json
import subprocess
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
    spoil,
)

from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import InputError
from oodzoo.features.config import ExtractionConfig
from oodzoo.features.extract import run_extraction
from oodzoo.features.store import FeatureStore
from oodzoo.zoo import ModelSpec

# --- decoding once ----------------------------------------------------------------------------


def test_an_image_is_decoded_once_for_all_models(
    digits: Path, zoo: Zoo, make_model: MakeModel, extract: Extract, tmp_path: Path
) -> None:
    done = extract(digits, [*zoo(), make_model()], tmp_path / "s")
    assert (done.decoded, done.shards) == (45, 9)


COUNT_OPENS = """
import collections, sys
opens = collections.Counter()
sys.addaudithook(
    lambda event, args: opens.update([str(args[0])])
    if event == "open" and str(args[0]).endswith(".png") else None
)
from pathlib import Path
import oodzoo
oodzoo.extract(sys.argv[1], oodzoo.load_zoo("demo")[: int(sys.argv[3])], sys.argv[2])
print(len(opens), *set(opens.values()))
"""


def test_files_are_opened_as_often_for_one_model_as_for_many(
    digits: Path, process: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    runs = [process(COUNT_OPENS, digits, tmp_path / f"s{n}", f"{n}") for n in (1, 4)]
    # once to tell whether an image has changed, once to decode it
    assert [run.communicate() for run in runs] == [("45 2\n", "")] * 2


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

    extract(tmp_path / "data", [make_model(look)], tmp_path / "s", batch_size=32)
    assert sum(seen) == 300
    assert max(seen) == 32


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


def test_images_are_not_decoded_for_nobody(
    data: Path, make_model: MakeModel, tmp_path: Path
) -> None:
    """A long data set is not read to its end when every model has failed."""
    said: list[str] = []

    class Listener:
        def start(self, models: Any, n_images: int) -> None: ...
        def say(self, message: str) -> None: ...
        def advance(self, model: str, n_images: int, seconds: float) -> None: ...
        def failed(self, model: str, reason: str) -> None:
            said.append(model)
            for path in data.rglob("paper/*/*.png"):
                path.write_bytes(b"would be skipped, if anyone looked")

    def fail(batch: Any) -> Any:
        raise RuntimeError("broken")

    with pytest.raises(InputError, match="no model could be used"):
        run_extraction(
            ImageDomains(data), [make_model(fail)], tmp_path / "s", ExtractionConfig(), Listener()
        )
    assert said == ["function"]
    assert not (tmp_path / "s/skipped").exists()


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
    # a model that comes later does not try the image again
    assert extract(data, zoo("cnn_photos"), tmp_path / "s").decoded == 44
    assert FeatureStore(tmp_path / "s").features("cnn_photos", "marker").shape[0] == 14


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


def test_an_image_that_stays_unreadable_is_not_tried_again(
    data: Path, zoo: Zoo, extract: Extract, tmp_path: Path, tree: Tree
) -> None:
    spoil(one_of(data, "marker/1"))
    extract(data, zoo(), tmp_path / "s")
    before = tree(tmp_path / "s")
    assert extract(data, zoo(), tmp_path / "s").decoded == 0
    assert tree(tmp_path / "s") == before


def test_a_skipped_image_that_goes_leaves_no_class_behind(
    data: Path, make_model: MakeModel, extract: Extract, tmp_path: Path
) -> None:
    (data / "marker/7").mkdir()
    (data / "marker/7/only.png").write_bytes(b"no image")
    extract(data, [make_model()], tmp_path / "s")
    assert FeatureStore(tmp_path / "s").classes == ("0", "1", "2")
    (data / "marker/7/only.png").unlink()
    extract(data, [make_model()], tmp_path / "s")
    assert FeatureStore(tmp_path / "s").classes == ("0", "1", "2")
    assert json.loads((tmp_path / "s/manifest.json").read_text())["data"]["classes"] == list("012")


def test_a_shard_without_a_readable_image(
    data: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    for path in (data / "marker").rglob("*.png"):
        path.write_bytes(b"no image")
    extract(data, zoo(), tmp_path / "s")
    store = FeatureStore(tmp_path / "s")
    assert (store.n_images, len(store.skipped)) == (30, 15)
    for name in store.models:
        assert store.features(name, "marker").shape == (0, store.model(name).feature_dim)
        assert store.logits(name, "marker").shape == (0, store.model(name).n_logits)
    assert extract(data, zoo(), tmp_path / "s").decoded == 0


def test_fail_stops_at_an_unreadable_image(
    made: Path, data: Path, zoo: Zoo, extract: Extract, tmp_path: Path, tree: Tree
) -> None:
    bad = one_of(data, "marker/1")
    content = spoil(bad)
    with pytest.raises(InputError, match=rf"cannot read 'marker/1/{bad.name}': "):
        extract(data, zoo(), tmp_path / "s", on_error="fail")
    assert not list((tmp_path / "s").rglob("*marker*/*"))
    assert not list((tmp_path / "s").rglob(".tmp-*"))
    assert not (tmp_path / "s/manifest.json").exists()
    # the image is mended, or the person changes their mind: both go on from here
    bad.write_bytes(content)
    done = extract(data, zoo(), tmp_path / "s", on_error="fail")
    assert done.decoded == 30
    assert tree(tmp_path / "s") == tree(made)


def test_fail_then_skip(data: Path, zoo: Zoo, extract: Extract, tmp_path: Path, tree: Tree) -> None:
    spoil(one_of(data, "marker/1"))
    with pytest.raises(InputError, match="cannot read"):
        extract(data, zoo(), tmp_path / "s", on_error="fail")
    extract(data, zoo(), tmp_path / "s")
    extract(data, zoo(), tmp_path / "at once")
    assert tree(tmp_path / "s") == tree(tmp_path / "at once")


def test_an_image_that_vanishes_under_our_hands(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree
) -> None:
    """Other models have its features: without it the rows would not be aligned."""
    dataset = ImageDomains(data)
    assert dataset.digests  # read now; what happens later it does not know
    before = tree(store)
    spoil(one_of(data, "marker/1"))
    with pytest.raises(InputError, match=r"any more .* restore the image"):
        extract(dataset, zoo("cnn_photos"), store)
    after = tree(store)
    assert {name: after[name] for name in before} == before
    assert FeatureStore(store).models == ("mlp_glyphs_augmented", "separable_shapes")


# --- disk space -------------------------------------------------------------------------------


def test_too_small_a_disk_is_noticed_before_the_work(
    small_disk: Callable[[str], Path], data: Path, make_model: MakeModel, extract: Extract
) -> None:
    disk = small_disk("size=256k")
    wide = make_model(lambda batch: np.ones((len(batch), 5000)), feature_dim=5000)
    with pytest.raises(InputError, match=r"the features need 0.90 MB, the disk .* 0.2. MB free"):
        extract(data, [wide], disk / "store")
