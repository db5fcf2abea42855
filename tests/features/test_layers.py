"""Extraction of several layers of one network: one forward pass, entries of their own."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.features.data import Extract, Stamps
from tests.fixtures import draw_digits

import oodzoo
from oodzoo.features.timing import PASSES
from oodzoo.features.work import Task, cut_tasks
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.writer import PlannedShard
from oodzoo.zoo import ModelSpec, load_zoo
from oodzoo.zoo.layers import expand_layers
from oodzoo.zoo.onnx import OnnxNetwork


@pytest.fixture(scope="session")
def specs() -> list[ModelSpec]:
    """The features and three layers of a network of the embedded zoo."""
    return load_zoo("demo/resnet_contrastive@all")


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of images of each forward pass of an ONNX network, and of outputs."""
    seen: list[int] = []
    run = OnnxNetwork._run

    def count(self: OnnxNetwork, batch: Any, names: Any) -> Any:
        seen.append(len(names))
        return run(self, batch, names)

    monkeypatch.setattr(OnnxNetwork, "_run", count)
    return seen


def names(specs: list[ModelSpec]) -> list[str]:
    return [spec.name for spec in specs]


def test_layers_are_computed_in_one_forward_pass(
    digits: Path, specs: list[ModelSpec], passes: list[int], extract: Extract, tmp_path: Path
) -> None:
    extract(digits, specs, tmp_path / "store", batch_size=5)
    store = FeatureStore(tmp_path / "store")
    assert list(store.models) == sorted(names(specs))
    # features and three layers: 45 images in three domains, and passes that are timed
    assert [n for n in passes if n > 3] == [4] * (9 + PASSES)
    for spec in specs[1:]:
        stored = store.model(spec.name)
        assert stored.spec is not None
        assert (stored.spec["layer"], stored.spec["pooling"]) == (spec.layer, "mean")
    plain = store.model(specs[0].name).spec
    assert plain is not None
    assert "layer" not in plain


def test_features_equal_those_of_each_layer_alone(
    digits: Path, specs: list[ModelSpec], extract: Extract, tmp_path: Path
) -> None:
    extract(digits, specs, tmp_path / "together")
    together = FeatureStore(tmp_path / "together")
    for spec in specs:
        extract(digits, [spec], tmp_path / spec.name)
        alone = FeatureStore(tmp_path / spec.name)
        assert alone.model(spec.name).fingerprint == together.model(spec.name).fingerprint
        for domain in alone.domains:
            np.testing.assert_allclose(
                alone.features(spec.name, domain),
                together.features(spec.name, domain),
                rtol=1e-4,
                atol=1e-5,
            )


def test_a_layer_can_be_added_later(
    digits: Path,
    specs: list[ModelSpec],
    passes: list[int],
    extract: Extract,
    stamps: Stamps,
    tmp_path: Path,
) -> None:
    path = tmp_path / "store"
    first = extract(digits, specs[:2], path)
    before = stamps(path)
    passes.clear()
    again = extract(digits, specs, path)
    assert (first.shards, again.shards) == (6, 6)
    assert set(again.written) == set(names(specs[2:]))
    assert max(passes[-3:]) == 2  # only the new layers are computed
    shards = {file: stamp for file, stamp in before.items() if file.endswith(".npy")}
    assert shards.items() <= stamps(path).items()
    assert extract(digits, specs, path).shards == 0


def test_layers_of_a_network_are_in_the_same_tasks() -> None:
    models = ["a", "b@1", "c", "b@2", "b@3"]
    planned = [PlannedShard(f"s{n}", [f"image{n}"], models) for n in range(40)]
    domains = {f"image{n}": "d" for n in range(40)}
    networks = {name: name[0] for name in models}
    tasks = list(cut_tasks(planned, domains, 8, networks=networks))
    assert all({"b@1", "b@2", "b@3"} <= set(task.models) for task in tasks if "b@1" in task.models)
    done = [(model, shard) for task in tasks for model in task.models for shard in task.shards]
    assert len(done) == len(set(done)) == 5 * 40
    assert isinstance(tasks[0], Task)


def test_time_is_that_up_to_the_layer(tmp_path: Path) -> None:
    if find_spec("timm") is None:
        pytest.skip("timm is not installed")
    base = ModelSpec("vit", "timm/test_vit@blocks.0+blocks.3", pretrained=False)
    zoo = [*expand_layers(base, "this test"), ModelSpec("vit", "timm/test_vit", pretrained=False)]
    data = draw_digits(tmp_path / "digits", 2)
    store = oodzoo.extract(oodzoo.ImageDomains(data), zoo, tmp_path / "store", batch_size=2)
    first, last, whole = (store.milliseconds_per_image(spec.name) for spec in zoo)
    assert first is not None
    assert last is not None
    assert whole is not None
    assert 0 < first < last < whole
