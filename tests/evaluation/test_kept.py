"""What a store keeps of an evaluation, and heads that other processes put there.

A result does not show whether it was computed or read, so that private functions are replaced.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import stored, zoo
from tests.events.heard import Heard
from tests.joint_space import embeddings_of, joint_space, stored_space

import oodzoo
from oodzoo.combining.evaluation import tasks
from oodzoo.core.errors import InputError
from oodzoo.events import Listener
from oodzoo.extraction.engines import Processes, Worker
from oodzoo.extraction.features import StoreSource
from oodzoo.store.class_embeddings import write_class_embeddings
from oodzoo.store.maintenance import merge_stores
from oodzoo.store.writer import update_local

OPTIONS: dict[str, Any] = {"top_k": 2, "baselines": False, "with_target": True}


def judged(source: StoreSource, **more: Any) -> list[str]:
    """The held-out domains that are evaluated, not read."""
    heard = Heard()
    oodzoo.evaluate(source, **OPTIONS | more, listener=heard)
    lines = heard.messages()
    return sorted({line.split("'")[1] for line in lines if line.startswith("held-out domain")})


def test_an_evaluation_that_was_stopped_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = zoo(n=21, n_domains=3)
    source = stored(tmp_path, *data)

    class Stop(Listener):
        def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
            if facts.get("message", "").startswith("held-out domain 'd1': training"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        oodzoo.evaluate(source, **OPTIONS, listener=Stop())
    assert judged(source) == ["d1", "d2"]
    for name in ("_metrics", "PATHS"):  # what computes curves
        monkeypatch.delattr(f"oodzoo.combining.evaluation.learning_curve.{name}")
    assert judged(source) == []
    again = oodzoo.evaluate(source, **OPTIONS)
    monkeypatch.undo()
    assert again == oodzoo.evaluate(stored(tmp_path / "fresh", *data), **OPTIONS)
    before = source.store.paths
    with monkeypatch.context() as patch:  # images that have moved have their new names
        patch.setattr(source.store, "paths", lambda d: [f"moved/{path}" for path in before(d)])
        moved = oodzoo.evaluate(source, **OPTIONS)
    for test, found in again.diagnosis.items():
        assert {each.path for each in found.mistakes} <= set(before(test))
        expected = [f"moved/{each.path}" for each in found.mistakes]
        assert [each.path for each in moved.diagnosis[test].mistakes] == expected
    every = ["d0", "d1", "d2"]
    assert judged(source, max_models=1) == every
    update_local(source.store.path, "best", {"milliseconds_per_image": 2.0})
    assert judged(source) == every  # the cost matters
    features, y, domains = data
    other = stored(tmp_path / "other", features | {"poor": features["poor"] + 1 / 3}, y, domains)
    (source.store.path / "cache").rename(other.store.path / "cache")
    assert judged(other) == every


def test_texts(tmp_path: Path) -> None:
    """What was kept without texts, or with other texts, does not count."""
    space = joint_space()
    codes = np.unique(space.y, return_inverse=True)[1]
    first, worse = space.features["clip"].copy(), space.features["clip"].copy()
    first[:3] *= -1
    rows = space.domains != "d0"
    worse[rows] = np.random.default_rng(1).permuted(worse[rows], axis=0)
    worse[~rows] = space.texts[codes[~rows]]  # perfect in d0
    space = space._replace(features={"clip": first, "other": worse})
    store = stored_space(tmp_path, space, texts=False)
    options: dict[str, Any] = {"top_k": 1, "baselines": False}
    assert "zero_shot" not in oodzoo.evaluate(store, **options).baselines
    rolled = space._replace(texts=np.roll(space.texts, 1, axis=0))
    for texts, good in ((rolled, False), (space, True)):
        for model in store.models:
            identity = store.model(model).identity
            write_class_embeddings(store.path, model, identity, embeddings_of(texts))
        result = oodzoo.evaluate(oodzoo.FeatureStore(store.path), **options)
        row = result.baselines["zero_shot"]
        assert (row.average > 60) == good
    # which is best in d0 is not known when d0 is the held-out domain
    assert {cell.models for cell in row.cells.values()} == {("clip",)}
    assert row.cells["d0"].accuracy < 100


def test_machines_must_see_the_same_store(tmp_path: Path) -> None:
    source = stored(tmp_path / "a", *zoo(n=6))
    other = stored(tmp_path / "b", *zoo(n=6, seed=1))
    engine = Processes(["cpu", "cpu"])
    import msgspec

    def shared(store: Path) -> bytes:
        job = tasks.describe_store(source, engine)
        return msgspec.json.encode(msgspec.structs.replace(job, store=str(store)))

    assert tasks.missing_here(shared(source.store.path)) == []
    (gone,) = tasks.missing_here(shared(tmp_path / "nowhere"))
    assert gone.startswith("cannot see the store")
    (changed,) = tasks.missing_here(shared(other.store.path))
    assert changed.startswith("has another store at")
    task = msgspec.json.encode(tasks.HeadsTask("best"))
    with pytest.raises(InputError, match="has changed since the work began"):
        tasks.run_task(shared(other.store.path), task, Worker())


def test_one_failed_task_is_told_when_the_others_are_done(tmp_path: Path) -> None:
    source = stored(tmp_path, *zoo(n=9))
    name = source.models[0]
    for file in (source.store.path / "models" / name).glob("*.npy"):
        file.write_bytes(file.read_bytes()[:-7])
    broken = StoreSource(oodzoo.FeatureStore(source.store.path))
    with pytest.raises(InputError, match=f"the shard .*{name}.* is damaged"):
        tasks.compute_heads(broken, Processes(["cpu"]))


def test_a_store_at_a_url_needs_processes_that_share_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path / "cache"))
    local = stored(tmp_path, *zoo(n=9)).store
    url = f"memory://{tmp_path.name}/x"
    merge_stores([local.path, local.path], url)
    source = StoreSource(oodzoo.FeatureStore(url))
    assert tasks.describe_store(source, Processes(["cpu"])).store == url
    ray = Processes(["cpu"])
    ray.name = "ray"
    with pytest.raises(InputError, match=f"the engine ray .* do not share for a store at '{url}'"):
        tasks.describe_store(source, ray)
