"""From images to features: the right numbers, each image decoded once, nobody stops the others."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from PIL import Image

import oodzoo
from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import InputError
from oodzoo.features.config import Extraction, ExtractionConfig
from oodzoo.features.extract import run_extraction
from oodzoo.features.store import FeatureStore
from oodzoo.zoo import Model, ModelSpec

Extract = Callable[..., Extraction]
MakeModel = Callable[..., Model]
Run = Callable[..., Any]
Stamps = Callable[[Path], dict[str, tuple[int, int]]]
Tree = Callable[[Path], dict[str, str]]
Zoo = Callable[..., list[ModelSpec]]


def literal(spec: ModelSpec, file: Path) -> list[NDArray[Any]]:
    """Features and logits of one image, each step by hand."""
    with Image.open(file) as opened:
        image = opened.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
    mean, std = np.array(spec.mean), np.array(spec.std)
    tensor = ((np.asarray(image) / 255.0 - mean) / std).transpose(2, 0, 1)[None]
    session = onnxruntime.InferenceSession(str(spec.file), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    dtype = np.float16 if given.type == "tensor(float16)" else np.float32
    outputs = session.run([spec.features, spec.logits], {given.name: tensor.astype(dtype)})
    return [output[0] for output in outputs]


def spoil(path: Path) -> bytes:
    """Cut an image file in half; gives what it was."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return content


def one_of(data: Path, cell: str) -> Path:
    return sorted((data / cell).glob("*.png"))[2]


# --- the numbers ------------------------------------------------------------------------------


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


def test_images_of_another_size_are_resized(
    data: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    (spec,) = zoo("separable_shapes")
    for at, file in enumerate(sorted(data.rglob("*.png"))):
        with Image.open(file) as image:
            resized = image.resize((40 + at, 25), Image.Resampling.BICUBIC)
        resized.save(file)
    extract(data, [spec], tmp_path / "s")
    store = FeatureStore(tmp_path / "s")
    for row in (0, 8):
        expected, _ = literal(spec, data / store.paths("paper")[row])
        found = store.features(spec.name, "paper")[row]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


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
    assert done.failed == {
        "large": "model 'large': values up to 1e+05 do not fit float16; store them as float32"
    }
    assert FeatureStore(tmp_path / "s").models == ("function",)
    assert not list((tmp_path / "s/large").rglob("*.npy"))


def test_onnx_models_do_not_depend_on_the_precision_of_others(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree
) -> None:
    before = tree(store)
    done = extract(data, zoo(), store, precision="bfloat16")
    assert (done.failed, done.decoded) == ({}, 0)
    assert tree(store) == before


# --- once ------------------------------------------------------------------------------------


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


# --- models that fail -----------------------------------------------------------------------


def dark_is_nan(batch: NDArray[np.float32]) -> Any:
    """As a model that divides by the brightness of an image: one image in the middle of a run."""
    features = batch.mean(axis=(2, 3))
    features[features.max(axis=1) <= -1] = np.nan
    return features


def blacken(path: Path) -> None:
    Image.new("RGB", (32, 32)).save(path)


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


def test_a_warning_names_a_model_that_failed(
    data: Path, make_model: MakeModel, tmp_path: Path
) -> None:
    blacken(one_of(data, "marker/1"))
    with pytest.warns(UserWarning, match="model 'nan' is left out: .* returned NaN"):
        store = oodzoo.extract(
            data, [make_model(dark_is_nan, name="nan"), make_model()], tmp_path / "s"
        )
    assert store.models == ("function",)


def test_no_model_is_left(
    data: Path, make_model: MakeModel, extract: Extract, tmp_path: Path
) -> None:
    def fail(batch: Any) -> Any:
        raise RuntimeError("broken")

    with pytest.raises(
        InputError, match=r"no model could be used; the first, 'a': Runtime.*broken"
    ):
        extract(data, [make_model(fail, name="a"), make_model(fail, name="b")], tmp_path / "s")
    with pytest.raises(InputError, match="no finished model yet"):
        FeatureStore(tmp_path / "s")


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


@pytest.mark.parametrize("zoo", [[], ""])
def test_an_empty_zoo(data: Path, tmp_path: Path, zoo: Any) -> None:
    with pytest.raises(InputError, match=r"the zoo is empty|'' is not a zoo"):
        oodzoo.extract(data, zoo, tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_two_models_of_one_name(data: Path, make_model: MakeModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the zoo names two models 'function'"):
        oodzoo.extract(data, [make_model(), make_model()], tmp_path / "s")


def test_a_zoo_may_be_a_list_of_texts(
    data: Path, zoo: Zoo, zoo_file: Callable[[list[ModelSpec]], Path], tmp_path: Path
) -> None:
    """What `load_zoo` takes, `extract` takes."""
    store = oodzoo.extract(data, [str(zoo_file(zoo()))], tmp_path / "s")
    assert store.models == ("mlp_glyphs_augmented", "separable_shapes")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"dtype": "float64"}, "dtype must be one of float32, float16, got 'float64'"),
        ({"precision": "int8"}, "precision must be one of .* got 'int8'"),
        ({"on_error": "ignore"}, "on_error must be one of skip, fail, got 'ignore'"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
    ],
)
def test_unknown_settings(
    data: Path, zoo: Zoo, extract: Extract, tmp_path: Path, settings: Any, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        extract(data, zoo(), tmp_path / "s", **settings)


# --- images that cannot be read ---------------------------------------------------------------


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


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path: Path, zoo: Zoo, zoo_file: Callable[[list[ModelSpec]], Path]) -> Path:
    """A zoo file of the two small models, and one that cannot be opened."""
    path = zoo_file(zoo())
    (tmp_path / "broken.onnx").write_bytes(b"broken")
    path.write_text(f'{path.read_text()}[[model]]\nname = "broken"\nsource = "onnx/broken.onnx"\n')
    return path


def test_json(run: Run, data: Path, three: Path, tmp_path: Path) -> None:
    bad = one_of(data, "marker/1")
    spoil(bad)
    arguments = ("extract", data, "--zoo", three, "--store", tmp_path / "s", "--json")
    outcome = run(*arguments)
    document = outcome.document
    assert outcome.code == 0
    assert document["store"] == str(tmp_path / "s")
    assert document["models"] == ["mlp_glyphs_augmented", "separable_shapes"]
    assert list(document["failed"]) == ["broken"]
    assert list(document["skipped"]) == [bad.relative_to(data).as_posix()]
    assert (document["images"], document["decoded"], document["shards_written"]) == (44, 45, 6)
    assert document["bottleneck"] in ("decoding", "inference")
    assert "warning: model 'broken'" in outcome.err
    assert f"warning: skipped 'marker/1/{bad.name}'" in outcome.err
    again = run(*arguments)
    assert (again.code, again.document["decoded"], again.document["shards_written"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (["--zoo", "nowhere.toml"], "cannot read the zoo file 'nowhere.toml'"),
        (["--zoo", "timmy/resnet50"], "is not a zoo"),
        (["--batch-size", "many"], "--batch-size must be a number or auto, got 'many'"),
        (["--dtype", "float64"], "dtype must be one of"),
        (["--on-error", "cry"], "got 'cry'"),
        (["--limit", "8"], "a sample of 8 images is too small"),
        (["--limit", "-1"], "a sample of -1 images is too small"),
        (["--limit", "few"], "'--limit'"),
        (["--root", "."], "only used with a table"),
        (["--store", "taken"], "a file where a folder is needed"),
        (["--store", "mine"], "is neither empty nor a feature store (it holds 'file')"),
    ],
)
def test_bad_input_is_one_line(
    run: Run,
    data: Path,
    three: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").touch()
    options = {"--zoo": str(three), "--store": "s"} | {change[0]: change[1]}
    arguments = [part for option in options.items() for part in option]
    assert complaint in run("extract", data, *arguments, "--quiet", "--json").complaint


def test_fail_is_one_line(
    run: Run, data: Path, zoo: Zoo, zoo_file: Callable[[list[ModelSpec]], Path], tmp_path: Path
) -> None:
    spoil(one_of(data, "marker/1"))
    options = ("--zoo", zoo_file(zoo()), "--store", tmp_path / "s", "--on-error", "fail", "--quiet")
    assert "cannot read 'marker/1/" in run("extract", data, *options).complaint


def test_a_full_disk_is_one_line(
    run: Run,
    data: Path,
    zoo: Zoo,
    zoo_file: Callable[[list[ModelSpec]], Path],
    small_disk: Callable[[str], Path],
) -> None:
    options = ("--zoo", zoo_file(zoo()), "--store", small_disk("size=68k") / "s", "--quiet")
    assert "the disk is full" in run("extract", data, *options).complaint


# --- a quick look -----------------------------------------------------------------------------


def test_limit_grows_into_the_whole(
    run: Run, made: Path, data: Path, three: Path, tmp_path: Path, stamps: Stamps
) -> None:
    arguments = ("extract", data, "--zoo", three, "--store", tmp_path / "s", "--json")
    seen: set[str] = set()
    times: dict[str, tuple[int, int]] = {}
    for limit in (9, 20, 45):
        document = run(*arguments, "--limit", str(limit)).document
        assert document["images"] == limit
        assert document["decoded"] == limit - len(seen)
        store = FeatureStore(tmp_path / "s")
        paths = {path for domain in store.domains for path in store.paths(domain)}
        assert paths > seen
        assert stamps(tmp_path / "s").items() > times.items()
        seen, times = paths, stamps(tmp_path / "s")
    assert run(*arguments).document["decoded"] == 0
    whole = FeatureStore(made)
    for domain in whole.domains:
        order = [store.paths(domain).index(path) for path in whole.paths(domain)]
        np.testing.assert_array_equal(store.labels(domain)[order], whole.labels(domain))
        np.testing.assert_allclose(
            store.features("separable_shapes", domain)[order],
            whole.features("separable_shapes", domain),
            atol=1e-5,
        )
    # a smaller look at a larger store would be another data set
    assert "45 images in the store" in run(*arguments[:-1], "--limit", "20", "-q").complaint


def test_limit_keeps_groups_whole(run: Run, data: Path, three: Path, tmp_path: Path) -> None:
    samples = list(ImageDomains(data))
    with (data / "table.csv").open("w", newline="") as file:
        rows = [(s.path, s.domain, s.label, f"{s.domain}{at // 3}") for at, s in enumerate(samples)]
        csv.writer(file).writerows([("path", "domain", "label", "group"), *rows])
    options = ("--zoo", three, "--store", tmp_path / "s", "--limit", "20", "--json")
    document = run("extract", data / "table.csv", *options).document
    assert document["images"] >= 20
    assert document["images"] % 3 == 0
    store = FeatureStore(tmp_path / "s")
    groups = [group for domain in store.domains for group in store.groups(domain)]
    assert all(groups.count(group) == 3 for group in groups)


def test_another_seed_is_another_sample(data: Path) -> None:
    dataset = ImageDomains(data)
    looks = [{s.path for s in dataset.sample(20, seed=seed)} for seed in (0, 0, 1)]
    assert looks[0] == looks[1] != looks[2]
