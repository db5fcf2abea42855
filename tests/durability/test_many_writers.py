"""Several processes on one store: the result is that of one process."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Outcome
from tests.killing import STEP, Children, Job, children, needs_fork
from tests.store import tiny
from tests.store.tiny import content

from oodzoo.core.io import is_temporary
from oodzoo.store.checking import check_store
from oodzoo.store.feature_store import FeatureStore

pytestmark = needs_fork

Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def processes() -> Iterator[Children]:
    with children("tests.store.tiny") as started:
        yield started


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_images(tmp_path_factory.mktemp("data") / "data", ("day", "dusk", "night"))


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """The content of a store that one process made of some models."""

    def alone(*models: str, unlabelled: tuple[Path, ...] = ()) -> dict[str, Any]:
        store = tmp_path_factory.mktemp("alone") / "store"
        tiny.extract(data, list(models), store, unlabelled=[str(folder) for folder in unlabelled])
        return content(store)

    return alone


def extraction(data: Path, models: str, store: Path, **options: Any) -> Job:
    """Extract with models named by letters."""
    job = {key: options.pop(key) for key in ("moment", "locks") if key in options}
    return Job("tests.store.tiny:extract", (data, list(models), store), options, **job)


def require_tidy(store: Path) -> None:
    assert not check_store(store).damage
    assert not check_store(store).unfinished
    assert not [path for path in store.rglob("*") if is_temporary(path.name)]


@pytest.mark.parametrize(
    ("models", "place"),
    [
        (("a", "b", "c", "d"), "one machine"),
        (("ab", "bc", "ca", "abc"), "several machines"),
        (("ab", "bc", "ca", "abc"), "url"),
    ],
)
def test_on_a_new_store(
    request: pytest.FixtureRequest,
    data: Path,
    alone: Callable[..., dict[str, Any]],
    tmp_path: Path,
    models: tuple[str, ...],
    place: str,
) -> None:
    expected = alone(*sorted(set("".join(models))))
    if place == "url":
        url = f"{request.getfixturevalue('s3').url}/store"
        caches = (tmp_path / f"cache{number}" for number in range(4))
        function = "tests.store.remote:extract_on"
        with children("tests.store.remote") as started:
            jobs = zip(caches, models, strict=True)
            started.succeed(*(Job(function, (c, data, list(names), url)) for c, names in jobs))
        assert content(url) == expected
        assert not check_store(url).damage
        return
    processes = request.getfixturevalue("processes")
    store, locks = tmp_path / "store", place == "one machine"
    processes.succeed(*(extraction(data, names, store, locks=locks) for names in models))
    assert content(store) == expected
    require_tidy(store)


@pytest.mark.parametrize("models", ["abcd", "aaaa"], ids=["different models", "the same model"])
def test_no_model_is_lost_when_all_finish_at_once(
    processes: Children,
    data: Path,
    alone: Callable[..., dict[str, Any]],
    tmp_path: Path,
    models: str,
) -> None:
    """The models wait for each other before their only forward pass of the last shard."""
    expected = alone(*sorted(set(models)))
    for attempt in range(2 if STEP > 1 else 6):
        store, go = tmp_path / f"store{attempt}", tmp_path / f"go{attempt}"
        processes.start(*(extraction(data, m, store, wait_for=go, locks=False) for m in models))
        wait_until(lambda: all((store / "models" / m / "model.json").exists() for m in models))  # noqa: B023
        go.touch()
        for outcome in processes.wait():
            assert outcome == (0, ""), outcome.message
        assert content(store) == expected
        require_tidy(store)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.001)


def test_a_reader_sees_one_state_after_another(
    processes: Children, data: Path, tmp_path: Path
) -> None:
    grown = [shutil.copytree(data, tmp_path / "data0")]
    for step in range(1, 4):
        grown.append(shutil.copytree(grown[-1], tmp_path / f"data{step}"))
        tiny.write_image(grown[-1] / f"day/cat/a{step}.png", 100 + step, "cat")
        tiny.write_image(grown[-1] / f"new{step}/dog/0.png", 200 + step, "dog")
    states = []
    for step, folder in enumerate(grown):
        tiny.extract(folder, ["a", "b"], tmp_path / f"alone{step}")
        states.append(content(tmp_path / f"alone{step}"))
    store, done = tmp_path / "store", tmp_path / "done"
    processes.start(Job("tests.store.tiny:extract_in_turn", (grown, ["a", "b"], store, done)))
    wait_until(lambda: (store / "manifest.json").exists())
    seen: list[int] = []
    while not done.exists():
        if not seen and "no finished model" in tiny.complaint(FeatureStore, store):
            continue
        seen.append(states.index(content(store)))
    assert processes.wait() == [(0, "")]
    assert seen == sorted(seen)
    assert content(store) == states[-1]


@pytest.mark.parametrize("moment", [9, 35])
def test_one_of_them_is_killed(
    processes: Children,
    data: Path,
    alone: Callable[..., dict[str, Any]],
    tmp_path: Path,
    moment: int,
) -> None:
    for attempt in range(5):
        store = tmp_path / f"store{attempt}"
        outcomes = processes.run(
            extraction(data, "ab", store, moment=moment),
            extraction(data, "bc", store),
            extraction(data, "d", store),
        )
        if outcomes[0].code != 0:  # else another process was faster, and it had less to write
            break
    assert [outcome.code for outcome in outcomes] == [-9, 0, 0], outcomes
    seen, whole = content(store), alone("a", "b", "c", "d")
    assert set(seen["models"]) >= {"b", "c", "d"}
    for domain in ("day", "dusk", "night"):
        assert seen[domain][:4] == whole[domain][:4]
        assert seen[domain][4].items() <= whole[domain][4].items()
    processes.succeed(extraction(data, "ab", store))
    assert content(store) == whole
    require_tidy(store)


def test_maintenance_waits_for_a_writer(
    processes: Children, data: Path, run: Run, alone: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Another process extracts c; only models that nobody writes can be removed meanwhile."""
    store, go = tmp_path / "store", tmp_path / "go"
    tiny.extract(data, ["a", "b"], store)
    processes.start(extraction(data, "c", store, wait_for=go))
    folder = store / "models/c"
    wait_until(lambda: (folder / "model.json").exists() and not list(folder.glob(".tmp-*")))
    before = tiny.files(store)
    commands = [("sync", store, data), ("prune", store), ("rm", store, "c")]
    for command in (*commands, ("check", store, "--repair")):
        assert "is being written by another process" in run("store", *command).complaint
        assert tiny.files(store) == before
    assert run("store", "rm", store, "b").code == 0
    assert content(store) == alone("a")
    go.touch()
    assert processes.wait() == [(0, "")]
    assert content(store) == alone("a", "c")
    for command in commands:
        assert run("store", *command).code == 0
    assert content(store) == alone("a")
