"""Each command that writes, killed before changes on disk, or right before and after uploads.

A reader sees the state before or after the command. Running the command again gives what an
uninterrupted one gives, computes no finished shard again, and leaves no temporary file. (For
predictors see tests/predictor; for fine-tuning, tests/tuning.)
"""

from __future__ import annotations

import importlib
import itertools
import json
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.cli.commands import command
from tests.cluster.data import write_zoo
from tests.fixtures import draw_digits
from tests.killing import STEP, Children, Job, children, needs_fork
from tests.s3 import Bucket
from tests.store import tiny
from tests.store.remote import remote_files
from tests.store.tiny import content, files

import oodzoo
from oodzoo.core.io import is_temporary
from oodzoo.report import write_report
from oodzoo.report.record import PARTS, read_run
from oodzoo.store.checking import check_store
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.maintenance import prune_store, remove_models
from oodzoo.store.sync import sync_store
from oodzoo.testbed import load as load_bed

pytestmark = needs_fork

COMMAND = "tests.cli.commands:command"
MEASURED = ("seconds", "milliseconds", "pareto_optimal", "reused", "digest")
"""What differs between two runs: times, and names of files that are drawn at random."""
State = dict[str, Any]


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


def images(inputs: Path, start: Path) -> None:
    data = tiny.write_images(inputs / "images")
    (data / "day/cat/broken.png").write_bytes(b"no image")


def two_segments(inputs: Path, start: Path) -> None:
    """A store of two models that was extended once."""
    data, later = tiny.write_images(inputs / "images"), inputs / "later"
    shutil.move(data / "night/dog", later)
    tiny.extract(data, ["a", "b"], start / "store")
    shutil.move(later, data / "night/dog")
    tiny.extract(data, ["a", "b"], start / "store")


def grown(inputs: Path, start: Path) -> None:
    """New images, one of them in a new domain."""
    tiny.extract(tiny.write_images(inputs / "images"), ["a"], start / "store")
    tiny.write_image(inputs / "images/day/cat/-first.png", 98, "cat")
    tiny.write_image(inputs / "images/fog/cat/new.png", 99, "cat")


def changed(inputs: Path, start: Path) -> None:
    two_segments(inputs, start)
    data = inputs / "images"
    (data / "day/bike/1.png").unlink()
    (data / "night/dog/2.png").unlink()
    (data / "day/cat/0.png").rename(data / "day/cat/moved.png")
    (data / "night/cat/0.png").rename(data / "night/bike/relabelled.png")


def with_target(inputs: Path, start: Path) -> None:
    two_segments(inputs, start)
    target = tiny.write_target(inputs / "target", 100)
    tiny.extract(inputs / "images", ["a"], start / "store", unlabelled=[str(target)])
    (target / "100.png").unlink()
    (inputs / "images/day/bike/1.png").unlink()


def garbage(inputs: Path, start: Path) -> None:
    changed(inputs, start)
    store = start / "store"
    sync_store(store, inputs / "images")
    for name in (
        "cache/oof/0.npz",
        "models/a/00007-00000.features.0123456789abcdef.npy",
        "samples/0123456789abcdef.json",
        "models/gone/00000-00000.json",
    ):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(b"{}")


def damaged(pattern: str) -> Callable[[Path, Path], None]:
    def damaged(inputs: Path, start: Path) -> None:
        two_segments(inputs, start)
        path = min((start / "store").glob(pattern))
        path.write_bytes(path.read_bytes()[:-20])

    return damaged


def two_stores(inputs: Path, start: Path) -> None:
    data, target = tiny.write_images(inputs / "images"), tiny.write_target(inputs / "target", 100)
    tiny.extract(data, ["a", "b"], inputs / "one")
    tiny.extract(data, ["b", "c"], inputs / "two", unlabelled=[str(target)])


def arrays(inputs: Path, start: Path) -> None:
    features = np.arange(24.0).reshape(6, 4)
    given: State = {"one": features, "one.logits": features[:, :2]}
    given |= {"two": -features, "two.logits": -features[:, 2:]}
    given |= {"labels": ["cat", "dog"] * 3, "domains": ["day", "night", "day"] * 2}
    np.savez(inputs / "a.npz", **given)


def three_domains(inputs: Path, start: Path) -> None:
    data = tiny.write_images(inputs / "images", ("day", "fog", "night"), 4)
    tiny.extract(data, ["a", "b", "c"], start / "store")


def ranked(inputs: Path, start: Path) -> None:
    three_domains(inputs, start)
    command("rank", start / "store")


def with_bed(inputs: Path, start: Path) -> None:
    """An earlier result; only some of the cache is missing, to save time."""
    ranked(inputs, start)
    command("testbed", start / "store", "--out", start / "bed.json")
    shutil.rmtree(start / "store/cache/testbed-leep")
    earlier = json.loads((start / "bed.json").read_text()) | {"data": {"name": "earlier"}}
    (start / "bed.json").write_text(json.dumps(earlier))


RUN = ("run", "{inputs}/images", "--zoo", "{inputs}/zoo/zoo.toml", "--out", "{here}/job")
OPTIONS = ("--no-baselines", "--device", "cpu", "--top-k")


def digits(inputs: Path, start: Path) -> None:
    draw_digits(inputs / "images", 4)
    write_zoo(inputs / "zoo", ["mlp_glyphs_augmented", "separable_shapes"])


def finished(inputs: Path, start: Path) -> None:
    digits(inputs, start)
    command(*(each.format(inputs=inputs, here=start) for each in RUN), *OPTIONS, "2")


def grown_run(inputs: Path, start: Path) -> None:
    """An image is added; an option changes, too."""
    finished(inputs, start)
    draw_digits(inputs / "images", 1, skip=4, domains=("chalk",))


def with_page(inputs: Path, start: Path) -> None:
    finished(inputs, start)
    (start / "job/report.html").write_text("earlier")


def nothing(here: Path | str) -> State:
    return {}


def stored(here: Path | str) -> State:
    store = f"{here}/store"
    return {} if tiny.complaint(FeatureStore, store) else {"store": content(store)}


def of_b(here: Path | str) -> State:
    """A model that is not damaged."""
    opened = FeatureStore(f"{here}/store")
    return {domain: opened.features("b", domain).tobytes() for domain in opened.domains}


def bed(here: Path | str) -> State:
    found = without_times(load_bed(Path(here, "bed.json")).to_dict())
    if found["data"]["name"] != "earlier":
        found["data"] = {"name": "store"}
    return stored(here) | {"bed": found}


def pages(here: Path | str) -> State:
    return {name: digest for name, digest in files(Path(here)).items() if not is_temp(name)}


def job(here: Path | str) -> State:
    """Rows, parts of the record, the predictor, and whether the page is right or says otherwise."""
    folder, seen = Path(here, "job"), State()
    if not tiny.complaint(FeatureStore, folder / "store"):
        store = FeatureStore(folder / "store")
        for model in store.models:
            for domain in store.domains:
                rows = store.features(model, domain)
                seen |= {
                    f"row {model} {path}": row.tobytes()
                    for path, row in zip(store.paths(domain), rows, strict=True)
                }
    if (folder / "model").exists():
        oodzoo.load(folder / "model")  # verifies the files
        document = json.loads((folder / "model/predictor.json").read_text())
        listed = (entry["files"] for entry in (document, *document["models"]))
        seen["predictor"] = {Path(n).name: sha for some in listed for n, sha in some.items()}
    if (folder / "run.json").exists():
        document = without_times(read_run(folder).to_dict())
        seen |= {f"part {name}": document[name] for name in PARTS if name in document}
    if (page := folder / "report.html").exists():
        text = page.read_text()
        right = write_report(folder, Path(here).with_name("expected.html")).read_text()
        seen["text"] = text
        if "The run has not finished" not in text and text != right:
            seen["page"] = text
    return seen


def is_temp(name: str) -> bool:
    return is_temporary(name.rpartition("/")[2])


def left(here: Path | str) -> State:
    """All files but those of times, none of which is a temporary one."""
    found = remote_files(here) if isinstance(here, str) else files(here)
    assert not [name for name in found if is_temp(name)]
    return found


def right_page(here: Path | str) -> State:
    seen = job(here)
    del seen["text"]
    assert "page" not in seen
    assert not [path for path in Path(here).rglob("*") if is_temporary(path.name)]
    return seen


def tidy(here: Path | str) -> State:
    left(here)
    assert not check_store(f"{here}/store").damage
    prune_store(f"{here}/store")
    return stored(here)


def tidy_bed(here: Path | str) -> State:
    left(here)
    return bed(here)


class Case(NamedTuple):
    """A command, in the folder `here`, with given `inputs`."""

    prepare: Callable[[Path, Path], None]
    function: str
    arguments: tuple[Any, ...]
    options: dict[str, Any] = {}  # noqa: RUF012
    look: Callable[[Path | str], State] = stored
    result: Callable[[Path | str], State] = left
    least: int = 3
    """It makes more changes than this."""
    step: int = 1

    def given(self, inputs: Path, here: Path | str) -> list[Any]:
        places = {"inputs": inputs, "here": here}
        return [
            [each.format(**places) for each in one]
            if isinstance(one, tuple)
            else one.format(**places)
            for one in self.arguments
        ]

    def run(self, inputs: Path, here: Path | str) -> Any:
        module, _, name = self.function.partition(":")
        function = getattr(importlib.import_module(module), name)
        return function(*self.given(inputs, here), **self.options)


DATA, STORE = "{inputs}/images", "{here}/store"
EXTRACT, SYNC = "tests.store.tiny:extract", "oodzoo.store.sync:sync_store"
REMOVE, PRUNE = "oodzoo.store.maintenance:remove_models", "oodzoo.store.maintenance:prune_store"
CHECK, MERGE = "oodzoo.store.checking:check_store", "oodzoo.store.maintenance:merge_stores"
IMPORT = "oodzoo.extraction.importing:import_features"
SOURCES = ("{inputs}/one", "{inputs}/two")
SELECT = ("select", STORE, "--top-k", "2")
EVALUATE = ("evaluate", STORE, "--top-k", "1", "--no-baselines")
TESTBED = ("testbed", STORE, "--out", "{here}/bed.json")
REPORT = ("report", "{here}/job")
REPAIR, CACHE = {"repair": True}, {"cache": True}

CASES = {
    "extract": Case(images, EXTRACT, (DATA, ("a",), STORE), least=20, step=STEP),
    "extract more": Case(grown, EXTRACT, (DATA, ("a", "b"), STORE), least=20, step=STEP),
    "import": Case(arrays, IMPORT, (("{inputs}/a.npz",), STORE), least=20, step=STEP),
    "sync": Case(changed, SYNC, (STORE, DATA), least=6),
    "sync, unlabelled": Case(
        with_target, "tests.store.tiny:sync", (STORE, DATA, ("{inputs}/target",)), least=6
    ),
    "rm": Case(two_segments, REMOVE, (STORE, ("a",)), least=12),
    "prune": Case(garbage, PRUNE, (STORE,), CACHE, least=25, step=(STEP + 2) // 4),
    "repair, shard": Case(
        damaged("models/a/*.features.*.npy"), CHECK, (STORE,), REPAIR, of_b, tidy
    ),
    "repair, manifest": Case(damaged("manifest.json"), CHECK, (STORE,), REPAIR, nothing, tidy),
    "repair, list": Case(damaged("models/a/shards.*.json"), CHECK, (STORE,), REPAIR, of_b, tidy),
    "repair, record": Case(damaged("models/a/0*.json"), CHECK, (STORE,), REPAIR, of_b, tidy),
    "merge": Case(two_stores, MERGE, (SOURCES, STORE), least=40, step=STEP),
    "rank": Case(three_domains, COMMAND, ("rank", STORE), least=20, step=STEP),
    "select": Case(ranked, COMMAND, SELECT, least=8, step=STEP),
    "evaluate": Case(ranked, COMMAND, EVALUATE, least=40, step=3 * STEP),
    "testbed": Case(with_bed, COMMAND, TESTBED, {}, bed, tidy_bed, 8, STEP),
    "run": Case(digits, COMMAND, (*RUN, *OPTIONS, "1"), {}, job, right_page, 60, 6 * STEP + 1),
    "run again": Case(
        grown_run, COMMAND, (*RUN, *OPTIONS, "1"), {}, job, right_page, 60, 5 * STEP + 1
    ),
    "report": Case(with_page, COMMAND, REPORT, {}, pages, left, 2),
    "figures": Case(with_page, COMMAND, (*REPORT, "--figures"), {}, pages, left, 10, STEP + 1),
}
KEEPS_SHARDS = ("extract", "extract more", "import", "sync", "rank", "select", "evaluate")
RESULTS = ("rank", "select", "evaluate")
MODULES = (
    *("tests.store.tiny", "tests.store.remote", "tests.cli.commands"),
    *(case.function.partition(":")[0] for case in CASES.values()),
    *(
        "oodzoo.predictor.fitting",
        "oodzoo.report.figures",
        "oodzoo.testbed",
        "oodzoo.zoo.sources.onnx",
    ),
    *("onnxruntime", "safetensors.numpy", "sklearn.cluster", "sklearn.mixture"),
)


@pytest.fixture(scope="module")
def kill() -> Iterator[Children]:
    with children(*MODULES) as started:
        yield started


Prepared = Callable[[Case], tuple[Path, Path]]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The inputs of a command, and what it changes. Tests must not change them."""
    known: dict[Callable[[Path, Path], None], Path] = {}

    def prepared(case: Case) -> tuple[Path, Path]:
        if case.prepare not in known:
            folder = known[case.prepare] = tmp_path_factory.mktemp("prepared")
            for name in ("inputs", "start"):
                (folder / name).mkdir()
            case.prepare(folder / "inputs", folder / "start")
        return known[case.prepare] / "inputs", known[case.prepare] / "start"

    return prepared


def require_old_or_new(seen: State, old: State, new: State) -> None:
    """Each thing is as before or after the command; only parts of a record come one by one."""
    for key in (old.keys() | new.keys() | seen.keys()) - {"page", "text"}:
        if key in seen or not key.startswith("part "):
            assert seen.get(key) in (old.get(key), new.get(key)), key
    assert seen.get("page") in (None, old.get("text"))


def finished_shards(here: Path) -> dict[Path, tuple[int, int]]:
    """Inode and time of shard files; the record of a shard is written last."""
    return {
        path: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in here.glob("store/models/*/*.npy")
        if path.with_name(f"{path.name.partition('.')[0]}.json").is_file()
    }


@pytest.mark.parametrize("name", CASES)
def test_on_disk(kill: Children, prepared: Prepared, tmp_path: Path, name: str) -> None:
    case, done, here = CASES[name], tmp_path / "done", tmp_path / "here"
    inputs, start = prepared(case)
    given = files(inputs)
    shutil.copytree(start, done)
    outcome = without_times(case.run(inputs, done))
    old, new, expected = case.look(start), case.look(done), case.result(done)
    moment, killed = 1, True
    while killed:
        shutil.copytree(start, here)
        arguments = case.given(inputs, here)
        killed = kill.killed(moment, case.function, *arguments, **case.options)
        require_old_or_new(case.look(here), old, new)
        kept = finished_shards(here)
        if killed and (name != "rm" or (here / "store/models/a").exists()):
            again = case.run(inputs, here)
            assert name not in RESULTS or without_times(again) == outcome, moment
        assert case.result(here) == expected, moment
        if name in KEEPS_SHARDS:
            assert kept.items() <= finished_shards(here).items(), moment
        shutil.rmtree(here)
        moment += case.step
    assert moment > case.least
    assert files(inputs) == given


@pytest.mark.parametrize("name", ["extract more", "sync", "rm", *["prune"][: STEP == 1]])
def test_at_a_url(s3: Bucket, prepared: Prepared, tmp_path: Path, name: str) -> None:
    """Right before and right after uploads and removals."""
    case, here, done = CASES[name], f"{s3.url}/here", tmp_path / "done"
    inputs, start = prepared(case)
    shutil.copytree(start, done)
    case.run(inputs, done)
    old, new, expected = stored(start), stored(done), without_locks(done)
    s3.upload(start, "here")
    before = {key: s3.get(key) for key in s3.keys()}  # noqa: SIM118
    call = (case.function, case.given(inputs, here), case.options)
    moment, killed = 1, True
    with children("tests.store.remote", case.function.partition(":")[0]) as started:
        while killed:
            (outcome,) = started.run(Job("tests.store.remote:killed_at", (moment, *call)))
            assert outcome in ((0, ""), (-signal.SIGKILL, "")), outcome.message
            killed = outcome.code != 0
            require_old_or_new(stored(here), old, new)
            if killed and (name != "rm" or "a" in registered(here)):
                case.run(inputs, here)
            assert without_locks(here) == expected, moment
            for key in set(s3.keys()) - before.keys():
                s3.delete(key)
            for key, body in before.items():
                s3.put(key, body)
            moment += (3 * STEP) | 1  # odd: before and after
    assert moment > (3 * STEP) | 1


def without_locks(here: Path | str) -> State:
    """The files of a folder that a URL has, too."""
    found = left(here).items()
    return {name: sha for name, sha in found if not re.search("/cache/|/[.]lock", name)}


def registered(here: str) -> set[str]:
    return {name.split("/")[2] for name in remote_files(here) if "/models/" in f"/{name}"}


@pytest.mark.parametrize("name", ["extract", "import", "sync", "merge"])
def test_on_a_full_disk(
    small_disk: Callable[[str], Path], prepared: Prepared, tmp_path: Path, name: str
) -> None:
    """Each time it has one more page: one line, and nothing is lost."""
    case, disk = CASES[name], small_disk("size=1m")
    inputs, start = prepared(case)
    done = shutil.copytree(start, tmp_path / "done")
    case.run(inputs, done)
    old, new, expected = case.look(start), case.look(done), left(done)
    for tried in itertools.count():
        remount(disk, "size=1m")
        here = shutil.copytree(start, disk / f"{tried}")
        used = sum(path.stat().st_blocks * 512 for path in disk.rglob("*")) // 1024
        remount(disk, f"size={used + 4 * (tried + 1)}k")
        complaint = tiny.complaint(case.run, inputs, here)
        if not complaint:
            break
        assert re.search("the disk is full|the disk .* has .* MB free", complaint)
        assert "\n" not in complaint
        require_old_or_new(case.look(here), old, new)
        kept = finished_shards(here)
        remount(disk, "size=1m")
        case.run(inputs, here)
        assert left(here) == expected
        assert kept.items() <= finished_shards(here).items()
        shutil.rmtree(here)
    assert left(here) == expected
    assert tried > 1
    remount(disk, "ro")
    assert case.look(here) == new
    place = here if name == "sync" else disk / "new"
    assert "the disk is read-only" in tiny.complaint(case.run, inputs, place)


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True)


@pytest.mark.skipif(STEP > 1, reason="by the clock: make fuzz")
def test_by_the_clock(process: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """Also in the middle of a write or a forward pass; at last by Ctrl-C, which says one line."""
    data = draw_digits(tmp_path / "data", 20)
    zoo = write_zoo(tmp_path / "zoo", ["separable_shapes", "cnn_photos", "mlp_glyphs_augmented"])
    start = time.monotonic()
    oodzoo.extract(data, zoo, tmp_path / "whole/store", device="cpu")
    span = time.monotonic() - start
    store = tmp_path / "here/store"
    # tests may run where SIGINT is ignored, as in a background job of a shell
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from oodzoo.cli import main; main()"
    arguments = ("extract", data, "--zoo", zoo, "--store", store, "--quiet")
    lots, kept = random.Random(7), dict[Path, tuple[int, int]]()
    for _ in range(12):
        child = process(program, *arguments)
        lock = store / ".lock"
        while child.poll() is None and not (lock.exists() and str(child.pid) in lock.read_text()):
            time.sleep(0.01)
        time.sleep(lots.uniform(0.0, span))
        child.kill()
        child.wait()
        assert finished_shards(store.parent).items() >= kept.items()
        kept = finished_shards(store.parent)
    shutil.rmtree(store)
    child = process(program, *arguments)
    while not list(store.glob("models/*/*.npy")) and child.poll() is None:
        time.sleep(0.001)
    child.send_signal(signal.SIGINT)
    _, printed = child.communicate(timeout=60)
    assert child.returncode == 130
    (line,) = filter(str.strip, printed.splitlines())
    assert "interrupted" in line
    assert not list(store.rglob(".tmp-*"))
    kept = finished_shards(store.parent)
    last = process(program, *arguments)
    assert last.communicate() == (f"3 models, 180 images, 3 domains in {store}\n", "")
    assert finished_shards(store.parent).items() >= kept.items()
    assert left(store) == left(tmp_path / "whole/store")


def test_maintenance_of_an_unfinished_store(kill: Children, tmp_path: Path) -> None:
    """Models with some shards are not finished because other models are removed or repaired."""
    data, store, fresh = tiny.write_images(tmp_path / "data"), tmp_path / "store", tmp_path / "new"
    moment = 10
    while not list(store.glob("models/b/0*.json")):
        shutil.rmtree(store, ignore_errors=True)
        assert kill.killed(moment, EXTRACT, data, ["a", "b"], store)
        moment += 1
    check_store(store, repair=True)
    assert "no finished model" in tiny.complaint(FeatureStore, store)
    remove_models(store, ["a"])
    assert "no finished model" in tiny.complaint(FeatureStore, store)
    tiny.extract(data, ["b"], store)
    tiny.extract(data, ["b"], fresh)
    assert content(store) == content(fresh)
