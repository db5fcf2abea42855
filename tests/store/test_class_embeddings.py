"""The file of class embeddings: written, read, damaged, checked, merged, removed."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.joint_space import embeddings_of, joint_space, stored_space

from oodzoo.core.errors import InputError
from oodzoo.extraction.features import StoreSource
from oodzoo.store.checking import check_store
from oodzoo.store.class_embeddings import FILE, ClassEmbeddings, write_class_embeddings
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import sealed
from oodzoo.store.maintenance import merge_stores, prune_store, remove_models

SPACE = joint_space(n=8, n_domains=2)


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    return stored_space(tmp_path / "here", SPACE)


def _file(store: FeatureStore) -> Path:
    return store.path / "models" / "clip" / FILE


def _equal(one: ClassEmbeddings | None, two: ClassEmbeddings) -> None:
    assert one is not None
    np.testing.assert_array_equal(one.embeddings, two.embeddings)
    assert (one.classes, one.names, one.prompts) == (two.classes, two.names, two.prompts)
    assert (one.scale, one.bias, one.digest) == (two.scale, two.bias, two.digest)


def test_what_is_written_is_read(store: FeatureStore, tmp_path: Path) -> None:
    """A source has those of its classes; the fingerprint of the store depends on them."""
    expected, before = embeddings_of(SPACE), store.fingerprint
    _equal(StoreSource(store).class_embeddings("clip"), expected)
    assert store.class_embeddings("plain") is None
    part = expected.of(["class_2", "class_0"])
    assert part is not None
    np.testing.assert_array_equal(part.embeddings, expected.embeddings[[2, 0]])
    assert part.names == ("class_2", "class_0")
    assert part.digest != expected.digest
    assert expected.of(["class_0", "another"]) is None
    other = replace(expected, scale=87.3, bias=-12.5, names=("a", "b", "c", "d"))
    write_class_embeddings(store.path, "clip", store.model("clip").identity, other)
    _equal(store.class_embeddings("clip"), other)
    assert FeatureStore(store.path).fingerprint != before
    _file(store).unlink()
    plain = stored_space(tmp_path / "plain", SPACE, texts=False)
    assert FeatureStore(store.path).fingerprint == plain.fingerprint != before


def _altered(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """A file with other content, and the checksum of that."""

    def alter(content: bytes) -> bytes:
        document = json.loads(content)
        del document["sha256"]
        change(document)
        return sealed(document)

    return alter


def _base64(array: Any) -> str:
    return base64.b64encode(np.asarray(array, "<f4").tobytes()).decode()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content.replace(b"10.0", b"11.0"), "does not match its checksum"),
        (_altered(lambda d: d.update(schema=9)), "has the schema 9"),
        (_altered(lambda d: d.update(scale=-1.0)), "is damaged: Expected `float` > 0"),
        (_altered(lambda d: d.pop("names")), "missing required field `names`"),
        (_altered(lambda d: d.update(embeddings=_base64(np.zeros(5)))), "are damaged: cannot resh"),
        (
            _altered(lambda d: d.update(embeddings=_base64(np.full((4, 32), np.nan)))),
            "are damaged: not one vector for each class",
        ),
        (
            _altered(lambda d: d.update(classes=["class_0"] * 4)),
            "are damaged: not one vector for each class",
        ),
    ],
)
def test_damage_is_found(
    store: FeatureStore, damage: Callable[[bytes], bytes], message: str
) -> None:
    before = _file(store).read_bytes()
    after = damage(before)
    assert after != before
    _file(store).write_bytes(after)
    with pytest.raises(InputError, match=message) as caught:
        store.class_embeddings("clip")
    assert "\n" not in str(caught.value)
    assert "rerun `oodzoo extract`" in str(caught.value)
    (found,) = check_store(store.path).damage
    assert found.path == f"models/clip/{FILE}"
    check_store(store.path, repair=True)
    assert check_store(store.path).damage == ()
    opened = FeatureStore(store.path)
    assert opened.models == ("clip", "plain")
    assert opened.class_embeddings("clip") is None


def test_they_belong_to_a_model(store: FeatureStore, tmp_path: Path) -> None:
    """They are merged, pruned, removed and checked with it, and read in place only."""
    part = SPACE._replace(features={"third": SPACE.features["plain"] + 1})
    other = stored_space(tmp_path / "there", part, texts=False)
    merged = merge_stores([store.path, other.path], tmp_path / "merged")
    assert merged.models == ("clip", "plain", "third")
    _equal(merged.class_embeddings("clip"), embeddings_of(SPACE))
    prune_store(merged.path)
    _equal(merged.class_embeddings("clip"), embeddings_of(SPACE))
    remove_models(merged.path, ["clip"])
    assert not _file(merged).parent.exists()
    files = check_store(store.path).files
    shutil.move(_file(store), tmp_path / "elsewhere.json")
    assert check_store(store.path).files == files - 1
    _file(store).symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(InputError, match="is a symbolic link"):
        store.class_embeddings("clip")
    _file(store).unlink()
    write_class_embeddings(store.path, "clip", "0" * 16, embeddings_of(SPACE))
    assert store.class_embeddings("clip") is None  # of another model of this name
