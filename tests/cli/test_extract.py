"""`oodzoo extract`: documents, failures, unlabelled images, limits, array jobs, races."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cluster.data import nothing_but_timings_differs, write_zoo
from tests.conftest import Run
from tests.fixtures import draw_digits

import oodzoo

MODELS = ("mlp_glyphs_augmented", "separable_shapes")
NAMES = ("cnn_photos", *MODELS[:1], "separable_glyphs_colour", "separable_random", *MODELS[1:])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three domains x three classes x five digits."""
    return draw_digits(tmp_path / "data", 5)


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """A zoo file of the two small models, and one that cannot be opened."""
    path = write_zoo(tmp_path / "zoo", list(MODELS))
    (tmp_path / "zoo" / "broken.onnx").write_bytes(b"broken")
    path.write_text(f'{path.read_text()}[[model]]\nname = "broken"\nsource = "onnx/broken.onnx"\n')
    return path


def one_of(data: Path, cell: str = "marker/1") -> Path:
    return sorted((data / cell).glob("*.png"))[2]


def test_images_and_models_that_cannot_be_read_are_left_out(
    run: Run, data: Path, zoo: Path, tmp_path: Path
) -> None:
    """A log has it all; the images come later."""
    bad, log = one_of(data), tmp_path / "log.jsonl"
    name, content = bad.relative_to(data).as_posix(), bad.read_bytes()
    bad.unlink()
    bad.symlink_to("nowhere.png")
    arguments = ("extract", data, "--zoo", zoo, "--store", tmp_path / "s")
    outcome = run(*arguments, "--log-file", log, "--json")
    document = outcome.document
    assert (outcome.code, document["store"]) == (0, str(tmp_path / "s"))
    assert document["models"] == list(MODELS)
    assert list(document["failed"]) == ["broken"]
    assert document["skipped"] == {name: "No such file or directory"}
    assert (document["images"], document["decoded"], document["shards_written"]) == (44, 44, 6)
    assert document["bottleneck"] in ("decoding", "inference")
    lines = [line for line in outcome.err.splitlines() if "'broken'" in line]
    assert lines[0] == "model 'broken' failed, skipped"
    assert lines[1].startswith("warning: model 'broken' is left out: onnxruntime cannot open")
    assert len(lines) == 2
    assert f"warning: skipped {name!r}: No such file or directory" in outcome.err
    assert f"cannot read {name!r}: No such" in run(*arguments, "--on-error", "fail", "-q").complaint
    bad.unlink()
    bad.write_bytes(content)
    for decoded in (1, 0):
        document = run(*arguments, "--json").document
        found = (document["skipped"], document["images"], document["decoded"])
        assert found == ({}, 45, decoded)

    start, *rest, end, artifact = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["stage"] for line in rest} == {"extraction"}
    assert (start["event"], start["images"]) == ("start", 44)
    assert [line["model"] for line in rest if "failed" in line] == ["broken"]
    metrics = {line["name"] for line in rest if line["event"] == "metric"}
    assert metrics == {f"{model}/milliseconds_per_image" for model in MODELS}
    assert (end["event"], end["status"]) == ("end", "done")
    assert (artifact["event"], artifact["path"]) == ("artifact", str(tmp_path / "s"))


def test_all_gpus_where_there_are_none(
    run: Run, data: Path, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    arguments = ("extract", data, "--zoo", zoo, "--store", tmp_path / "s", "--device", "all")
    complaint = run(*arguments, "--quiet").complaint
    assert "the device is 'all', but PyTorch finds no GPU here; use cpu or auto" in complaint
    assert not (tmp_path / "s").exists()


# --- a part of the data, and of the work ---------------------------------------------------------


def test_limit_grows_into_the_whole(run: Run, data: Path, zoo: Path, tmp_path: Path) -> None:
    arguments = ("extract", data, "--zoo", zoo, "--json")
    limited = (*arguments, "--store", tmp_path / "s")
    seen: set[str] = set()
    times: dict[Path, int] = {}
    for limit in (9, 20, 45):
        document = run(*limited, "--limit", str(limit)).document
        assert document["images"] == limit
        assert document["decoded"] == limit - len(seen)
        store = oodzoo.FeatureStore(tmp_path / "s")
        paths = {path for domain in store.domains for path in store.paths(domain)}
        assert paths > seen
        found = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*.npy")}
        assert found.items() > times.items()  # what is there is not written again
        seen, times = paths, found
    assert run(*limited).document["decoded"] == 0
    assert run(*arguments, "--store", tmp_path / "whole").code == 0
    whole = oodzoo.FeatureStore(tmp_path / "whole")
    for domain in whole.domains:
        order = [store.paths(domain).index(path) for path in whole.paths(domain)]
        np.testing.assert_array_equal(store.labels(domain)[order], whole.labels(domain))
        features = [s.features("separable_shapes", domain) for s in (store, whole)]
        np.testing.assert_allclose(features[0][order], features[1], atol=1e-5)
    # a smaller look at a larger store would be another data set
    assert "45 images in the store" in run(*limited, "--limit", "20", "-q").complaint


def test_array_jobs_and_processes_write_the_store_of_one_process(
    run: Run, data: Path, tmp_path: Path
) -> None:
    """Parts one after another in any order; two devices are two processes."""
    zoo = write_zoo(tmp_path / "zoo", list(NAMES))
    common = ("extract", data, "--zoo", zoo)
    assert run(*common, "--store", tmp_path / "expected", "--device", "cpu").code == 0
    store, written = tmp_path / "s", []
    arguments = (*common, "--store", store, "--device", "cpu")
    alone = run(*arguments, "--shard", "2/8")
    assert alone.out == f"no finished model yet in {store}; other shards are missing\n"
    assert "Shard 2/8 is done: 2 files of features written." in alone.err
    for number in (5, 3, 8, 1, 7, 2, 6, 4):
        outcome = run(*arguments, "--shard", f"{number}/8", "--json")
        assert outcome.code == 0
        done = outcome.document
        assert f"Shard {number}/8 is done: {done['shards_written']} file" in outcome.err
        written.append(done["shards_written"])
    assert done["models"] == list(NAMES)
    assert sum(written) == 3 * len(NAMES) - 2
    nothing_but_timings_differs(tmp_path / "expected", store)
    outcome = run(*common, "--store", tmp_path / "two", "--device", "cpu,cpu")
    assert outcome.code == 0
    assert "tasks on 2 workers (processes)" in outcome.err
    nothing_but_timings_differs(tmp_path / "expected", tmp_path / "two")


def test_a_race_lists_what_it_drops(run: Run, digits: Path, tmp_path: Path) -> None:
    zoo = "demo/*glyphs*,demo/*random,demo/cnn_*"
    n = len(oodzoo.load_zoo(zoo))
    arguments = ("extract", digits, "--zoo", zoo, "--store", tmp_path / "s", "--device", "cpu")
    outcome = run(*arguments, "--race", "--json")
    assert outcome.code == 0
    dropped, kept = outcome.document["race"]["dropped"], outcome.document["models"]
    assert dropped
    assert not dropped.keys() & set(kept)
    assert len(dropped) + len(kept) == n
    shown = run(*arguments, "--race")
    heading, _, *lines = shown.out.splitlines()
    assert " ".join(heading.split()) == "dropped reason round images rank 90 % acc. %"
    order = sorted(dropped, key=lambda name: (-dropped[name]["round"], dropped[name]["rank"]))
    assert [line.split()[0] for line in lines[: len(order)]] == order
    assert not [line for line in shown.err.splitlines() if line.startswith("dropped")]
    again = run(*arguments, "--budget", "10h", "--json")
    assert (again.document["race"]["dropped"], len(again.document["models"])) == ({}, n)
