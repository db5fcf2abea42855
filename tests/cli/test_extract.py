"""`oodzoo extract`: JSON, options, `--limit` and bad input."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Run
from tests.features import conftest as fixtures
from tests.features.data import Stamps, Zoo, one_of, spoil
from tests.fixtures import draw_digits

from oodzoo.data.dataset import ImageDomains
from oodzoo.store.feature_store import FeatureStore
from oodzoo.zoo import ModelSpec

# The digits, models and stores that the tests of features use.
digits, data, zoo, zoo_file = fixtures.digits, fixtures.data, fixtures.zoo, fixtures.zoo_file
extract, made, stamps = fixtures.extract, fixtures.made, fixtures.stamps


@pytest.fixture
def three(tmp_path: Path, zoo: Zoo, zoo_file: Callable[[list[ModelSpec]], Path]) -> Path:
    """A zoo file of the two small models, and one that cannot be opened."""
    path = zoo_file(zoo())
    (tmp_path / "broken.onnx").write_bytes(b"broken")
    path.write_text(f'{path.read_text()}[[model]]\nname = "broken"\nsource = "onnx/broken.onnx"\n')
    return path


def test_extract_json(run: Run, data: Path, three: Path, tmp_path: Path) -> None:
    bad = one_of(data, "marker/1")
    spoil(bad)
    arguments = ("extract", data, "--zoo", three, "--store", tmp_path / "s", "--json")
    outcome = run(*arguments)
    document = outcome.document
    assert outcome.code == 0
    assert document["store"] == str(tmp_path / "s")
    assert document["models"] == ["mlp_glyphs_augmented", "separable_shapes"]
    assert list(document["failed"]) == ["broken"]
    assert list(document["skipped"]) == [bad.relative_to(data).as_posix()]
    assert (document["images"], document["decoded"], document["shards_written"]) == (44, 45, 6)
    assert document["bottleneck"] in ("decoding", "inference")
    assert "warning: model 'broken'" in outcome.err
    assert f"warning: skipped 'marker/1/{bad.name}'" in outcome.err
    again = run(*arguments)
    assert (again.code, again.document["decoded"], again.document["shards_written"]) == (0, 0, 0)


def test_all_gpus_where_there_are_none(
    run: Run, data: Path, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    arguments = ("extract", data, "--zoo", three, "--store", tmp_path / "s", "--device", "all")
    complaint = run(*arguments, "--quiet").complaint
    assert "the device is 'all', but PyTorch finds no GPU here; use cpu or auto" in complaint
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu"])
def test_a_log_file(run: Run, data: Path, three: Path, tmp_path: Path, device: str) -> None:
    log = tmp_path / "log.jsonl"
    arguments = ("extract", data, "--zoo", three, "--store", tmp_path / "s", "--device", device)
    assert run(*arguments, "--log-file", log, "--quiet").code == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["stage"] for line in lines} == {"extraction"}
    start, *rest, end, artifact = lines
    assert (start["event"], start["images"]) == ("start", 45)
    assert [line["model"] for line in rest if "failed" in line] == ["broken"]
    metrics = {line["name"] for line in rest if line["event"] == "metric"}
    assert metrics == {
        "mlp_glyphs_augmented/milliseconds_per_image",
        "separable_shapes/milliseconds_per_image",
    }
    assert (end["event"], end["status"]) == ("end", "done")
    assert (artifact["event"], artifact["path"]) == ("artifact", str(tmp_path / "s"))


def test_a_model_that_fails_is_named_and_explained_once(
    run: Run, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no network")
    zoo = f"onnx/{tmp_path / 'broken.onnx'},demo/cnn_letters"
    outcome = run("extract", data, "--zoo", zoo, "--store", tmp_path / "s")
    assert outcome.code == 0, outcome.err
    lines = [line for line in outcome.err.splitlines() if "'broken'" in line]
    assert lines[0] == "model 'broken' failed, skipped"
    assert lines[1].startswith("warning: model 'broken' is left out: onnxruntime cannot open")
    assert len(lines) == 2


def test_on_error_fail_is_one_line(
    run: Run, data: Path, zoo: Zoo, zoo_file: Callable[[list[ModelSpec]], Path], tmp_path: Path
) -> None:
    spoil(one_of(data, "marker/1"))
    options = ("--zoo", zoo_file(zoo()), "--store", tmp_path / "s", "--on-error", "fail", "--quiet")
    assert "cannot read 'marker/1/" in run("extract", data, *options).complaint


def test_a_full_disk_is_one_line(
    run: Run,
    data: Path,
    zoo: Zoo,
    zoo_file: Callable[[list[ModelSpec]], Path],
    small_disk: Callable[[str], Path],
) -> None:
    options = ("--zoo", zoo_file(zoo()), "--store", small_disk("size=68k") / "s", "--quiet")
    assert "the disk is full" in run("extract", data, *options).complaint


# --- files that cannot be read ----------------------------------------------------------------


def test_a_file_that_cannot_be_read_is_skipped_and_comes_later(
    run: Run, data: Path, three: Path, tmp_path: Path
) -> None:
    bad = one_of(data, "marker/1")
    name, content = bad.relative_to(data).as_posix(), bad.read_bytes()
    bad.unlink()
    bad.symlink_to("nowhere.png")
    arguments = ("extract", data, "--zoo", three, "--store", tmp_path / "s")
    outcome = run(*arguments, "--json")
    assert outcome.code == 0
    assert outcome.document["skipped"] == {name: "No such file or directory"}
    assert outcome.document["images"] == 44
    assert f"warning: skipped {name!r}: No such file or directory" in outcome.err
    assert f"cannot read {name!r}: No such" in run(*arguments, "--on-error", "fail", "-q").complaint
    bad.unlink()
    bad.write_bytes(content)
    document = run(*arguments, "--json").document
    assert (document["skipped"], document["images"], document["decoded"]) == ({}, 45, 1)


# --- --unlabelled -----------------------------------------------------------------------------


def test_unlabelled_images(run: Run, digits: Path, three: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        draw_digits(tmp_path / name, 1, skip=6)
    arguments = ("extract", digits, "--zoo", three, "--store", tmp_path / "s")
    options = ("--unlabelled", tmp_path / "one", "--unlabelled", f"other={tmp_path / 'two'}")
    document = run(*arguments, *options, "--json").document
    assert (document["unlabelled"], document["images"]) == (["one", "other"], 45)
    assert document["decoded"] == 54
    again = run(*arguments)
    assert again.out.startswith("2 models, 45 images, 3 domains in ")
    assert again.out.endswith("(2 more without labels)\n")
    assert FeatureStore(tmp_path / "s").features("separable_shapes", "other").shape == (9, 96)


def test_unlabelled_images_that_have_labels_are_warned_of(
    run: Run, digits: Path, three: Path, tmp_path: Path
) -> None:
    target = draw_digits(tmp_path / "target", 1, skip=6)
    shutil.copy(one_of(digits, "marker/1"), target / "leak.png")
    arguments = ("extract", digits, "--zoo", three, "--store", tmp_path / "s", "--json")
    outcome = run(*arguments, "--unlabelled", target)
    name = one_of(digits, "marker/1").relative_to(digits).as_posix()
    assert "warning: leak between domains: unlabelled domain 'target' also contains" in outcome.err
    assert repr(name) in outcome.err
    assert (outcome.code, outcome.document["decoded"]) == (0, 54)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["chalk={}"], "are named 'chalk', as a domain with labels; give them another name"),
        (["{}", "{}"], "two folders of unlabelled images are named 'target'"),
        (["nowhere"], "no such folder: 'nowhere'"),
    ],
)
def test_bad_unlabelled_images_are_one_line(
    run: Run, digits: Path, three: Path, tmp_path: Path, given: list[str], complaint: str
) -> None:
    target = draw_digits(tmp_path / "target", 1, skip=6)
    options = [part for text in given for part in ("--unlabelled", text.format(target))]
    arguments = ("extract", digits, "--zoo", three, "--store", tmp_path / "s", "-q")
    assert complaint in run(*arguments, *options).complaint
    assert not (tmp_path / "s").exists()


# --- --limit ----------------------------------------------------------------------------------


def test_limit_grows_into_the_whole(
    run: Run, made: Path, data: Path, three: Path, tmp_path: Path, stamps: Stamps
) -> None:
    arguments = ("extract", data, "--zoo", three, "--store", tmp_path / "s", "--json")
    seen: set[str] = set()
    times: dict[str, tuple[int, int]] = {}
    for limit in (9, 20, 45):
        document = run(*arguments, "--limit", str(limit)).document
        assert document["images"] == limit
        assert document["decoded"] == limit - len(seen)
        store = FeatureStore(tmp_path / "s")
        paths = {path for domain in store.domains for path in store.paths(domain)}
        assert paths > seen
        assert stamps(tmp_path / "s").items() > times.items()
        seen, times = paths, stamps(tmp_path / "s")
    assert run(*arguments).document["decoded"] == 0
    whole = FeatureStore(made)
    for domain in whole.domains:
        order = [store.paths(domain).index(path) for path in whole.paths(domain)]
        np.testing.assert_array_equal(store.labels(domain)[order], whole.labels(domain))
        np.testing.assert_allclose(
            store.features("separable_shapes", domain)[order],
            whole.features("separable_shapes", domain),
            atol=1e-5,
        )
    # a smaller look at a larger store would be another data set
    assert "45 images in the store" in run(*arguments[:-1], "--limit", "20", "-q").complaint


def test_limit_keeps_groups_whole(run: Run, data: Path, three: Path, tmp_path: Path) -> None:
    samples = list(ImageDomains(data))
    with (data / "table.csv").open("w", newline="") as file:
        rows = [(s.path, s.domain, s.label, f"{s.domain}{at // 3}") for at, s in enumerate(samples)]
        csv.writer(file).writerows([("path", "domain", "label", "group"), *rows])
    options = ("--zoo", three, "--store", tmp_path / "s", "--limit", "20", "--json")
    document = run("extract", data / "table.csv", *options).document
    assert document["images"] >= 20
    assert document["images"] % 3 == 0
    store = FeatureStore(tmp_path / "s")
    groups = [group for domain in store.domains for group in store.groups(domain)]
    assert all(groups.count(group) == 3 for group in groups)


def test_a_race_lists_what_it_drops(run: Run, tmp_path: Path) -> None:
    data = draw_digits(tmp_path / "data", 12)
    arguments = ("extract", data, "--zoo", "demo", "--store", tmp_path / "s", "--device", "cpu")
    outcome = run(*arguments, "--race", "--json")
    assert outcome.code == 0
    document = outcome.document
    dropped = document["race"]["dropped"]
    assert dropped
    assert not dropped.keys() & set(document["models"])
    assert len(dropped) + len(document["models"]) == 19
    shown = run(*arguments, "--race")
    heading, _, *lines = shown.out.splitlines()
    assert " ".join(heading.split()) == "dropped reason round images rank 90 % acc. %"
    order = sorted(dropped, key=lambda name: (-dropped[name]["round"], dropped[name]["rank"]))
    assert [line.split()[0] for line in lines[: len(order)]] == order
    assert not [line for line in shown.err.splitlines() if line.startswith("dropped")]
    again = run(*arguments, "--budget", "10h", "--json")
    assert (again.document["race"]["dropped"], len(again.document["models"])) == ({}, 19)
