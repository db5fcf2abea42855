"""Heads that other processes compute."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.evaluation.data import stored, zoo

import oodzoo
from oodzoo.combining import work
from oodzoo.core.errors import InputError
from oodzoo.extraction.engines.processes import Processes
from oodzoo.extraction.engines.task import Worker
from oodzoo.extraction.source import StoreSource
from oodzoo.store.merge import merge_stores


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
