"""Reading a store: complete, aligned, verified, independent of time, place and layout."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.features.data import Extract, MakeModel, Tree, Zoo
from tests.store.data import (
    compute,
    fill,
    image,
    letters,
    record,
    require_right,
    unlabelled,
    values,
)

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.store.feature_store import FeatureStore, UnfinishedStoreError
from oodzoo.store.writer import writing

# --- content ---------------------------------------------------------------------------------


def test_files(made: Path) -> None:
    names = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}
    manifest = json.loads((made / "manifest.json").read_text())
    expected = {".lock", "manifest.json", "images/00000.json"}
    expected.add("samples/00000.json")
    table = (made / "samples/00000.json").read_bytes()
    assert (manifest["table"], manifest["samples"]) == ("00000", hashlib.sha256(table).hexdigest())
    for model in ("mlp_glyphs_augmented", "separable_shapes"):
        folder = f"models/{model}"
        expected |= {f"{folder}/{name}" for name in (".lock", "model.json", "local.json")}
        expected.add(f"{folder}/shards.{manifest['models'][model]['shards'][:16]}.json")
        for number in range(3):  # one for each domain
            shard = f"{folder}/00000-{number:05d}"
            expected.add(f"{shard}.json")
            document = json.loads((made / f"{shard}.json").read_text())
            for output in ("features", "logits"):
                expected.add(f"{shard}.{output}.{document[output]['sha256'][:16]}.npy")
    assert names == expected


def test_readers(made: Path, digits: Path) -> None:
    store = FeatureStore(made)
    dataset = ImageDomains(digits)
    assert store.domains == dataset.domains == ("chalk", "marker", "paper")
    assert store.unlabelled == ()
    assert store.classes == dataset.classes == ("0", "1", "2")
    assert store.models == ("mlp_glyphs_augmented", "separable_shapes")
    assert store.n_images == len(dataset) == 45
    assert store.skipped == {}
    assert store.data_fingerprint == dataset.fingerprint
    assert repr(store) == f"FeatureStore('{made}': 2 models, 3 domains, 45 images)"
    assert list(store) == list(store.models)
    assert len(store) == 2
    assert all(store[name] is store.model(name) for name in store)
    assert "separable_shapes" in store
    assert "resnet50" not in store
    html = store._repr_html_()
    assert html.count("<tr>") == 3
    assert all(text in html for text in ("27,340", "45 images", "3 domains: chalk (15), marker"))
    with pytest.raises(KeyError, match="no model 'separable'; did you mean separable_shapes"):
        store["separable"]
    digests = dict(zip((s.path for s in dataset), dataset.digests, strict=True))
    for domain in store.domains:
        samples = [s for s in dataset if s.domain == domain]
        assert store.paths(domain) == [s.path for s in samples]
        assert store.images(domain) == [digests[s.path] for s in samples]
        assert [store.classes[at] for at in store.labels(domain)] == [s.label for s in samples]
        assert store.groups(domain) == [None] * 15
    for name in store.models:
        model = store.model(name)
        assert model.name == name
        features = store.features(name, "chalk")
        assert features.shape == (15, model.feature_dim)
        assert store.logits(name, "chalk").shape == (15, model.n_logits)
        assert (store.milliseconds_per_image(name) or 0) > 0
    with pytest.raises(InputError, match="has no model 'x'; it has mlp_glyphs_augmented, sep"):
        store.model("x")
    for read in (store.paths, store.images, store.labels, store.groups):
        with pytest.raises(InputError, match="unknown domain 'x'; expected one of 'chalk', 'mark"):
            read("x")
    with pytest.raises(InputError, match="unknown domain 'x'"):
        store.features("separable_shapes", "x")


def test_a_model_without_logits(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        writer.set_table(letters(day="ab"))
        writer.add_images()
        writer.add_model("m", record(n_logits=None))
        compute(writer, "m")
        writer.finish()
    store = FeatureStore(tmp_path)
    assert store.features("m", "day").shape == (2, 3)
    for read in (
        lambda: store.logits("m", "day"),
        lambda: list(store.blocks("m", "day", "logits")),
        lambda: store.gather("m", [], "logits"),
    ):
        with pytest.raises(InputError, match="model 'm' has no logits in the store"):
            read()


def test_many_shards_in_a_domain(
    tmp_path: Path, make_model: MakeModel, extract: Extract, write_image: Callable[[Path], Path]
) -> None:
    for number in range(520):
        write_image(tmp_path / "data" / "a" / f"{number % 2}" / f"{number:03}.png")
    write_image(tmp_path / "data/b/0/1.png")
    extract(tmp_path / "data", [make_model()], tmp_path / "store")
    store = FeatureStore(tmp_path / "store")
    sizes = [len(np.load(path)) for path, _ in store.shard_files()]
    assert sizes == [256, 256, 8, 1]
    colour = [Image.open(tmp_path / "data" / path).getpixel((0, 0)) for path in store.paths("a")]
    np.testing.assert_allclose(
        store.features("function", "a"), np.array(colour) / 127.5 - 1, atol=1e-6
    )
    blocks = list(store.blocks("function", "a", rows=300))
    assert [len(block) for block in blocks] == [300, 220]
    np.testing.assert_array_equal(np.concatenate(blocks), store.features("function", "a"))


def test_images_that_cannot_be_decoded_are_left_out(tmp_path: Path) -> None:
    table = letters(day="abcd", night="ef")
    fill(tmp_path, table, "m1", "m2", undecodable=[image("b"), image("f")])
    store = require_right(tmp_path)
    assert store.paths("day") == ["day/a.png", "day/c.png", "day/d.png"]
    assert store.n_images == len(store.labels("day")) + len(store.labels("night")) == 4
    assert store.skipped == {"day/b.png": "cannot be decoded", "night/f.png": "cannot be decoded"}
    assert store.data_fingerprint == letters(day="acd", night="e").fingerprint


# --- layout ----------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcdefghijkl")), max_size=5), st.integers(1, 13))
def test_the_order_does_not_depend_on_the_layout(
    tmp_path_factory: pytest.TempPathFactory, steps: list[set[str]], rows: int
) -> None:
    """The images arrive in any groups; rows, blocks and labels are those of a fresh store."""
    store = tmp_path_factory.mktemp("grown") / "store"
    seen: set[str] = set()
    for step in [*steps, set("abcdefghijkl")]:
        seen |= step
        if seen:
            day, night = (sorted(seen & set(part)) for part in ("abcdefgh", "ijkl"))
            given = {"day": "".join(day), "night": "".join(night)}
            fill(store, letters(**{name: part for name, part in given.items() if part}), "m")
    grown = require_right(store)
    fresh = require_right(fill(store.parent / "fresh", letters(day="abcdefgh", night="ijkl"), "m"))
    assert grown.data_fingerprint == fresh.data_fingerprint
    for domain in fresh.domains:
        assert grown.paths(domain) == fresh.paths(domain) == sorted(fresh.paths(domain))
        np.testing.assert_array_equal(grown.labels(domain), fresh.labels(domain))
        for output in ("features", "logits"):
            pairs = zip(
                grown.blocks("m", domain, output, rows=rows),
                fresh.blocks("m", domain, output, rows=rows),
                strict=True,
            )
            for found, expected in pairs:
                np.testing.assert_array_equal(found, expected)


# --- time and place --------------------------------------------------------------------------


def test_a_store_does_not_depend_on_where_it_was_made(
    made: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree, tmp_path: Path
) -> None:
    elsewhere = shutil.copytree(zoo()[0].folder, tmp_path / "models")
    specs = oodzoo.load_zoo(elsewhere / "zoo.toml")
    chosen = [s for s in reversed(specs) if s.name in {m.name for m in zoo()}]
    done = extract(data, chosen, tmp_path / "other" / "place")
    assert done.shards == 6
    assert tree(tmp_path / "other" / "place") == tree(made)
    moved = shutil.copytree(made, tmp_path / "moved")
    assert extract(data.rename(tmp_path / "moved images"), zoo(), moved).decoded == 0
    assert tree(moved) == tree(made)
    assert str(tmp_path) not in (tmp_path / "other/place/manifest.json").read_text()


# --- before an extraction has finished -------------------------------------------------------


def test_some_samples_of_models_that_are_not_finished(tmp_path: Path) -> None:
    few = {image(name) for name in "acf"}
    with writing(tmp_path) as writer:
        writer.set_table(letters(day="abcde", night="fghi"))
        for name in ("m1", "m2"):
            writer.add_model(name, record())
        compute(writer, "m1", "m2", available=few, undecodable=[image("c")], only=True)
        compute(writer, "m2", available={*few, image("d")}, only=True)
        names = ["m1", "m2"]
        unreadable = {name: writer.coverage(name).unreadable for name in names}
        store = FeatureStore.partial(
            tmp_path,
            {name: writer.record(name).stored(name, "", unreadable[name]) for name in names},
            writer.table.only(few),
            writer.index,
            {name: list(writer.records(name).values()) for name in names},
        )
    assert (store.models, store.domains, store.n_images) == (("m1", "m2"), ("day", "night"), 2)
    assert store.paths("day") == ["day/a.png"]
    assert list(store.skipped) == ["day/c.png"]
    for model in store.models:
        for domain, name in {"day": "a", "night": "f"}.items():
            np.testing.assert_array_equal(
                store.features(model, domain), values(model, [image(name)])
            )
    with pytest.raises(InputError, match="has no finished model yet"):
        FeatureStore(tmp_path)


# --- unlabelled domains ----------------------------------------------------------------------


@pytest.mark.parametrize("names", ["xyz", "axy"])  # a labelled image may be among them
def test_a_domain_without_labels_influences_nothing_else(small: Path, names: str) -> None:
    before = FeatureStore(small)
    with writing(small) as writer:
        writer.set_table(writer.table.replacing(unlabelled("target", names)))
        writer.add_images()
        compute(writer, "m1")
        writer.finish()
    store = FeatureStore(small)
    for name in ("models", "domains", "classes", "n_images", "fingerprint", "data_fingerprint"):
        assert getattr(store, name) == getattr(before, name), name
    for domain in store.domains:
        assert store.checksums("m1", domain) == before.checksums("m1", domain)
        assert store.samples_digest(domain) == before.samples_digest(domain)
        np.testing.assert_array_equal(store.labels(domain), before.labels(domain))
        np.testing.assert_array_equal(store.features("m1", domain), before.features("m1", domain))
    assert store.unlabelled == ("target",)
    assert store.paths("target") == [f"target/{name}.png" for name in names]
    assert store.groups("target") == [None] * 3
    with pytest.raises(InputError, match=r"the domain 'target' of the store .* has no labels"):
        store.labels("target")
    expected = values("m1", map(image, names))
    np.testing.assert_array_equal(store.features("m1", "target"), expected)
    models = [("m1", "target"), ("m2", "target"), ("m2", "day")]
    assert [store.has_features(*each) for each in models] == [True, False, True]
    for read in (
        lambda: store.features("m2", "target"),
        lambda: list(store.blocks("m2", "target")),
        lambda: store.checksums("m2", "target"),
    ):
        with pytest.raises(InputError, match=r"features of 'target/x.png' \('target'\) with mo"):
            read()
    with pytest.raises(InputError, match=rf"no features of '{image('?')}' .*with model 'm1'"):
        store.gather("m1", [image("a"), image("?")], "features")
    fill(small, letters(day="abcdej", night="fghi"), "m1", "m2")  # it is kept
    store = require_right(small)
    assert store.unlabelled == ("target",)
    assert store.has_features("m1", "target")
    assert store.paths("day")[-1] == "day/j.png"


# --- no finished model -----------------------------------------------------------------------


def test_a_store_without_a_finished_model(tmp_path: Path, photos: Path, small: Path) -> None:
    with writing(tmp_path / "new") as writer:
        writer.set_table(letters(day="ab"))
        writer.add_images()
    with pytest.raises(UnfinishedStoreError, match="no finished model yet; run oodzoo extract to"):
        FeatureStore(tmp_path / "new")
    small.rename(photos / "store")
    (photos / "run.json").touch()
    assert FeatureStore(photos).path == photos / "store"  # the folder of a run
