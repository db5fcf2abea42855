"""Stores of the first form are read as they are."""

from __future__ import annotations

import csv
import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.data import flip, nested, refusal

from oodzoo.errors import InputError
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.first_form import (
    first_form_files,
    folder_name,
    is_first_form,
    path_identity,
    read_all_shards,
    read_first_form,
)
from oodzoo.store.writer import writing

FIRST = Path(__file__).with_name("first_form")
DOMAINS = ("..", "Ä b")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of a store that was written by an older version."""
    return shutil.copytree(FIRST / "store", tmp_path / "old")


def rewrite(path: Path, change: Any) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


# --- content ---------------------------------------------------------------------------------


def test_reading_equals_that_of_the_older_version() -> None:
    store = FeatureStore(FIRST / "store")
    assert store.is_first_form
    assert store.models == ("mlp_glyphs_augmented", "separable_shapes")
    assert (store.domains, store.unlabelled) == (DOMAINS, ())
    assert store.classes == ("0", "1", "2")
    assert store.n_images == 24
    assert store.is_complete()
    with np.load(FIRST / "expected.npz") as expected:
        for domain in DOMAINS:
            # rows were in the order in which images were added, now they are ordered by path
            order = np.argsort(expected[f"paths|{domain}"])
            assert store.paths(domain) == expected[f"paths|{domain}"][order].tolist()
            np.testing.assert_array_equal(store.labels(domain), expected[f"labels|{domain}"][order])
            for model in store.models:
                for output, read in (("features", store.features), ("logits", store.logits)):
                    rows = expected[f"{model}|{domain}|{output}"][order]
                    np.testing.assert_array_equal(read(model, domain), rows)
                    blocks = list(store.blocks(model, domain, output, rows=5))
                    assert [len(block) for block in blocks] == [5, 5, 2]
                    np.testing.assert_array_equal(np.concatenate(blocks), rows)


def test_samples_are_those_of_the_images() -> None:
    store = FeatureStore(FIRST / "store")
    with (FIRST / "data/table.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["path"]: row for row in csv.DictReader(file)}
    assert len(rows) == 24
    for domain in DOMAINS:
        columns = (store.paths(domain), store.images(domain), store.groups(domain))
        for path, image, group in zip(*columns, strict=True):
            assert rows[path]["domain"] == domain
            assert (rows[path]["group"] or None) == group
            content = (FIRST / "data" / path).read_bytes()
            assert image == hashlib.sha256(content).hexdigest()
        labels = [store.classes[at] for at in store.labels(domain)]
        assert labels == [rows[path]["label"] for path in store.paths(domain)]


def test_an_image_that_was_repaired_is_not_skipped() -> None:
    """It has a row since its second extraction; the first one could not decode it."""
    (skipped,) = (FIRST / "store/skipped").rglob("*.json")
    assert json.loads(skipped.read_text()) == {"0": "image file is truncated"}
    index = json.loads((FIRST / "store/images.json").read_text())
    (domain,) = [d for d in index["domains"] if d["name"] == ".."]
    assert domain["path"].count(domain["path"][0]) == 2
    store = FeatureStore(FIRST / "store")
    assert store.skipped == {}
    assert store.paths("..").count(domain["path"][0]) == 1


def test_a_skipped_image_has_its_reason(old: Path) -> None:
    """Without the second extraction."""

    def shorten(manifest: Any) -> None:
        manifest["data"]["images"][".."] = 12
        for model in manifest["models"].values():
            model["shards"][".."].pop()

    rewrite(old / "manifest.json", shorten)
    store = FeatureStore(old)
    assert list(store.skipped.values()) == ["image file is truncated"]
    assert store.n_images == 23
    with np.load(FIRST / "expected.npz") as expected:
        known = dict(
            zip(expected["paths|.."], expected["separable_shapes|..|features"], strict=True)
        )
    rows = [known[path] for path in store.paths("..")]
    np.testing.assert_array_equal(store.features("separable_shapes", ".."), rows)


def test_facts_of_the_models(old: Path) -> None:
    store = FeatureStore(old)
    assert store.milliseconds_per_image("separable_shapes") == pytest.approx(1000 / 24)
    assert store.local("nothing") == {}
    for facts in ("7", '{"seconds": "long"}', '{"milliseconds_per_image": -1}', '{"images": NaN}'):
        (old / "local.json").write_text(f'{{"models": {{"separable_shapes": {facts}}}}}')
        assert store.local("separable_shapes") == {}
    (old / "local.json").write_text(nested())
    assert store.local("separable_shapes") == {}
    (old / "local.json").write_text("{not json")
    assert store.milliseconds_per_image("separable_shapes") is None
    (old / "local.json").unlink()
    assert store.local("separable_shapes") == {}


def test_an_unfinished_model_is_read_for_an_upgrade_only() -> None:
    """Its shards lack a domain."""
    assert "cnn_photos" not in FeatureStore(FIRST / "store").models
    index, models = read_all_shards(FIRST / "store")
    assert set(models) == {"cnn_photos", "mlp_glyphs_augmented", "separable_shapes"}
    shards = [shard.shard for shard in models["cnn_photos"].shards]
    assert shards == ["00000-00000", "00000-00001"]
    assert set(shards) < set(index)
    for name, model in models.items():
        for shard in model.shards:
            for file in shard.files.values():
                content = (FIRST / "store" / name / file.file).read_bytes()
                assert file.sha256 == hashlib.sha256(content).hexdigest()
                assert file.xxh3 is None


def test_images_without_digests(old: Path) -> None:
    """Imported features may have no image files: a row is then known by its path."""

    def forget(index: Any) -> None:
        for domain in index["domains"]:
            domain["sha256"] = [None] * len(domain["path"])

    before = FeatureStore(old)
    rewrite(old / "images.json", forget)
    store = FeatureStore(old)
    for domain in DOMAINS:
        assert store.paths(domain) == before.paths(domain)
        assert store.images(domain) == [path_identity(path) for path in store.paths(domain)]
        features = before.features("separable_shapes", domain)
        np.testing.assert_array_equal(store.features("separable_shapes", domain), features)
    assert len({image for domain in DOMAINS for image in store.images(domain)}) == 24


def test_images_that_were_added_without_finishing_are_left_out(old: Path) -> None:
    def grow(index: Any) -> None:
        domain = index["domains"][1]
        for key, value in (("path", "x"), ("label", "9"), ("group", None), ("sha256", "0" * 64)):
            domain[key].append(value)
        domain["shards"].append(1)

    before = FeatureStore(old)
    rewrite(old / "images.json", grow)
    store = FeatureStore(old)
    assert store.classes == ("0", "1", "2")
    for domain in DOMAINS:
        assert store.paths(domain) == before.paths(domain)
        features = before.features("separable_shapes", domain)
        np.testing.assert_array_equal(store.features("separable_shapes", domain), features)


# --- which form ------------------------------------------------------------------------------


def test_the_form_of_a_folder(old: Path, small: Path, tmp_path: Path) -> None:
    assert is_first_form(old)
    (old / "manifest.json").unlink()
    assert is_first_form(old)  # its first extraction was interrupted
    assert not is_first_form(small)
    (tmp_path / "empty").mkdir()
    assert not is_first_form(tmp_path / "empty")


def test_an_unfinished_store(old: Path) -> None:
    (old / "manifest.json").unlink()
    with pytest.raises(InputError, match="has no finished model yet"):
        FeatureStore(old)


def test_it_is_not_written_to(old: Path) -> None:
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    match = f"is read-only; .*`oodzoo store upgrade {old}`"
    with pytest.raises(InputError, match=match), writing(old):
        pass
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before


def test_its_files(old: Path) -> None:
    expected = {path for path in old.rglob("*") if path.is_file() and path.name != "manifest.json"}
    (old / "notes.txt").touch()
    (old / "separable_shapes/notes.txt").touch()
    assert set(first_form_files(old)) == expected


# --- damage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bit", [0, 8 * 64, 8 * 127, 8 * 128, -1])
def test_a_flipped_bit_of_a_shard_is_refused(old: Path, bit: int) -> None:
    path = old / "separable_shapes" / "%C3%84 b" / "shard-00000.features.npy"
    flip(path, bit % (8 * path.stat().st_size))
    store = FeatureStore(old)
    for read in (
        lambda: store.features("separable_shapes", "Ä b"),
        lambda: list(store.blocks("separable_shapes", "Ä b")),
        lambda: store.gather("separable_shapes", store.images("Ä b")[:1], "features"),
    ):
        with pytest.raises(InputError, match=r"is damaged \(its checksum is") as caught:
            read()
        assert "\n" not in str(caught.value)
    assert store.features("separable_shapes", "..").shape == (12, 96)


@pytest.mark.parametrize("file", ["manifest.json", "images.json"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"schema": 1',
        b"[]",
        b'{"schema": 1}',
        b"\xff",
        b'{"schema": 1, "data": NaN}',
        pytest.param(nested().replace(": 2", ": 1").encode(), id="nested"),
    ],
)
def test_damaged_json(old: Path, file: str, content: bytes) -> None:
    (old / file).write_bytes(content)
    with pytest.raises(InputError, match="is damaged") as caught:
        FeatureStore(old)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"models": "x"},
        {"models": {"separable_shapes": 7}},
        {"models": {"separable_shapes": {}}},
        {"data": {"images": [1, 2]}},
        {"data": {"images": 5}},
        {"data": 7},
    ],
)
def test_a_manifest_of_other_content(old: Path, change: dict[str, Any]) -> None:
    rewrite(old / "manifest.json", lambda manifest: manifest.update(change))
    with pytest.raises(InputError, match="is damaged") as caught:
        FeatureStore(old)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["manifest.json", "images.json"])
@pytest.mark.parametrize(("schema", "advice"), [(3, "upgrade oodzoo"), ("x", "upgrade|again")])
def test_another_schema(old: Path, file: str, schema: Any, advice: str) -> None:
    rewrite(old / file, lambda document: document.update(schema=schema))
    with pytest.raises(InputError, match=rf"has the schema {schema!r}.*({advice})"):
        FeatureStore(old)


def _shards(model: str, domain: str, shards: Any) -> Any:
    return lambda manifest: manifest["models"][model]["shards"].update({domain: shards})


@pytest.mark.parametrize("rows", [0, 5, -1, None, "x", [3], 1e99])
def test_rows_that_do_not_match_the_images(old: Path, rows: Any) -> None:
    """Features and labels that do not belong together are worse than none."""

    def change(manifest: Any) -> None:
        manifest["models"]["separable_shapes"]["shards"]["Ä b"][0]["rows"] = rows

    rewrite(old / "manifest.json", change)
    with pytest.raises(InputError, match="is damaged") as caught:
        FeatureStore(old)
    assert "\n" not in str(caught.value)


def test_rows_without_labels_are_noticed(old: Path) -> None:
    (old / "skipped" / "%C3%84 b").mkdir()
    (old / "skipped" / "%C3%84 b" / "shard-00000.json").write_text('{"3": "lost"}')
    with pytest.raises(InputError, match=r"12 rows of 'Ä b', images\.json lists 11 images"):
        FeatureStore(old)


@pytest.mark.parametrize("shards", [[], [{"features": "0", "rows": 6}] * 2, 7, ["x"]])
def test_other_shards_than_the_index_has(old: Path, shards: Any) -> None:
    rewrite(old / "manifest.json", _shards("separable_shapes", "Ä b", shards))
    with pytest.raises(InputError, match="is damaged"):
        FeatureStore(old)


def test_shards_of_an_unknown_domain(old: Path) -> None:
    rewrite(old / "manifest.json", _shards("separable_shapes", "x", []))
    with pytest.raises(InputError, match=r"has rows of 'x', which images\.json does not list"):
        FeatureStore(old)


@pytest.mark.parametrize("name", ["", "\ud800"])
def test_a_domain_without_a_usable_name(old: Path, name: str) -> None:
    rewrite(old / "images.json", lambda index: index["domains"][0].update(name=name))
    with pytest.raises(InputError, match="is damaged"):
        read_all_shards(old)


@pytest.mark.parametrize("key", ["path", "label", "group", "sha256", "shards"])
def test_an_index_with_a_short_column(old: Path, key: str) -> None:
    rewrite(old / "images.json", lambda index: index["domains"][0][key].pop())
    with pytest.raises(InputError, match=r"differ in length|do not add up"):
        FeatureStore(old)


@pytest.mark.parametrize("name", ["../x", "/x", ".."])
def test_a_model_elsewhere_is_refused(old: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(old / "separable_shapes", tmp_path / "x")
    rewrite(old / "manifest.json", lambda m: m["models"].update({name: m["models"].popitem()[1]}))
    with pytest.raises(InputError, match="cannot be the name of a folder"):
        FeatureStore(old)


@pytest.mark.parametrize("file", ["manifest.json", "images.json"])
def test_any_flipped_bit_is_harmless_or_one_line(old: Path, file: str) -> None:
    """The documents of the first form had no checksums; features are still verified."""
    path = old / file
    content = path.read_bytes()
    for bit in random.Random(0).sample(range(8 * len(content)), 500):
        path.write_bytes(content)
        flip(path, bit)
        assert "\n" not in refusal(lambda: _read_all(old))


def _read_all(path: Path) -> None:
    store = FeatureStore(path)
    for model in store.models:
        for domain in store.domains:
            assert len(store.features(model, domain)) == len(store.labels(domain))


LINKS = ["manifest.json", "images.json", "skipped", "separable_shapes", "separable_shapes/*"]


@pytest.mark.parametrize("name", [*LINKS, "separable_shapes/*/shard-00000.features.npy"])
def test_links_are_not_followed(old: Path, tmp_path: Path, name: str) -> None:
    for at, path in enumerate(sorted(old.glob(name))):
        path.rename(tmp_path / f"outside{at}")
        path.symlink_to(tmp_path / f"outside{at}")
    for domain in DOMAINS:
        with pytest.raises(InputError, match="is a symbolic link"):
            FeatureStore(old).features("separable_shapes", domain)


def test_facts_behind_a_link_are_not_read(old: Path, tmp_path: Path) -> None:
    (old / "local.json").rename(tmp_path / "outside")
    (old / "local.json").symlink_to(tmp_path / "outside")
    assert FeatureStore(old).local("separable_shapes") == {}


# --- folders ---------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
ODD = ["a/b", "..", ".", "a.", ".a", "a ", "ä", "日本", "a%2Fb", "model.json", "C:", "nul\0", "\n"]


@given(NAMES | st.sampled_from(ODD))
def test_any_domain_has_a_folder_that_any_file_system_takes(name: str) -> None:
    folder = folder_name(name)
    assert folder.isascii()
    assert folder.isprintable()
    assert not set(folder) & set('/\\:*?"<>|')
    assert 0 < len(folder) < 255 - len("shard-00000.features.npy")
    assert folder[0] not in ". "
    assert folder[-1] not in ". "
    assert folder != "model.json"  # which lies beside it


@given(st.lists(NAMES | st.sampled_from(ODD) | NAMES.map(lambda n: n * 50), unique=True))
def test_domains_do_not_share_a_folder(names: list[str]) -> None:
    assert len({folder_name(name) for name in names}) == len(names)


def test_folders_are_those_of_the_older_version() -> None:
    for name in ("photo", "art painting", "Camera (2)", "v1.5", "a_b-c"):
        assert folder_name(name) == name
    assert [folder_name(name) for name in DOMAINS] == ["%2E%2E", "%C3%84 b"]
    assert {path.name for path in (FIRST / "store/separable_shapes").iterdir()} == {
        "%2E%2E",
        "%C3%84 b",
        "model.json",
    }


def test_the_manifest_in_terms_of_the_second_form() -> None:
    found = read_first_form(FIRST / "store")
    assert found.manifest.table is None
    assert found.manifest.segments == {}
    for name, model in found.manifest.models.items():
        assert model.name == name
        assert {shard.model for shard in found.shards[name]} == {model.identity}


def test_a_count_of_images_that_is_no_end_of_a_shard(tmp_path: Path) -> None:
    store = shutil.copytree(Path(__file__).parent / "first_form/store", tmp_path / "store")
    manifest = json.loads((store / "manifest.json").read_text(encoding="utf-8"))
    manifest["data"]["images"][".."] = 5
    (store / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(
        InputError, match=r"has 5 images of '\.\.', which is not the end of a shard"
    ):
        FeatureStore(store)
