"""Reading a store: complete, aligned, independent of time and place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.features.data import (
    Extract,
    MakeModel,
    Tree,
    Zoo,
    rows_of,
    write_table,
)

import oodzoo
from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import InputError
from oodzoo.features.store import SCHEMA, FeatureStore

# --- content ----------------------------------------------------------------------------------


def test_files(made: Path) -> None:
    top = {path.name for path in made.iterdir()}
    assert top == {
        ".lock", "images.json", "local.json", "manifest.json",
        "mlp_glyphs_augmented", "separable_shapes",
    }  # fmt: skip
    model = made / "separable_shapes"
    assert {path.name for path in model.iterdir()} == {"model.json", "chalk", "marker", "paper"}
    shards = {path.name for path in (model / "chalk").iterdir()}
    assert shards == {"shard-00000.features.npy", "shard-00000.logits.npy"}
    oldest_first = sorted(made.rglob("*.[jn]*"), key=lambda path: path.stat().st_mtime_ns)
    assert oldest_first[-1].name == "manifest.json"


def test_readers(made: Path, digits: Path) -> None:
    store = FeatureStore(made)
    dataset = ImageDomains(digits)
    assert store.domains == dataset.domains == ("chalk", "marker", "paper")
    assert store.classes == dataset.classes == ("0", "1", "2")
    assert store.models == ("mlp_glyphs_augmented", "separable_shapes")
    assert store.n_images == len(dataset) == 45
    assert store.skipped == {}
    for domain in store.domains:
        samples = [s for s in dataset if s.domain == domain]
        assert store.paths(domain) == [s.path for s in samples]
        assert [store.classes[at] for at in store.labels(domain)] == [s.label for s in samples]
        assert store.groups(domain) == [None] * 15
    for name in store.models:
        model = store.model(name)
        features = store.features(name, "chalk")
        assert features.shape == (15, model.feature_dim)
        assert store.logits(name, "chalk").shape == (15, model.n_logits)
        assert (store.milliseconds_per_image(name) or 0) > 0
    with pytest.raises(InputError, match="has no model 'x'; it has mlp_glyphs_augmented, sep"):
        store.model("x")
    with pytest.raises(InputError, match="unknown domain 'x'"):
        store.features("separable_shapes", "x")


def test_shards_are_read_only_memory_maps(made: Path) -> None:
    for shard in FeatureStore(made).shards("separable_shapes", "paper"):
        assert isinstance(shard, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            shard[0] = 0


def test_many_shards_in_a_domain(
    tmp_path: Path, make_model: MakeModel, extract: Extract, write_image: Callable[[Path], Path]
) -> None:
    for number in range(520):
        write_image(tmp_path / "data" / "a" / f"{number % 2}" / f"{number:03}.png")
    write_image(tmp_path / "data/b/0/1.png")
    extract(tmp_path / "data", [make_model()], tmp_path / "store")
    store = FeatureStore(tmp_path / "store")
    assert [len(part) for part in store.shards("function", "a")] == [256, 256, 8]
    colour = [Image.open(tmp_path / "data" / path).getpixel((0, 0)) for path in store.paths("a")]
    np.testing.assert_allclose(
        store.features("function", "a"), np.array(colour) / 127.5 - 1, atol=1e-6
    )


def test_a_store_without_one_of_its_files_is_not_complete(store: Path) -> None:
    assert FeatureStore(store).is_complete()
    (store / "separable_shapes/chalk/shard-00000.logits.npy").unlink()
    assert not FeatureStore(store).is_complete()


# --- time and place ---------------------------------------------------------------------------


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


ODD_DOMAINS = ["a/b", "..", "höhle 7", "日本 " * 40 + "!", "model.json", "skipped", "x.", "50%"]


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
        assert sorted(store.paths(domain)) == paths
        assert store.features("function", domain).shape == (len(paths), 3)
    assert store.is_complete()
    # nothing climbed out of the store
    assert {path.name for path in tmp_path.iterdir()} == {"data", "store"}


# --- damage and other schemas -----------------------------------------------------------------


def _rewrite(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("file", ["manifest.json", "images.json"])
@pytest.mark.parametrize(
    ("schema", "advice"),
    [
        (SCHEMA + 1, "upgrade oodzoo"),
        (SCHEMA - 1, "again into a new"),
        ("x", "again"),
        (None, "again"),
    ],
)
def test_another_schema(
    store: Path, data: Path, zoo: Zoo, extract: Extract, file: str, schema: Any, advice: str
) -> None:
    _rewrite(store / file, schema=schema)
    for attempt in (lambda: FeatureStore(store), lambda: extract(data, zoo(), store)):
        with pytest.raises(InputError, match=f"has the schema {schema!r}.*{advice}"):
            attempt()


@pytest.mark.parametrize("file", ["manifest.json", "images.json"])
@pytest.mark.parametrize("content", [b"", b'{"schema": 1', b"[]", b'{"schema": 1}', b"\xff"])
def test_damaged_json(
    store: Path, data: Path, zoo: Zoo, extract: Extract, file: str, content: bytes
) -> None:
    (store / file).write_bytes(content)
    with pytest.raises(InputError, match="is damaged") as caught:
        FeatureStore(store)
    assert "\n" not in str(caught.value)
    if (file, content) != ("manifest.json", b'{"schema": 1}'):  # which a writer can do without
        with pytest.raises(InputError, match="is damaged"):
            extract(data, zoo(), store)


def test_json_with_holes_is_damaged(store: Path) -> None:
    _rewrite(store / "manifest.json", data={"images": [1, 2]})
    with pytest.raises(InputError, match="is damaged"):
        FeatureStore(store)


def test_rows_without_labels_are_noticed(store: Path) -> None:
    """Features and labels that do not belong together are worse than none."""
    (store / "skipped/chalk").mkdir(parents=True)
    (store / "skipped/chalk/shard-00000.json").write_text('{"3": "lost"}')
    with pytest.raises(InputError, match=r"15 rows of 'chalk', images\.json lists 14 images"):
        FeatureStore(store)


def test_no_store(tmp_path: Path, photos: Path) -> None:
    with pytest.raises(InputError, match=r"no such feature store: .*nowhere.*oodzoo extract"):
        FeatureStore(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is not a feature store: it has no manifest"):
        FeatureStore(photos)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="no such feature store"):
        FeatureStore(tmp_path / "file")
