"""Upgrading stores of the first form."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.features.data import Extract, Tree, Zoo, one_of
from tests.store.contents import contents, first_form, size

import oodzoo
from oodzoo._io import file_digest, locked
from oodzoo.errors import InputError
from oodzoo.features.importing import import_features
from oodzoo.store.checking import check_store
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.prune import prune_store
from oodzoo.store.sync import Changes, sync_store
from oodzoo.store.upgrade import Upgrade, upgrade_store

EXPECTED = Path(__file__).parent / "first_form" / "expected.npz"
MODELS = ("cnn_photos", "mlp_glyphs_augmented", "separable_shapes")
SECOND_FORM = {".lock", "manifest.json", "images", "models", "samples"}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return first_form(tmp_path)[0]


@pytest.fixture
def table(old: Path) -> Path:
    """The table of the images of the store."""
    return old.parent / "first_data" / "table.csv"


def require_expected(store: Path) -> None:
    """Compare with what the reader of the first form has read, which had rows in another order."""
    opened = FeatureStore(store)
    with np.load(EXPECTED) as expected:
        assert set(opened.domains) == {key[6:] for key in expected if key.startswith("paths|")}
        for key in expected:
            what, domain, *output = key.split("|")
            order = np.argsort(expected[f"paths|{domain}"])
            if what == "paths":
                assert opened.paths(domain) == expected[key][order].tolist()
            elif what == "labels":
                np.testing.assert_array_equal(opened.labels(domain), expected[key][order])
            else:
                found = opened.gather(what, opened.images(domain), output[0])
                np.testing.assert_array_equal(found, expected[key][order])


def shards(store: Path) -> dict[tuple[str, str, int], int]:
    """Return the inodes of the feature files by model, checksum and size."""
    model = -2 if (store / "models").is_dir() else -3
    return {
        (file.parts[model], file_digest(file), file.stat().st_size): file.stat().st_ino
        for file in store.rglob("*.npy")
    }


def test_features_are_those_of_before(old: Path) -> None:
    before, facts = contents(old), FeatureStore(old)
    local = {name: facts.local(name) for name in facts.models}
    assert upgrade_store(old) == Upgrade(upgraded=True)
    assert contents(old) == before
    require_expected(old)
    after = FeatureStore(old)
    assert not after.is_first_form
    assert after.data_fingerprint == facts.data_fingerprint
    for name in after.models:
        assert after.local(name) == local[name] != {}
        ours, theirs = after.model(name), facts.model(name)
        assert (ours.spec, ours.source, ours.identity) == (
            theirs.spec,
            theirs.source,
            theirs.identity,
        )
    found = check_store(old)
    assert (found.damage, found.unfinished) == ((), ("cnn_photos",))


def test_no_file_of_the_first_form_is_left(old: Path) -> None:
    (old / "cache/moments").mkdir(parents=True)
    (old / "cache/moments/x.npz").write_bytes(b"x")
    upgrade_store(old)
    assert {path.name for path in old.iterdir()} == SECOND_FORM | {"cache"}
    assert {path.name for path in (old / "models").iterdir()} == set(MODELS)
    assert not [path for path in old.rglob("*") if "shard-" in path.name]


def test_features_are_linked(old: Path) -> None:
    before = shards(old)
    upgrade_store(old)
    assert shards(old) == before


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_features_are_copied_where_links_are_not_possible(
    old: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number), str(source))

    before = shards(old)
    monkeypatch.setattr(os, "link", link)
    upgrade_store(old)
    monkeypatch.undo()
    after = shards(old)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    require_expected(old)


def test_the_second_time_there_is_nothing_to_do(old: Path, tree: Tree) -> None:
    upgrade_store(old)
    before = tree(old)
    assert upgrade_store(old) == Upgrade(upgraded=False)
    assert tree(old) == before


def test_a_store_of_the_second_form(small: Path, tree: Tree) -> None:
    before = tree(small)
    assert upgrade_store(small) == Upgrade(upgraded=False)
    assert tree(small) == before


def test_an_unfinished_model_is_finished_later(
    old: Path, table: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    """One domain of cnn_photos is there, the other is not."""
    upgrade_store(old)
    kept = {file: file.stat().st_mtime_ns for file in old.rglob("*.npy")}
    assert "cnn_photos" not in FeatureStore(old).models
    done = extract(table, zoo(*MODELS), old)
    assert (done.shards, done.failed) == (1, {})
    assert FeatureStore(old).models == MODELS
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    require_expected(old)
    extract(table, zoo(*MODELS), tmp_path / "fresh")
    ours, fresh = FeatureStore(old), FeatureStore(tmp_path / "fresh")
    for domain in fresh.domains:
        assert ours.paths(domain) == fresh.paths(domain)
        np.testing.assert_allclose(
            ours.features("cnn_photos", domain), fresh.features("cnn_photos", domain), atol=1e-4
        )


def test_a_store_without_any_finished_model(
    old: Path, table: Path, zoo: Zoo, extract: Extract
) -> None:
    """Killed before its first manifest: every shard is kept."""
    (old / "manifest.json").unlink()
    assert upgrade_store(old) == Upgrade(upgraded=True)
    with pytest.raises(InputError, match="no finished model"):
        FeatureStore(old)
    assert extract(table, zoo(*MODELS), old).shards == 1
    require_expected(old)


def test_a_damaged_shard_is_left_out(old: Path, table: Path, zoo: Zoo, extract: Extract) -> None:
    name = "separable_shapes/%C3%84 b/shard-00000.logits.npy"
    content = bytearray((old / name).read_bytes())
    content[-3] ^= 1
    (old / name).write_bytes(content)
    assert upgrade_store(old) == Upgrade(upgraded=True, damaged=(name,))
    assert FeatureStore(old).models == ("mlp_glyphs_augmented",)
    assert check_store(old).unfinished == ("cnn_photos", "separable_shapes")
    assert extract(table, zoo("separable_shapes"), old).shards == 1
    assert FeatureStore(old).models == ("mlp_glyphs_augmented", "separable_shapes")
    domain = "Ä b"
    with np.load(EXPECTED) as expected:
        order = np.argsort(expected[f"paths|{domain}"])
        np.testing.assert_allclose(
            FeatureStore(old).logits("separable_shapes", domain),
            expected[f"separable_shapes|{domain}|logits"][order],
            atol=1e-4,
        )


@pytest.mark.parametrize("output", ["features", "logits"])
def test_a_missing_shard_is_left_out(
    old: Path, table: Path, zoo: Zoo, extract: Extract, output: str
) -> None:
    name = f"separable_shapes/%2E%2E/shard-00001.{output}.npy"
    (old / name).unlink()
    assert upgrade_store(old) == Upgrade(upgraded=True, damaged=(name,))
    assert FeatureStore(old).models == ("mlp_glyphs_augmented",)
    assert extract(table, zoo("separable_shapes"), old).shards == 1
    assert len(FeatureStore(old).models) == 2


def test_images_change_after_an_upgrade(old: Path, table: Path) -> None:
    upgrade_store(old)
    assert sync_store(old, table) == Changes()
    rows = table.read_text().splitlines()
    table.write_text("\n".join([*rows[:5], *rows[6:]]) + "\n")
    assert sync_store(old, table) == Changes(removed=1)
    assert prune_store(old).images == 2  # the other one was replaced in the first form
    assert FeatureStore(old).n_images == 23


def test_the_ranking_is_that_of_before(old: Path) -> None:
    before = oodzoo.rank(old)
    shutil.rmtree(old / "cache")
    upgrade_store(old)
    assert oodzoo.rank(old).rows == before.rows


# --- imported features -----------------------------------------------------------------------


def write_imported(store: Path) -> dict[str, Any]:
    """Write a store of imported features as the first form had it; return its arrays."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    domains, records = [], []
    for domain, n in (("day", 5), ("night", 4)):
        paths = [f"{domain}/{row}.png" for row in range(n)]
        labels = [("cat", "dog")[row % 2] for row in range(n)]
        domains.append(
            {
                "name": domain,
                "path": paths,
                "label": labels,
                "group": [None] * n,
                "sha256": [None] * n,
                "shards": [n],
            }
        )
        arrays[domain] = rng.normal(size=(n, 3)).astype(np.float32)
        file = store / "net" / domain / "shard-00000.features.npy"
        file.parent.mkdir(parents=True)
        np.save(file, arrays[domain])
        records.append((domain, [{"features": file_digest(file), "rows": n}]))
    model = {
        "source": "import",
        "fingerprint": hashlib.sha256(b"net").hexdigest(),
        "feature_dim": 3,
        "n_logits": None,
        "parameters": None,
        "pretraining": None,
        "precision": "float32",
        "dtype": "float32",
        "preprocessing": None,
    }
    documents: dict[str, Any] = {
        "images.json": {"schema": 1, "domains": domains},
        "net/model.json": model,
        "manifest.json": {
            "schema": 1,
            "data": {
                "classes": ["cat", "dog"],
                "images": {"day": 5, "night": 4},
                "fingerprint": "",
                "index": "",
                "skipped": [],
            },
            "models": {"net": model | {"shards": dict(records)}},
        },
        "local.json": {"models": {}},
    }
    for name, document in documents.items():
        (store / name).write_text(json.dumps(document))
    return arrays


def test_imported_features(tmp_path: Path) -> None:
    arrays = write_imported(tmp_path / "s")
    before = contents(tmp_path / "s")
    assert upgrade_store(tmp_path / "s") == Upgrade(upgraded=True)
    assert contents(tmp_path / "s") == before
    opened = FeatureStore(tmp_path / "s")
    for domain, array in arrays.items():
        np.testing.assert_array_equal(opened.features("net", domain), array)
    # a second model of the same rows can be imported
    columns = {
        "paths": [path for domain in opened.domains for path in opened.paths(domain)],
        "domains": ["day"] * 5 + ["night"] * 4,
        "labels": ["cat", "dog", "cat", "dog", "cat", "cat", "dog", "cat", "dog"],
    }
    np.savez(tmp_path / "more.npz", more=np.ones((9, 2), np.float32), **columns)  # type: ignore[arg-type]
    assert import_features([tmp_path / "more.npz"], tmp_path / "s").models == ("more", "net")


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["models", "samples", "images"])
def test_a_model_with_a_reserved_name(old: Path, tree: Tree, name: str) -> None:
    (old / "separable_shapes").rename(old / name)
    document = json.loads((old / "manifest.json").read_text())
    document["models"][name] = document["models"].pop("separable_shapes")
    (old / "manifest.json").write_text(json.dumps(document))
    before = tree(old)
    with pytest.raises(InputError, match=rf"contains '{name}', a name that the second form uses"):
        upgrade_store(old)
    (old / ".lock").unlink()
    assert tree(old) == before


def test_an_interrupted_upgrade_is_repeated(old: Path) -> None:
    """Files of the second form, without its manifest, are made anew."""
    for folder in ("images", "models/mlp_glyphs_augmented", "samples"):
        (old / folder).mkdir(parents=True)
        (old / folder / "00000.json").write_text("half")
    (old / ".upgrading").touch()
    require_expected(old)
    upgrade_store(old)
    assert not (old / ".upgrading").exists()
    require_expected(old)
    assert check_store(old).damage == ()


def test_folders_of_others_stay(tmp_path: Path) -> None:
    """A folder of photos with an unrelated images.json is not a store."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.jpg").write_bytes(b"photo")
    (tmp_path / "images.json").write_text('{"a.jpg": "cat"}')
    with pytest.raises(InputError, match="has the schema None"):
        upgrade_store(tmp_path)
    assert (tmp_path / "images/a.jpg").read_bytes() == b"photo"


def test_what_is_no_store(tmp_path: Path, photos: Path) -> None:
    with pytest.raises(InputError, match="no such feature store"):
        upgrade_store(tmp_path / "x")
    with pytest.raises(InputError, match="neither empty nor a feature store"):
        upgrade_store(photos)


def test_another_writer(old: Path, tree: Tree) -> None:
    before = tree(old)
    with locked(old), pytest.raises(InputError, match="is being written by another process"):
        upgrade_store(old)
    assert {name: digest for name, digest in tree(old).items() if name != ".lock"} == before


def test_links_are_not_followed(old: Path, tmp_path: Path) -> None:
    file = old / "separable_shapes/%2E%2E/shard-00000.features.npy"
    file.rename(tmp_path / "outside.npy")
    file.symlink_to(tmp_path / "outside.npy")
    with pytest.raises(InputError, match="is a symbolic link"):
        upgrade_store(old)
    assert (tmp_path / "outside.npy").is_file()
    assert FeatureStore(old).is_first_form


def test_the_size_does_not_double(old: Path) -> None:
    before = sum(file.stat().st_size for file in old.rglob("*.npy"))
    upgrade_store(old)
    assert sum(file.stat().st_size for file in old.rglob("*.npy")) == before
    assert size(old / "models") > before
    assert one_of(old.parent, "first_data").is_file()  # images are not touched
