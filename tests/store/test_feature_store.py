"""Reading a store: complete, aligned, verified, independent of time, place and layout."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from PIL import Image
from tests.features.data import Extract, MakeModel, Tree, Zoo, rows_of, write_table
from tests.store.data import (
    compute,
    fill,
    flip,
    image,
    letters,
    literal,
    nested,
    record,
    require_right,
    rewrite,
    unlabelled,
    values,
)

import oodzoo
from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import InputError
from oodzoo.store.feature_store import FeatureStore, UnfinishedStoreError
from oodzoo.store.shards import Shard, list_file, read_record, record_files, write_list
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


def test_the_manifest_is_written_last(
    data: Path, make_model: MakeModel, extract: Extract, tmp_path: Path
) -> None:
    extract(data, [make_model()], tmp_path / "store")
    files = [p for p in (tmp_path / "store").rglob("*.[jn]*") if p.name != "local.json"]
    assert max(files, key=lambda path: path.stat().st_mtime_ns).name == "manifest.json"


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
    assert store._repr_html_().count("<tr>") == 3
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


def test_reading_equals_reading_the_files_by_hand(made: Path) -> None:
    store = FeatureStore(made)
    manifest = json.loads((made / "manifest.json").read_text())
    table = json.loads((made / f"samples/{manifest['table']}.json").read_text())
    for model in store.models:
        for output in ("features", "logits"):
            rows = literal(made, model, output)
            for domain in table["domains"]:
                expected = np.array([rows[identity] for identity in domain["image"]])
                read = {"features": store.features, "logits": store.logits}[output]
                np.testing.assert_array_equal(read(model, domain["name"]), expected)
                assert store.paths(domain["name"]) == sorted(domain["path"])
                assert [store.classes[at] for at in store.labels(domain["name"])] == domain["label"]


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


def test_an_image_without_features_is_named(small: Path) -> None:
    store = FeatureStore(small)
    with pytest.raises(InputError, match=rf"has no features of '{image('x')}' .*with model 'm1'"):
        store.gather("m1", [image("a"), image("x")], "features")


def test_a_store_without_one_of_its_files_is_not_complete(small: Path) -> None:
    assert FeatureStore(small).is_complete()
    next((small / "models/m1").glob("00000-00001.logits.*")).unlink()
    assert not FeatureStore(small).is_complete()


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
    assert str(tmp_path) not in (tmp_path / "other/place/manifest.json").read_text()


def test_a_store_moves_with_its_images(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree, tmp_path: Path
) -> None:
    before = tree(store)
    moved = store.rename(tmp_path / "moved")
    data = data.rename(tmp_path / "moved images")
    assert extract(data, zoo(), moved).decoded == 0
    assert tree(moved) == before
    assert FeatureStore(moved).n_images == 45


def test_a_table_and_a_folder_give_the_same_store(
    made: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree, tmp_path: Path
) -> None:
    table = write_table(data, rows_of(data)[::-1])
    extract(table, zoo(), tmp_path / "by table")
    assert tree(tmp_path / "by table") == tree(made)


ODD_DOMAINS = [
    "a/b", "..", ".tmp-x", "日本 " * 40 + "!", "x" * 300, "model.json", "models", "x.", "50%",
    "Day", "day", unicodedata.normalize("NFC", "höhle"), unicodedata.normalize("NFD", "höhle"),
]  # fmt: skip


def test_domains_may_have_any_name(
    data: Path, tmp_path: Path, make_model: MakeModel, extract: Extract
) -> None:
    rows = [
        (path, ODD_DOMAINS[at % len(ODD_DOMAINS)], label)
        for at, (path, _, label) in enumerate(rows_of(data))
    ]
    dataset = ImageDomains(write_table(data, rows))
    extract(dataset, [make_model()], tmp_path / "store")
    assert extract(dataset, [make_model()], tmp_path / "store").decoded == 0
    store = FeatureStore(tmp_path / "store")
    assert store.domains == tuple(sorted(ODD_DOMAINS))
    for domain in ODD_DOMAINS:
        paths = [path for path, d, _ in rows if d == domain]
        assert store.paths(domain) == sorted(paths)
        assert store.features("function", domain).shape == (len(paths), 3)
    assert store.is_complete()
    # nothing is outside the store, and no name inside it comes from a domain
    assert {path.name for path in tmp_path.iterdir()} == {"data", "store"}
    inside = {path.name for path in (tmp_path / "store").iterdir()}
    assert inside == {".lock", "manifest.json", "images", "samples", "models"}


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


def _with_unlabelled(small: Path, names: str = "xyz", *models: str) -> FeatureStore:
    with writing(small) as writer:
        writer.set_table(writer.table.replacing(unlabelled("target", names)))
        writer.add_images()
        compute(writer, *models)
        writer.finish()
    return FeatureStore(small)


@pytest.mark.parametrize("names", ["xyz", "axy"])  # a labelled image may be among them
def test_a_domain_without_labels_influences_nothing_else(small: Path, names: str) -> None:
    before = FeatureStore(small)
    store = _with_unlabelled(small, names, "m1")
    assert store.unlabelled == ("target",)
    assert store.models == before.models == ("m1", "m2")
    assert (store.domains, store.classes) == (before.domains, before.classes)
    assert store.n_images == before.n_images
    assert store.fingerprint == before.fingerprint
    assert store.data_fingerprint == before.data_fingerprint
    for domain in store.domains:
        assert store.checksums("m1", domain) == before.checksums("m1", domain)
        assert store.samples_digest(domain) == before.samples_digest(domain)
        np.testing.assert_array_equal(store.labels(domain), before.labels(domain))
        np.testing.assert_array_equal(store.features("m1", domain), before.features("m1", domain))


def test_reading_a_domain_without_labels(small: Path) -> None:
    store = _with_unlabelled(small, "xyz", "m1")
    assert store.paths("target") == ["target/x.png", "target/y.png", "target/z.png"]
    assert store.groups("target") == [None] * 3
    with pytest.raises(InputError, match=r"the domain 'target' of the store .* has no labels"):
        store.labels("target")
    expected = values("m1", [image(name) for name in "xyz"])
    np.testing.assert_array_equal(store.features("m1", "target"), expected)
    assert store.has_features("m1", "target")
    assert not store.has_features("m2", "target")
    assert store.has_features("m2", "day")
    for read in (
        lambda: store.features("m2", "target"),
        lambda: list(store.blocks("m2", "target")),
        lambda: store.checksums("m2", "target"),
    ):
        with pytest.raises(InputError, match=r"no features of 'target/x.png' \('target'\) with"):
            read()


def test_an_extraction_keeps_domains_without_labels(small: Path) -> None:
    _with_unlabelled(small, "xyz", "m1")
    fill(small, letters(day="abcdej", night="fghi"), "m1", "m2")
    store = require_right(small)
    assert store.unlabelled == ("target",)
    assert store.has_features("m1", "target")
    assert store.paths("day")[-1] == "day/j.png"


# --- damage ----------------------------------------------------------------------------------


def _readers(store: Path, model: str, domain: str) -> dict[str, Callable[[], object]]:
    """Read the features of a domain in each possible way, from a store opened anew."""
    return {
        "features": lambda: FeatureStore(store).features(model, domain),
        "blocks": lambda: list(FeatureStore(store).blocks(model, domain, rows=2)),
        "gather": lambda: FeatureStore(store).gather(
            model, FeatureStore(store).images(domain)[::-1], "features"
        ),
    }


@pytest.mark.parametrize("reader", ["features", "blocks", "gather"])
@pytest.mark.parametrize("bit", [0, 7, 8 * 6, 8 * 64, 8 * 127, 8 * 128, 8 * 150 + 3, -1, -8])
def test_a_flipped_bit_of_a_shard_is_refused(small: Path, bit: int, reader: str) -> None:
    (path,) = (small / "models/m1").glob("00000-00000.features.*.npy")
    flip(path, bit % (8 * path.stat().st_size))
    with pytest.raises(InputError, match="is damaged") as caught:
        _readers(small, "m1", "day")[reader]()
    assert "\n" not in str(caught.value)
    assert f"`oodzoo store check {small} --repair`" in str(caught.value)
    # other domains, models and outputs can be read
    store = FeatureStore(small)
    for model, domain in (("m1", "night"), ("m2", "day"), ("m2", "night")):
        expected = values(model, store.images(domain))
        np.testing.assert_array_equal(store.features(model, domain), expected)
    np.testing.assert_array_equal(
        store.logits("m1", "day"), values("m1", store.images("day"), "logits")
    )


def test_a_flipped_bit_of_the_logits_is_refused(small: Path) -> None:
    (path,) = (small / "models/m1").glob("00000-00000.logits.*.npy")
    flip(path, 8 * path.stat().st_size - 1)
    with pytest.raises(InputError, match=r"is damaged .*`oodzoo store check .* --repair`"):
        FeatureStore(small).logits("m1", "day")


def test_a_shard_that_was_verified_is_verified_again_when_it_changes(small: Path) -> None:
    store = FeatureStore(small)
    store.features("m1", "day")
    (path,) = (small / "models/m1").glob("00000-00000.features.*.npy")
    flip(path, 8 * 140)
    with pytest.raises(InputError, match="is damaged"):
        store.features("m1", "day")


@pytest.mark.parametrize("pattern", ["manifest.json", "samples/*", "images/*", "models/m1/shards*"])
def test_a_flipped_bit_of_a_document_is_refused(small: Path, pattern: str) -> None:
    """Some hundred bits of each document; all of them are in the tests of its module."""
    (path,) = small.glob(pattern)
    content = path.read_bytes()
    for bit in random.Random(0).sample(range(8 * len(content)), 300):
        path.write_bytes(content)
        flip(path, bit)
        for read in _readers(small, "m1", "day").values():
            with pytest.raises(InputError) as caught:
                read()
            assert "\n" not in str(caught.value)
            assert str(small) in str(caught.value)


@pytest.mark.parametrize("pattern", ["samples/*", "images/*", "models/m1/shards*"])
def test_a_missing_document(small: Path, pattern: str) -> None:
    (path,) = small.glob(pattern)
    path.unlink()
    for read in _readers(small, "m1", "day").values():
        with pytest.raises(InputError, match=r"cannot read .*No such file") as caught:
            read()
        assert "\n" not in str(caught.value)
        assert "oodzoo store" in str(caught.value)


def test_altered_labels_are_refused(small: Path) -> None:
    (path,) = small.glob("samples/*")
    rewrite(path, lambda table: table["domains"][0]["label"].reverse())
    with pytest.raises(InputError, match=r"the table of samples .* is damaged"):
        FeatureStore(small)


def _set_list(store: Path, model: str, digest: str) -> None:
    rewrite(store / "manifest.json", lambda m: m["models"][model].update(shards=digest))


def _records(folder: Path) -> list[Shard]:
    records = [read_record(path) for path in record_files(folder)]
    return [record for record in records if record is not None]


def _every_reader(store: Path, model: str) -> dict[str, Callable[[], object]]:
    """Use the list of shards of a model in each possible way, from a store opened anew."""
    return _readers(store, model, "day") | {
        "logits": lambda: FeatureStore(store).logits(model, "day"),
        "coverage": lambda: FeatureStore(store).coverage(model),
        "has_features": lambda: FeatureStore(store).has_features(model, "day"),
        "checksums": lambda: FeatureStore(store).checksums(model, "day"),
        "fingerprint": lambda: FeatureStore(store).fingerprint,
        "is_complete": lambda: FeatureStore(store).is_complete(),
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"shard": "00000-00007"},
        {"shard": "00009-00000"},
        {"shard": ""},
        {"shard": "00000-00001"},
        {"images": ""},
        {"images": image("x")[:16]},
        {"logits": None},
        {"absent": {5: None}},
        {"absent": {5: "truncated"}},
        {"absent": {-1: None}},
        {"absent": {10**30: None}},
    ],
    ids=str,
)
def test_a_list_that_does_not_match_the_index_is_refused(
    small: Path, fields: dict[str, object]
) -> None:
    folder = small / "models/m1"
    first, *others = _records(folder)
    _set_list(small, "m1", write_list(folder, [replace(first, **fields), *others]))
    name = fields.get("shard", first.shard)
    for read in _every_reader(small, "m1").values():
        with pytest.raises(InputError) as caught:
            read()
        message = str(caught.value)
        assert "\n" not in message
        assert message.startswith(f"the store '{small}' is damaged: the shard '{name}' of model ")
        assert f"`oodzoo store check {small} --repair`" in message
    np.testing.assert_array_equal(
        FeatureStore(small).features("m2", "day"), values("m2", map(image, "abcde"))
    )


def test_a_list_with_logits_of_a_model_without_any_is_refused(small: Path) -> None:
    rewrite(small / "manifest.json", lambda m: m["models"]["m1"].update(n_logits=None))
    for name, read in _every_reader(small, "m1").items():
        if name != "logits":
            with pytest.raises(InputError, match=r"'m1' does not match the index; .* --repair`"):
                read()


@pytest.mark.parametrize("absent", [{}, {0: None, 1: None}])
def test_a_list_of_another_number_of_rows_is_refused(
    tmp_path: Path, absent: dict[int, str | None]
) -> None:
    store = fill(tmp_path, letters(day="abc"), "m", undecodable=[image("b")])
    (shard,) = _records(store / "models/m")
    assert shard.absent == {1: "cannot be decoded"}
    _set_list(store, "m", write_list(store / "models/m", [replace(shard, absent=absent)]))
    for output, width in (("features", 3), ("logits", 2)):
        message = rf"contains float32 \(2, {width}\) instead of .* --repair`"
        with pytest.raises(InputError, match=message):
            FeatureStore(store).gather("m", [image("c")], output)


@pytest.mark.parametrize("change", [{"feature_dim": 4}, {"n_logits": 3}, {"dtype": "float16"}])
def test_a_model_of_another_width_is_refused(small: Path, change: dict[str, object]) -> None:
    rewrite(small / "manifest.json", lambda m: m["models"]["m1"].update(change))
    with pytest.raises(InputError, match=r"contains float32 .* instead of .* --repair`"):
        FeatureStore(small).gather(
            "m1", [image("a")], "logits" if "n_logits" in change else "features"
        )


@pytest.mark.parametrize("place", ["manifest", "table", "index", "list"])
@pytest.mark.parametrize("content", [nested(), '{"schema": NaN}'], ids=["nested", "nan"])
def test_json_that_no_program_writes(small: Path, place: str, content: str) -> None:
    """Also with the right checksum in the manifest."""
    sha256 = hashlib.sha256(content.encode()).hexdigest()
    manifest = small / "manifest.json"
    if place == "manifest":
        manifest.write_text(content)
    elif place == "table":
        (small / "samples/00000.json").write_text(content)
        rewrite(manifest, lambda m: m.update(samples=sha256))
    elif place == "index":
        (small / "images/00000.json").write_text(content)
        rewrite(manifest, lambda m: m.update(segments={"00000": sha256}))
    else:
        list_file(small / "models/m1", sha256).write_text(content)
        _set_list(small, "m1", sha256)
    for read in _readers(small, "m1", "day").values():
        with pytest.raises(InputError, match=rf"'{small}.*' is damaged: .*oodzoo store ") as caught:
            read()
        assert "\n" not in str(caught.value)


def test_a_list_that_names_files_elsewhere_is_refused(small: Path, tmp_path: Path) -> None:
    folder = small / "models/m1"
    shards = _records(folder)
    outside = tmp_path / "x.npy"
    shutil.copy(folder / shards[0].features.file, outside)
    for name in ("../../../x.npy", str(outside)):
        moved = replace(shards[0], features=replace(shards[0].features, file=name))
        _set_list(small, "m1", write_list(folder, [moved, *shards[1:]]))
        with pytest.raises(InputError, match=r"names '.*x\.npy' as a file"):
            FeatureStore(small).features("m1", "day")


LINKS = ["models", "models/m1", "samples", "images", "manifest.json", "images/00000.json"]


@pytest.mark.parametrize("name", [*LINKS, "samples/*", "models/m1/shards*", "models/m1/*features*"])
def test_links_are_not_followed(small: Path, tmp_path: Path, name: str) -> None:
    for at, path in enumerate(sorted(small.glob(name))):
        path.rename(tmp_path / f"outside{at}")
        path.symlink_to(tmp_path / f"outside{at}")
    for domain in ("day", "night"):
        for read in _readers(small, "m1", domain).values():
            with pytest.raises(InputError, match="is a symbolic link; a store contains none"):
                read()


def test_a_cache_behind_a_link_is_neither_read_nor_written(store: Path, tmp_path: Path) -> None:
    best = oodzoo.rank(FeatureStore(store)).best
    assert (store / "cache").is_dir()
    outside = (store / "cache").rename(tmp_path / "outside")
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    for path in before:
        path.write_bytes(b"not of this store")
    (store / "cache").symlink_to(outside)
    assert oodzoo.rank(FeatureStore(store)).best == best
    assert {path.read_bytes() for path in before} == {b"not of this store"}
    assert {path for path in outside.rglob("*") if path.is_file()} == set(before)


# --- no store --------------------------------------------------------------------------------


def test_no_store(tmp_path: Path, photos: Path, small: Path) -> None:
    with pytest.raises(InputError, match=r"no such feature store: .*nowhere.*oodzoo extract"):
        FeatureStore(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is not a feature store: it has no manifest"):
        FeatureStore(photos)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="no such feature store"):
        FeatureStore(tmp_path / "file")
    small.rename(photos / "store")
    (photos / "run.json").touch()
    assert FeatureStore(photos).path == photos / "store"  # the folder of a run


def test_a_store_without_a_finished_model(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        writer.set_table(letters(day="ab"))
        writer.add_images()
    with pytest.raises(
        UnfinishedStoreError, match="has no finished model yet; run oodzoo extract to finish"
    ):
        FeatureStore(tmp_path)


def test_a_store_without_its_manifest(small: Path) -> None:
    (small / "manifest.json").unlink()
    with pytest.raises(InputError) as caught:
        FeatureStore(small)
    assert str(caught.value) == (
        f"the store '{small}' has lost its manifest.json; remove damaged files with "
        f"`oodzoo store check {small} --repair`, then rerun `oodzoo extract`"
    )
