"""Heads that other processes compute."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tests.evaluation.data import stored, zoo

import oodzoo
from oodzoo.combining import work
from oodzoo.combining.predictions import model_predictions
from oodzoo.core.errors import InputError
from oodzoo.extraction.engines.processes import Processes
from oodzoo.extraction.engines.task import Worker
from oodzoo.extraction.source import ArraySource, StoreSource
from oodzoo.store.merge import merge_stores


def test_heads_are_those_of_one_process(tmp_path: Path) -> None:
    data = zoo(n=12, n_domains=3)
    elsewhere, here = stored(tmp_path / "elsewhere", *data), stored(tmp_path / "here", *data)
    steps: list[tuple[int, int]] = []
    work.compute_heads(elsewhere, Processes(["cpu", "cpu"]), lambda *step: steps.append(step))
    n = len(elsewhere.models)
    assert steps == [(done, n) for done in range(1, n + 1)]
    files = sorted((elsewhere.store.path / "cache" / "heads").glob("*.npz"))
    assert files
    before = [file.stat().st_mtime_ns for file in files]
    for model in elsewhere.models:
        (_, found), (_, expected) = (model_predictions(s, model) for s in (elsewhere, here))
        for head, predictions in expected.items():
            for test, wanted in predictions.items():
                assert found[head][test].setting == wanted.setting
                for a, b in zip(found[head][test].out_of_fold, wanted.out_of_fold, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    assert [file.stat().st_mtime_ns for file in files] == before  # read, not computed again


def test_only_a_store_can_be_shared() -> None:
    source = ArraySource(*zoo(n=6))
    with pytest.raises(InputError, match="the engine processes needs a feature store, not arrays"):
        work.compute_heads(source, Processes(["cpu", "cpu"]))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    source = stored(tmp_path, *zoo(n=6))
    source.store.path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be written; leave the engine out"):
        work.compute_heads(source, Processes(["cpu", "cpu"]))


def test_machines_must_see_the_same_store(tmp_path: Path) -> None:
    source = stored(tmp_path / "a", *zoo(n=6))
    other = stored(tmp_path / "b", *zoo(n=6, seed=1))
    engine = Processes(["cpu", "cpu"])
    import msgspec

    def shared(store: Path) -> bytes:
        job = work.describe_store(source, engine)
        return msgspec.json.encode(msgspec.structs.replace(job, store=str(store)))

    assert work.missing_here(shared(source.store.path)) == []
    (gone,) = work.missing_here(shared(tmp_path / "nowhere"))
    assert gone.startswith("cannot see the store")
    (changed,) = work.missing_here(shared(other.store.path))
    assert changed.startswith("has another store at")
    with pytest.raises(InputError, match="has changed since the work began"):
        work.run_task(shared(other.store.path), b"best", Worker())


def test_one_failed_task_is_told_when_the_others_are_done(tmp_path: Path) -> None:
    source = stored(tmp_path, *zoo(n=9))
    name = source.models[0]
    for file in (source.store.path / "models" / name).glob("*.npy"):
        file.write_bytes(file.read_bytes()[:-7])
    broken = StoreSource(oodzoo.FeatureStore(source.store.path))
    with pytest.raises(InputError, match=f"the shard .*{name}.* is damaged"):
        work.compute_heads(broken, Processes(["cpu"]))


def test_the_device_for_arrays() -> None:
    assert work.compute_device(Worker(device="cpu")) is None
    assert work.compute_device(Worker(device="cuda:1")) == "cuda:1"


def test_a_store_at_a_url_needs_processes_that_share_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path / "cache"))
    local = stored(tmp_path, *zoo(n=9)).store
    url = f"memory://{tmp_path.name}/x"
    merge_stores([local.path, local.path], url)
    source = StoreSource(oodzoo.FeatureStore(url))
    assert work.describe_store(source, Processes(["cpu"])).store == url
    ray = Processes(["cpu"])
    ray.name = "ray"
    with pytest.raises(InputError, match=f"the engine ray .* do not share for a store at '{url}'"):
        work.describe_store(source, ray)
