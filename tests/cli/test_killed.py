"""Each command that computes from a store, and a whole run, killed before changes on disk.

What exists stays readable, and running the command again gives what an uninterrupted command gives.
(For the commands that change a store, see tests/store.)
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import command
from tests.fixtures import draw_digits
from tests.killing import STEP, Children, children, needs_fork
from tests.store import tiny
from tests.store.tiny import content, files

import oodzoo
from oodzoo.core.io import is_temporary, temporary_name
from oodzoo.report import write_report
from oodzoo.report.record import PARTS, read_run
from oodzoo.store.feature_store import FeatureStore
from oodzoo.testbed import load as load_bed

pytestmark = needs_fork

COMMAND = "tests.cli.commands:command"
MODELS = ("mlp_glyphs_augmented", "separable_shapes")
MEASURED = ("seconds", "milliseconds", "pareto_optimal", "reused", "digest")
"""What differs between two runs: times, and names of files that are drawn at random."""


@pytest.fixture(scope="module")
def kill() -> Iterator[Children]:
    own = (
        "pipeline",
        "predictor.fitting",
        "report.figures",
        "ranking.testbed.external",
        "zoo.onnx",
    )
    others = ("onnxruntime", "safetensors.numpy", "sklearn.cluster", "sklearn.mixture")
    named = (f"oodzoo.{name}" for name in own)
    with children("tests.cli.commands", *named, *others) as started:
        yield started


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the children: it takes most of the time, and a killed process does not need it."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def without_times(document: Any) -> Any:
    """A JSON document without what differs between two runs."""
    if isinstance(document, dict):
        kept = ((key, value) for key, value in document.items() if key not in MEASURED)
        return {key: without_times(value) for key, value in kept}
    if isinstance(document, list | tuple):
        return [without_times(entry) for entry in document if not is_budget(entry)]
    return document


def is_budget(entry: Any) -> bool:
    """Whether this is advice, or the text of it, about a limit on time, which follows times."""
    text = entry.get("text") if isinstance(entry, dict) else entry
    return isinstance(text, str) and "--max-ms" in text


def temporaries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if is_temporary(path.name)]


# --- commands that write the cache of a store ----------------------------------------------------


@pytest.fixture(scope="module")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three domains and three models. Tests must not change it."""
    folder = tmp_path_factory.mktemp("extracted")
    data = tiny.write_images(folder / "data", ("day", "fog", "night"), 4)
    tiny.extract(data, ["a", "b", "c"], folder / "store")
    return folder / "store"


@pytest.fixture(scope="module")
def ranked(extracted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store with the cache of a ranking. Tests must not change it."""
    store = shutil.copytree(extracted, tmp_path_factory.mktemp("ranked") / "store")
    command("rank", store)
    return store


@pytest.mark.parametrize(
    ("start", "name", "options", "moments"),
    [
        ("extracted", "rank", (), 20),
        ("ranked", "select", ("--top-k", "2"), 8),
        ("ranked", "evaluate", ("--top-k", "1", "--no-baselines"), 10),
    ],
)
def test_cache(
    kill: Children,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    start: str,
    name: str,
    options: tuple[str, ...],
    moments: int,
) -> None:
    """Also the cache is that of an uninterrupted command, byte by byte."""
    store = request.getfixturevalue(start)
    done = shutil.copytree(store, tmp_path / "done" / "s")  # a result has the name of its store
    result = without_times(command(name, done, *options))
    old, expected = content(store), files(done)
    moment = 1
    while kill.killed(moment, COMMAND, name, shutil.copytree(store, s := tmp_path / "s"), *options):
        assert content(s) == old, moment
        assert without_times(command(name, s, *options)) == result, moment
        assert files(s) == expected, moment
        shutil.rmtree(s)
        moment += STEP
    assert files(s) == expected
    assert moment > moments


def test_testbed(kill: Children, ranked: Path, tmp_path: Path) -> None:
    """The result replaces an earlier one; only some of the cache is missing, to save time."""
    store, result = shutil.copytree(ranked, tmp_path / "store"), tmp_path / "bed.json"
    command("testbed", store, "--out", result)
    bed = without_times(load_bed(result).to_dict())
    shutil.rmtree(store / "cache/testbed-leep")
    old, moment = content(store), 1
    (before := tmp_path / "out").mkdir()
    earlier = json.loads(result.read_text()) | {"data": {"name": "earlier"}}
    (before / "bed.json").write_text(json.dumps(earlier))
    while True:
        s = shutil.copytree(store, tmp_path / "s")
        out = shutil.copytree(before, tmp_path / "o") / "bed.json"
        killed = kill.killed(moment, COMMAND, "testbed", s, "--out", out)
        seen = load_bed(out)
        assert seen.name == "earlier" or without_times(seen.to_dict()) == bed | {
            "data": seen.data
        }, moment
        assert content(s) == old, moment
        if not killed:
            break
        command("testbed", s, "--out", out)
        assert load_bed(out).name == "s", moment
        assert not temporaries(s), moment
        assert not temporaries(out.parent), moment
        shutil.rmtree(s)
        shutil.rmtree(out.parent)
        moment += STEP
    assert seen.name == "s"
    assert moment > 8


# --- whole runs ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zoo file of two small models."""
    folder, embedded = tmp_path_factory.mktemp("zoo"), Path(oodzoo.demo.__file__).parent / "zoo"
    _, *entries = (embedded / "zoo.toml").read_text().split("[[model]]")
    for name in MODELS:
        shutil.copy(embedded / f"{name}.onnx", folder)
    kept = [e for e in entries if any(f'name = "{name}"' in e for name in MODELS)]
    (folder / "zoo.toml").write_text("".join(f"[[model]]{entry}" for entry in kept))
    return folder / "zoo.toml"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_digits(tmp_path_factory.mktemp("digits"), 4)


def arguments(data: Path, zoo: Path, job: Path, top_k: int) -> tuple[str | Path, ...]:
    options = ("--top-k", str(top_k), "--no-baselines", "--device", "cpu")
    return ("run", data, "--zoo", zoo, "--out", job, *options)


@pytest.fixture(scope="module")
def finished(digits: Path, zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run. Tests must not change it."""
    job = tmp_path_factory.mktemp("finished") / "job"
    command(*arguments(digits, zoo, job, 2))
    return job


def rows(job: Path) -> dict[tuple[str, str], bytes]:
    """Features by model and path; none if no model is finished."""
    if tiny.complaint(FeatureStore, job / "store"):
        return {}
    store = FeatureStore(job / "store")
    return {
        (model, path): row.tobytes()
        for model in store.models
        for domain in store.domains
        for path, row in zip(store.paths(domain), store.features(model, domain), strict=True)
    }


def parts(job: Path) -> dict[str, Any]:
    """The parts of the record of a run; none if there is no record."""
    if not (job / "run.json").exists():
        return {}
    document = without_times(read_run(job).to_dict())
    return {name: document[name] for name in PARTS if name in document}


def predictor(job: Path) -> dict[str, str]:
    """SHA-256 of the files of the predictor, which are checked; none if there is no predictor."""
    if not (job / "model").exists():
        return {}
    oodzoo.load(job / "model")
    document = json.loads((job / "model/predictor.json").read_text())
    listed = (entry["files"] for entry in (document, *document["models"]))
    return {Path(name).name: digest for some in listed for name, digest in some.items()}


def report(job: Path) -> str:
    path = job / "report.html"
    return path.read_text() if path.exists() else ""


def report_of_record(job: Path, folder: Path) -> str:
    """The report that follows from the record of a run; none if there is no record."""
    if not (job / "run.json").exists():
        return ""
    return write_report(job, folder / "expected.html").read_text()


@pytest.mark.parametrize(
    ("again", "step"),
    [(False, 4 * STEP + 1), (True, 3 * STEP + 1)],
    ids=["new folder", "finished folder"],
)
def test_run(
    kill: Children, digits: Path, zoo: Path, finished: Path, tmp_path: Path, again: bool, step: int
) -> None:
    """In the finished folder an image was added and an option changed: every stage is repeated.

    To save time, one change in `step` is tested, also in `make fuzz`.
    """
    data, start, done = tmp_path / "data", tmp_path / "start", tmp_path / "done"
    shutil.copytree(digits, data)
    if again:
        shutil.copytree(finished, start)
        draw_digits(data, 1, skip=4, domains=("chalk",))
    else:
        start.mkdir()
    command(*arguments(data, zoo, shutil.copytree(start, done), 1))
    old_rows, old_parts, old_predictor = rows(start), parts(start), predictor(start)
    new_rows, new_parts, new_predictor = rows(done), parts(done), predictor(done)
    assert old_rows != new_rows
    assert old_predictor != new_predictor
    moment, reached = 1, []
    job = shutil.copytree(start, tmp_path / "job")
    call = arguments(data, zoo, job, 1)
    while kill.killed(moment, COMMAND, *call):
        seen = parts(job)
        assert old_rows.items() <= rows(job).items() <= new_rows.items(), moment
        for name, part in seen.items():
            assert part in (old_parts.get(name), new_parts[name]), (moment, name)
        assert predictor(job) in (old_predictor, new_predictor), moment
        page = report(job)
        unfinished = "The run has not finished" in page
        assert unfinished or page in (report(start), report_of_record(job, tmp_path)), moment
        reached.append(sum(part == new_parts[name] for name, part in seen.items()))
        command(*call)
        assert rows(job) == new_rows, moment
        assert parts(job) == new_parts, moment
        assert predictor(job) == new_predictor, moment
        assert report(job) == report_of_record(job, tmp_path), moment
        assert not temporaries(job), moment
        shutil.rmtree(job)
        shutil.copytree(start, job)
        moment += step
    assert parts(job) == new_parts
    assert len(set(reached)) >= 4  # kills in most stages


def test_run_killed_while_it_wrote_its_first_record(
    digits: Path, zoo: Path, tmp_path: Path
) -> None:
    """The folder has a temporary file and no record yet; it is not that of somebody else."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    machine = temporary_name().split("-")[1]
    job = tmp_path / "job"
    job.mkdir()
    (job / f".tmp-{machine}-{ended.pid}-{'0' * 16}").write_text("{")
    command(*arguments(digits, zoo, job, 1))
    assert not temporaries(job)


@pytest.mark.parametrize(
    ("options", "step", "moments"),
    [((), 1, 2), (("--figures",), STEP + 1, 10)],
    ids=["page", "figures"],
)
def test_report(
    kill: Children,
    finished: Path,
    tmp_path: Path,
    options: tuple[str, ...],
    step: int,
    moments: int,
) -> None:
    """The page replaces an earlier one. Of the figures, which take time, some are killed."""
    start = shutil.copytree(finished, tmp_path / "start")
    (start / "report.html").write_text("earlier")
    done = shutil.copytree(start, tmp_path / "done")
    command("report", done, *options)
    old, new = files(start), files(done)
    moment = step
    while kill.killed(
        moment, COMMAND, "report", shutil.copytree(start, job := tmp_path / "job"), *options
    ):
        for name, digest in files(job).items():
            known = (old.get(name), new.get(name))
            assert digest in known or is_temporary(Path(name).name), (moment, name)
        command("report", job, *options)
        assert files(job) == new, moment
        shutil.rmtree(job)
        moment += step
    assert files(job) == new
    assert moment > moments
