"""A store: its files, as documented, and what is read from them."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.features.data import Extract, Tree, Zoo
from tests.store.data import (
    compute,
    fill,
    image,
    letters,
    literal,
    record,
    require_right,
    unlabelled,
    values,
)

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.listing import Sample
from oodzoo.store.feature_store import FeatureStore, UnfinishedStoreError
from oodzoo.store.format import (
    IDENTITY,
    Manifest,
    mistaken_folder,
    part_of_run,
    read_local,
    repair_advice,
)
from oodzoo.store.shards import checksum
from oodzoo.store.table import SampleTable, TableDomain, add_table, read_table, require_store
from oodzoo.store.writer import update_local, writing
from oodzoo.tasks import task_of


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def unsealed(content: bytes) -> Any:
    """A document without its checksum, which is right."""
    document = json.loads(content)
    stated = document.pop("sha256")
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert stated == sha256(text.encode())
    return document


def test_the_files(tmp_path: Path) -> None:
    table = letters(day="abc", night="d").replacing(unlabelled("u", "e"))
    fill(tmp_path, table, "m", undecodable={image("b")})
    found = {
        path.relative_to(tmp_path).as_posix(): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    samples, index = found.pop("samples/00000.json"), found.pop("images/00000.json")
    shards = [[image(name) for name in names] for names in ("abc", "d", "e")]
    columns: list[dict[str, Any]] = [
        {"path": [f"day/{name}.png" for name in "abc"], "label": ["odd", "even", "odd"]},
        {"path": ["night/d.png"], "label": ["even"]},
        {"path": ["u/e.png"], "label": None},
    ]
    domains = [
        {"name": name, **column, "group": [None] * len(images), "image": images}
        for name, column, images in zip(("day", "night", "u"), columns, shards, strict=True)
    ]
    assert json.loads(samples) == {"schema": 2, "domains": domains}
    assert json.loads(index) == {"schema": 2, "table": None, "shards": shards}
    manifest = unsealed(found.pop("manifest.json"))
    model = manifest["models"].pop("m")
    assert manifest == {
        "schema": 2,
        "table": "00000",
        "samples": sha256(samples),
        "segments": {"00000": sha256(index)},
        "models": {},
    }
    listed = found.pop(f"models/m/shards.{model['shards'][:16]}.json")
    assert model.pop("shards") == sha256(listed)
    assert model.pop("unreadable") == {image("b"): "cannot be decoded"}
    assert {key: model[key] for key in ("feature_dim", "n_logits", "dtype")} == {
        "feature_dim": 3,
        "n_logits": 2,
        "dtype": "float32",
    }
    assert json.loads(listed)["schema"] == 2
    for number, images in enumerate(shards):
        shard = f"00000-{number:05d}"
        written = unsealed(found.pop(f"models/m/{shard}.json"))
        present = [each for each in images if each != image("b")]
        expected: dict[str, Any] = {
            "shard": shard,
            "model": FeatureStore(tmp_path).model("m").identity,
            "images": sha256("\n".join(images).encode())[:16],
        }
        expected |= {"absent": {"1": "cannot be decoded"}} if number == 0 else {}
        for output in ("features", "logits"):
            content = found.pop(f"models/m/{written[output]['file']}")
            name = f"{shard}.{output}.{sha256(content)[:16]}.npy"
            expected[output] = {"file": name, "sha256": sha256(content), "xxh3": checksum(content)}
            rows = np.load(tmp_path / "models/m" / name)
            np.testing.assert_array_equal(rows, values("m", present, output))
        assert written == expected
    assert set(found) == {".lock", "models/m/.lock", "models/m/model.json"}


def test_readers(made: Path, digits: Path) -> None:
    store, dataset = FeatureStore(made), ImageDomains(digits)
    assert store.domains == dataset.domains == ("chalk", "marker", "paper")
    assert store.classes == dataset.classes == ("0", "1", "2")
    assert store.models == ("mlp_glyphs_augmented", "separable_shapes")
    assert store.n_images == len(dataset) == 45
    assert (store.unlabelled, store.skipped) == ((), {})
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
        assert store.features(name, "chalk").shape == (15, model.feature_dim)
        assert store.logits(name, "chalk").shape == (15, model.n_logits)
        assert (store.milliseconds_per_image(name) or 0) > 0
    with pytest.raises(InputError, match="has no model 'x'; it has mlp_glyphs_augmented, sep"):
        store.model("x")
    for read in (store.paths, store.images, store.labels, store.groups):
        with pytest.raises(InputError, match="unknown domain 'x'; expected one of 'chalk', 'mark"):
            read("x")


def test_many_shards_in_a_domain(tmp_path: Path) -> None:
    paths = [f"{number:03}" for number in range(520)]
    images = [image(path) for path in paths]
    day = TableDomain("day", paths, ["a", "b"] * 260, [None] * 520, images)
    store = FeatureStore(fill(tmp_path, SampleTable([day, *letters(night="c").domains]), "m"))
    sizes = [len(np.load(path)) for path, _ in store.shard_files() if "features" in path.name]
    assert sizes == [256, 256, 8, 1]
    blocks = list(store.blocks("m", "day", rows=300))
    assert [len(block) for block in blocks] == [300, 220]
    np.testing.assert_array_equal(np.concatenate(blocks), values("m", images))
    store.features("m", "night")[:] = 7  # a copy: a caller may change what it got
    np.testing.assert_array_equal(store.features("m", "night"), values("m", [image("c")]))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shards: two domains, and a second extraction with one more image in each."""
    store = tmp_path_factory.mktemp("rows") / "store"
    fill(store, letters(day="bcd", night="fgh"), "m", undecodable=[image("c")])
    return fill(store, letters(day="abcd", night="efgh"), "m", undecodable=[image("c")])


@given(st.lists(st.sampled_from("abdefgh"), max_size=30), st.sampled_from(["features", "logits"]))
def test_any_rows_in_any_order(filled: Path, names: str, output: str) -> None:
    images = [image(name) for name in names]
    found = FeatureStore(filled).gather("m", images, output)
    assert found.dtype == np.float32
    by_hand = literal(filled, "m", output)
    width = {"features": 3, "logits": 2}[output]
    expected = np.array([by_hand[identity] for identity in images], np.float32)
    np.testing.assert_array_equal(found, expected.reshape(-1, width))
    np.testing.assert_array_equal(found, values("m", images, output).reshape(-1, width))


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
    for read in (store.features, store.checksums, lambda *each: list(store.blocks(*each))):
        with pytest.raises(InputError, match=r"features of 'target/x.png' \('target'\) with mo"):
            read("m2", "target")
    with pytest.raises(InputError, match=rf"no features of '{image('?')}' .*with model 'm1'"):
        store.gather("m1", [image("a"), image("?")], "features")
    fill(small, letters(day="abcdej", night="fghi"), "m1", "m2")  # it is kept
    store = require_right(small)
    assert store.unlabelled == ("target",)
    assert store.has_features("m1", "target")
    assert store.paths("day")[-1] == "day/j.png"


def test_what_is_no_store(small: Path, tmp_path: Path, photos: Path) -> None:
    require_store(small)
    with writing(tmp_path / "new") as writer:
        writer.set_table(letters(day="ab"))
        writer.add_images()
    with pytest.raises(UnfinishedStoreError, match="no finished model yet; run oodzoo extract to"):
        FeatureStore(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for path, message, other in (
        ("nowhere", "no such feature store: .*oodzoo extract", "no such feature store"),
        ("file", "no such feature store", "no such feature store"),
        ("empty", "is not a feature store: it has no man", "is not a feature store: it has no man"),
        (photos, "is not a feature store: it has no manif", "is neither empty nor a feature store"),
    ):
        with pytest.raises(InputError, match=message):
            FeatureStore(tmp_path / path)
        with pytest.raises(InputError, match=other):
            require_store(tmp_path / path)
    small.rename(photos / "store")
    (photos / "run.json").touch()
    assert FeatureStore(photos).path == photos / "store"  # the folder of a run
    for name in ("my store", "it's; rm -rf ~"):
        command = repair_advice(Path(name)).split("`")[1]
        assert shlex.split(command) == ["oodzoo", "store", "check", name, "--repair"]


def test_the_folder_of_a_run_and_its_parts(tmp_path: Path) -> None:
    run = tmp_path / "job"
    parts = {"store": "manifest.json", "model": "predictor.json"}
    for part, name in parts.items():
        (run / part).mkdir(parents=True)
        assert part_of_run(run, part) == run  # not the folder of a run
        (run / part / name).touch()
    store, model = str(run / "store"), str(run / "model")
    meant = f"it is a predictor; did you mean {store!r}?"
    assert mistaken_folder(run / "model", "store") == meant
    meant = f"it is a feature store; did you mean {model!r}?"
    assert mistaken_folder(run / "store", "model") == meant
    assert mistaken_folder(run, "store") == ""
    (run / "run.json").touch()
    for part, name in parts.items():
        assert part_of_run(run, part) == part_of_run(run / part, part) == run / part
        (run / name).touch()
        assert part_of_run(run, part) == run
        (run / name).unlink()
    (run / "model/predictor.json").unlink()
    assert mistaken_folder(run / "store", "model").startswith(
        "it is a feature store; make a predictor of it with `oodzoo fit "
    )


def test_the_identity_of_a_model_is_what_determines_its_features() -> None:
    known = record()
    other: dict[str, Any] = {
        "fingerprint": "g",
        "feature_dim": 4,
        "n_logits": None,
        "precision": "float16",
        "dtype": "float16",
        "preprocessing": {"mean": [0.0]},
    }
    assert set(other) == set(IDENTITY)
    found = {record(**{key: value}).identity for key, value in other.items()}
    assert len(found | {known.identity}) == 7
    rest = record(source="x", parameters=9, pretraining="y", licence="z", versions={"a": "1"})
    assert rest.identity == known.identity
    long = record(source="onnx/" + 99 * "x", feature_dim=1280)
    assert repr(long.stored("m")).startswith("StoredModel('m': 1,280 features, source 'onnx/xxx")
    assert len(repr(long.stored("m" * 99))) < 200
    one, two = ({image("a"): "truncated"}, {image("b"): "empty", image("a"): "truncated"})
    both = Manifest(models={"m": known.stored("m", "", one), "n": known.stored("n", "", two)})
    assert both.skipped == two


def test_facts_are_added_to_those_that_are_there(small: Path, tmp_path: Path) -> None:
    assert read_local(small, "m1") == {}
    before = FeatureStore(small).fingerprint
    update_local(small, "m1", {"seconds": 1.5, "images": 9, "of a later version": 1})
    update_local(small, "m1", {"images": 10, "milliseconds_per_image": 150.0})
    expected = {"seconds": 1.5, "images": 10, "milliseconds_per_image": 150.0}
    found = FeatureStore(small)
    assert read_local(small, "m1") == found.local("m1") == expected
    assert [found.milliseconds_per_image(name) for name in ("m1", "m2")] == [150.0, None]
    assert found.fingerprint == before
    outside = (small / "models/m1/local.json").rename(tmp_path / "outside.json")
    content = outside.read_text()
    (small / "models/m1/local.json").symlink_to(outside)
    assert read_local(small, "m1") == {}
    with pytest.raises(InputError, match="is a symbolic link"):
        update_local(small, "m1", {"seconds": 4})
    assert outside.read_text() == content


# the table of samples

NUMBERS = task_of("regression", ("age", "height"))
NAMES = ["a/b", "..", ".tmp-x", "höhle", "ho\u0308hle", "Day", "day", "x" * 300, "models", "50%"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def test_every_column_is_in_the_fingerprint() -> None:
    table = letters(day="ab", night="c")
    day = table.domain("day")
    changes: list[dict[str, Any]] = [
        {"name": "DAY"},
        {"paths": ["day/a.png", "x"]},
        {"labels": ["even", "even"]},
        {"groups": ["g", None]},
        {"images": day.images[::-1]},
    ]
    tables = [SampleTable([replace(day, **c), table.domain("night")]) for c in changes]
    tasks = [NUMBERS, task_of("regression", ("age", "size"))]
    tables += [replace(table, task=task) for task in tasks]
    assert len({t.fingerprint for t in [table, *tables]}) == 8
    assert table.replacing(unlabelled("u", "x")).fingerprint == table.fingerprint


@given(
    st.lists(
        st.tuples(TEXT | st.sampled_from(NAMES), TEXT, TEXT, st.none() | TEXT),
        unique_by=lambda row: row[:2],
    ),
    st.booleans(),
)
def test_any_table_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, str, str | None]],
    numbers: bool,
) -> None:
    """Tables are numbered and never replaced."""
    store = tmp_path_factory.mktemp("store")
    table = SampleTable.of_samples(
        (Sample(path, domain, "1.5 2.0" if numbers else label, group), image(path))
        for domain, path, label, group in rows
    ).replacing(unlabelled("without labels", "ab"))
    if numbers:
        table = replace(table, task=NUMBERS)
    assert add_table(store, None, table) == "00000"
    assert add_table(store, None, letters(day="a")) is None
    assert read_table(store, "00000") == table
    assert add_table(store, "00000", letters(day="a")) == "00001"
    assert add_table(store, "00009", table) == "00010"
    assert [read_table(store, name) for name in ("00000", "00001")] == [table, letters(day="a")]
    assert {path.relative_to(store).parts[0] for path in store.rglob("*")} == {"samples"}
