"""Extraction in steps, by several processes, in parts, and on growing samples."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine.test_processes import has_ended, wait_until
from tests.events.heard import Heard
from tests.features.data import Extract, MakeModel, Tree, Zoo, one_of, spoil
from tests.features.dying import CULPRIT, FOLDER, Troubled

from oodzoo.core.errors import InputError
from oodzoo.core.io import is_temporary
from oodzoo.data.dataset import ImageDomains
from oodzoo.extraction.engines import Engine, Processes
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.outcome import ExtractionConfig
from oodzoo.store import table as store_index
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import read_manifest
from oodzoo.store.shards import record_files

Process = Callable[..., subprocess.Popen[str]]

NAMES = ("mlp_glyphs_augmented", "separable_random", "separable_shapes")
SHARDS = 9  # of the digits, with 6 images at most each
CPU = ExtractionConfig(device="cpu")

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_index, "SHARD_ROWS", 6)


@pytest.fixture(scope="module")
def expected(
    digits: Path, zoo: Zoo, extract: Extract, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The store of one process. Tests must not change it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_index, "SHARD_ROWS", 6)
        store = tmp_path_factory.mktemp("expected") / "store"
        done = extract(digits, zoo(*NAMES), store, device="cpu")
    assert done.shards == SHARDS * len(NAMES)
    return store


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where workers in trouble write what they do."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.setenv(FOLDER, str(folder))
    return folder


def by(
    engine: Engine | None, data: Path, zoo: list[Any], store: Path, **options: Any
) -> tuple[FeatureStore, Any]:
    return run_extraction(
        ImageDomains(data), zoo, store, options.pop("config", CPU), engine=engine, **options
    )


def test_two_processes_are_one_process(
    digits: Path, zoo: Zoo, expected: Path, tree: Tree, tmp_path: Path
) -> None:
    heard = Heard()
    engine = Troubled("run")
    store, done = by(engine, digits, zoo(*NAMES), tmp_path / "s", listener=heard)
    assert tree(tmp_path / "s") == tree(expected)
    assert (done.shards, done.failed) == (SHARDS * len(NAMES), {})
    assert store.models == NAMES
    assert store.milliseconds_per_image(NAMES[0]) is not None
    assert heard.events[0] == ("start", "extraction", {"models": list(NAMES), "images": 45})
    assert heard.steps()[-1] == (135, 135)
    assert heard.outline()[-1] == ("extraction", "done")
    # Replies have names and checksums, no features.
    sizes = [len(reply.result or b"") for reply in engine.replies]
    assert max(sizes) < 200 + 150 * SHARDS * len(NAMES)
    assert sum(sizes) < 300 * len(sizes) + 150 * SHARDS * len(NAMES)
    # again: nothing to do
    again = by(Processes(["cpu", "cpu"]), digits, zoo(*NAMES), tmp_path / "s")[1]
    assert (again.shards, again.decoded) == (0, 0)
    assert tree(tmp_path / "s") == tree(expected)


@needs_signals
def test_only_the_model_that_kills_its_process_is_left_out(
    digits: Path,
    zoo: Zoo,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    culprit, other = (spec.name for spec in zoo())
    monkeypatch.setenv(CULPRIT, culprit)
    monkeypatch.setattr(store_index, "SHARD_ROWS", 256)
    heard, engine = Heard(), Troubled("die_of_culprit", 1)
    store, done = by(engine, digits, zoo(), tmp_path / "s", listener=heard)
    reason = "the worker process for cpu was killed by SIGKILL (often for lack of memory)"
    assert done.failed == {culprit: reason}
    assert store.models == (other,)
    for domain in store.domains:
        expected = FeatureStore(made).features(other, domain)
        np.testing.assert_array_equal(store.features(other, domain), expected)
    failures = [facts for _, facts in heard.of("progress") if "failed" in facts]
    assert [(facts["model"], facts["failed"]) for facts in failures] == [(culprit, reason)]


# Two workers write a shard each, and then hang.
HANG = """
import signal
import sys
from pathlib import Path
from tests.features.dying import Troubled
from oodzoo.data.dataset import ImageDomains
from oodzoo.extraction.outcome import (ExtractionConfig)
from oodzoo.extraction.extract import run_extraction
from oodzoo.store import table
from oodzoo.zoo import load_zoo

signal.signal(signal.SIGINT, signal.default_int_handler)  # also if started in the background
table.SHARD_ROWS = 6
data, store, *names = sys.argv[1:]
zoo = [spec for spec in load_zoo("demo") if spec.name in names]
config = ExtractionConfig(device="cpu")
try:
    run_extraction(ImageDomains(data), zoo, Path(store), config, engine=Troubled("hang"))
except KeyboardInterrupt:
    print("interrupted")
"""


@needs_signals
@pytest.mark.parametrize("sent", ["SIGKILL", "SIGINT"])
def test_the_parent_is_stopped_and_a_rerun_finishes(
    digits: Path,
    zoo: Zoo,
    expected: Path,
    tree: Tree,
    folder: Path,
    process: Process,
    tmp_path: Path,
    sent: str,
) -> None:
    store = tmp_path / "s"
    parent = process(HANG, digits, store, *NAMES)
    wait_until(lambda: len(list(folder.iterdir())) == 2)
    children = [int(file.name) for file in folder.iterdir()]
    for pid in (parent.pid, *(children if sent == "SIGINT" else ())):  # as a terminal does
        os.kill(pid, getattr(signal, sent))
    printed = parent.communicate(timeout=60)
    assert printed == ("interrupted\n" if sent == "SIGINT" else "", "")
    wait_until(lambda: all(map(has_ended, children)))
    assert not read_manifest(store).models
    assert not [path for path in store.rglob("*") if is_temporary(path.name)]
    finished = {name: digest for name, digest in tree(store).items() if name.endswith(".npy")}
    assert finished
    assert tree(expected).items() >= finished.items()
    records = [file for name in NAMES for file in record_files(store / "models" / name)]
    _, done = by(Processes(["cpu", "cpu"]), digits, zoo(*NAMES), store)
    assert done.shards == SHARDS * len(NAMES) - len(records)
    assert tree(store) == tree(expected)


def test_bad_input_of_a_task_stops_the_extraction(data: Path, zoo: Zoo, tmp_path: Path) -> None:
    bad = one_of(data, "marker/1")
    spoil(bad)
    config = ExtractionConfig(device="cpu", on_error="fail")
    with pytest.raises(InputError, match=f"^cannot read '.*{bad.name}': "):
        by(Processes(["cpu", "cpu"]), data, zoo(), tmp_path / "s", config=config)
    store, _ = by(None, data, zoo(), tmp_path / "s")
    assert list(store.skipped) == [bad.relative_to(data).as_posix()]
    assert store.n_images == 44


def test_a_python_model_needs_this_process(
    digits: Path, make_model: MakeModel, tmp_path: Path
) -> None:
    message = (
        "model 'function' is a Python object, which the engine processes cannot send to other "
        "processes; give its spec, or extract in this process"
    )
    with pytest.raises(InputError, match=f"^{message}$"):
        by(Processes(["cpu", "cpu"]), digits, [make_model()], tmp_path / "s")
    assert not (tmp_path / "s").exists()
