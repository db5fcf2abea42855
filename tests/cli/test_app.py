"""The application: usage errors, bad paths, Ctrl-C, help, version, completion, pipes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from tests.conftest import Outcome, Run, WriteImage
from tests.report.example import example_run

import oodzoo
from oodzoo.cli import app
from oodzoo.report.record import read_run
from oodzoo.store.documents import sealed
from oodzoo.zoo import ModelSpec

SCRIPT = shutil.which("oodzoo", path=sysconfig.get_path("scripts"))
# Results do not depend on the shell that the tests are started from.
SHELL = ("COLUMNS", "FORCE_COLOR", "PYTHONIOENCODING", "PYTHONUNBUFFERED")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in SHELL}

installed = pytest.mark.skipif(SCRIPT is None, reason="the command oodzoo is not installed")


def start(*arguments: str | Path, **environment: str) -> Outcome:
    """Run the installed command, in a process of its own."""
    assert SCRIPT is not None
    done = subprocess.run(
        [SCRIPT, *map(str, arguments)],
        env=ENVIRONMENT | environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_debug_shows_where(run: Run, tmp_path: Path) -> None:
    outcome = run("data", tmp_path / "none", "--debug")
    assert (outcome.code, outcome.out) == (2, "")
    assert "Traceback" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("oodzoo: ")


@pytest.mark.parametrize("arguments", [[], ["store"]])
def test_a_group_alone_shows_its_help(run: Run, arguments: list[str]) -> None:
    outcome = run(*arguments)
    assert outcome.err == ""
    assert outcome.out.rstrip("\n") == run(*arguments, "--help").out.rstrip("\n")
    assert "\n\nCommands:\n" in outcome.out


# --- bad paths --------------------------------------------------------------------------------

READING = """
data BAD/data
data GOOD/rows.csv --root BAD/data
models BAD/zoo.toml
extract BAD/data --zoo GOOD/zoo.toml --store NEW
extract GOOD/data --zoo BAD/zoo.toml --store NEW
extract GOOD/data --zoo onnx/BAD/net.onnx --store NEW
extract GOOD/data --zoo GOOD/zoo.toml --store NEW --unlabelled BAD/data
run BAD/data --zoo GOOD/zoo.toml --out NEW
run GOOD/data --zoo BAD/zoo.toml --out NEW
rank BAD/store
domains BAD/store
select BAD/store
evaluate BAD/store
fit BAD/store --out NEW
fit GOOD/store --zoo BAD/zoo.toml --out NEW
tune BAD/model GOOD/data --out NEW
tune GOOD/model BAD/data --out NEW
test BAD/model GOOD/data
test GOOD/model BAD/data
predict BAD/model GOOD/data
predict GOOD/model BAD/data
export BAD/model NEW
report BAD/job
testbed BAD/store
testbed GOOD/store --values BAD/values.csv
testbed compare BAD/result.json
import BAD/net.npz --store NEW
import GOOD/net.npy --table BAD/rows.csv --store NEW
store ls BAD/store
store du BAD/store
store rm BAD/store net
store prune BAD/store
store sync BAD/store GOOD/data
store sync GOOD/store BAD/data
store check BAD/store
store check BAD/store --repair
store merge BAD/store GOOD/store --out NEW
store merge GOOD/store BAD/store --out NEW
"""
WRITING = """
demo --out BAD/new
extract GOOD/data --zoo GOOD/zoo.toml --store BAD/new
run GOOD/data --zoo GOOD/zoo.toml --out BAD/new
rank GOOD/store --plot BAD/new.svg
fit GOOD/store --out BAD/new
tune GOOD/model GOOD/data --out BAD/new
test GOOD/model GOOD/data --out BAD/new.html
predict GOOD/model GOOD/data --out BAD/new.csv
export GOOD/model BAD/new.onnx
report GOOD/job --out BAD/new.html
testbed GOOD/store --plot BAD/new.svg
testbed GOOD/store --out BAD/new.json
import GOOD/net.npz --store BAD/new
store merge GOOD/store GOOD/store --out BAD/new
"""
"""Commands with an argument that cannot be used: a file or folder to read, or one to write."""


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.fixture(scope="module")
def inputs(
    digits: Path,
    store: oodzoo.FeatureStore,
    saved: Path,
    zoo: list[oodzoo.zoo.ModelSpec],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Everything that commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    for name, source in (("data", digits), ("store", store.path), ("model", saved)):
        shutil.copytree(source, folder / name)
    shutil.copyfile(zoo[0].file, folder / "net.onnx")
    (folder / "zoo.toml").write_text(
        '[[model]]\nname = "net"\nsource = "onnx/net.onnx"\n'
        "mean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n"
    )
    rows = [f"{path.relative_to(digits)},d,c" for path in sorted(digits.rglob("*.png"))]
    (folder / "rows.csv").write_text("\n".join(["path,domain,label", *rows]))
    (folder / "values.csv").write_text("model,seen\nnet,1\n")
    (folder / "result.json").write_text("{}")
    np.save(folder / "net.npy", np.ones((4, 2)))
    labels, domains = ["a", "b", "a", "b"], ["x", "x", "y", "y"]
    np.savez(folder / "net.npz", net=np.eye(4), labels=labels, domains=domains)
    record = replace(example_run(4), testbed=None, selection=None)
    (folder / "job").mkdir()
    (folder / "job" / "run.json").write_bytes(sealed(record.to_dict()))
    return folder


def words_of(line: str, good: Path, bad: Callable[[str], Path], new: Path) -> list[str]:
    """The arguments of a line of `READING` or `WRITING`."""
    text = line.replace("GOOD", str(good)).replace("NEW", str(new))
    return re.sub(r"BAD/(\S+)", lambda found: str(bad(found[1])), text).split()


def require_json_error(outcome: Outcome) -> None:
    assert (outcome.code, outcome.out) == (2, "")
    document = json.loads(outcome.err.splitlines()[-1])
    assert (document.keys(), document["code"]) == ({"error", "code"}, 2)


@pytest.mark.parametrize("arguments", [["rnk"], ["data"], ["data", "x", "--nonsense"]])
def test_usage_errors_are_json_too(run: Run, arguments: list[str]) -> None:
    require_json_error(run(*arguments, "--json"))


def require_input_error(outcome: Outcome) -> None:
    assert outcome.code == 2, outcome.err
    *before, last = outcome.err.splitlines()
    assert len(before) <= 1
    assert all(re.fullmatch(r"\d+ warnings?; run without -q to see \w+", line) for line in before)
    assert last.startswith("oodzoo: ")
    assert "unexpected" not in last


@pytest.mark.parametrize("line", [*lines(READING), *lines(WRITING)])
def test_names_that_are_too_long(run: Run, inputs: Path, tmp_path: Path, line: str) -> None:
    def bad(name: str) -> Path:
        return tmp_path / ("x" * 300 + Path(name).suffix)

    arguments = words_of(line, inputs, bad, tmp_path / "new")
    require_input_error(run(*arguments, "--quiet"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", [*lines(READING), *lines(WRITING)])
def test_paths_below_a_file(run: Run, inputs: Path, tmp_path: Path, line: str) -> None:
    (tmp_path / "file").write_text("content")
    arguments = words_of(line, inputs, (tmp_path / "file").joinpath, tmp_path / "new")
    require_input_error(run(*arguments, "--quiet"))
    assert (tmp_path / "file").read_text() == "content"


@pytest.mark.parametrize("line", lines(READING))
def test_empty_hidden_folders(run: Run, inputs: Path, tmp_path: Path, line: str) -> None:
    hidden = tmp_path / ".tmp-x"
    hidden.mkdir()
    arguments = words_of(line, inputs, lambda _: hidden, tmp_path / "new")
    require_json_error(run(*arguments, "-q", "--json"))
    assert list(tmp_path.rglob("*")) == [hidden]


DENYING = """
import contextlib, io, json, os, sys
from oodzoo.cli import main

folder, *lines = json.loads(sys.stdin.read())

def deny(event, arguments):
    if event in ("open", "os.listdir", "os.scandir", "os.mkdir"):
        path = arguments[0]
        if isinstance(path, (str, bytes, os.PathLike)) and folder in os.fsdecode(path):
            raise PermissionError(13, "Permission denied", os.fsdecode(path))

sys.addaudithook(deny)
outcomes = []
for line in lines:
    sys.argv = ["oodzoo", *line]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        with contextlib.redirect_stderr(io.StringIO()) as err:
            try:
                main()
            except SystemExit as ended:
                code = ended.code
    outcomes.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(outcomes))
"""


@pytest.fixture(scope="module")
def denied(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Outcomes in a process that may not open anything in a folder."""
    folder = tmp_path_factory.mktemp("denied")
    shutil.copytree(inputs, folder, dirs_exist_ok=True)
    new = tmp_path_factory.mktemp("new")
    all_lines = [*lines(READING), *lines(WRITING)]
    arguments = [
        [*words_of(line, inputs, folder.joinpath, new / str(at)), "--quiet"]
        for at, line in enumerate(all_lines)
    ]
    done = subprocess.run(
        [sys.executable, "-c", DENYING],
        input=json.dumps([str(folder), *arguments]),
        env=ENVIRONMENT | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    outcomes = (Outcome(*outcome) for outcome in json.loads(done.stdout))
    return dict(zip(all_lines, outcomes, strict=True))


@pytest.mark.parametrize("line", [*lines(READING), *lines(WRITING)])
def test_missing_rights(denied: dict[str, Outcome], line: str) -> None:
    require_input_error(denied[line])


def test_every_command_has_lines() -> None:
    all_lines = [line.split() for line in (*lines(READING), *lines(WRITING))]
    for path in LEAVES:
        assert any(tuple(words[: len(path)]) == path for words in all_lines), path


# --- warnings ---------------------------------------------------------------------------------


def test_quiet_counts_warnings(run: Run, photos: Path) -> None:
    for path in photos.rglob("1.png"):
        path.write_bytes(b"")
    shutil.copy(photos / "day/cat/2.png", photos / "night/cat/2.png")
    outcome = run("data", photos, "--json", "--quiet")
    n = len(outcome.document["warnings"])
    assert n > 1
    assert (outcome.code, outcome.err) == (0, f"{n} warnings; run without -q to see them\n")
    assert run("data", photos).err.count("warning: ") == n


WARNING = """
import sys, warnings
from oodzoo.cli.app import command, main

@command("odd", example="oodzoo odd")
def odd(terminal):
    terminal.warn("one")
    warnings.warn("two,\\n  of Python")

sys.argv = ["oodzoo", "odd", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ([], ["warning: one", "warning: two, of Python"]),
        (["-q"], ["2 warnings; run without -q to see them"]),
    ],
)
def test_warnings_of_python(options: list[str], lines: list[str]) -> None:
    command = [sys.executable, "-c", WARNING, *options]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr.splitlines()) == ("", lines)


# --- Ctrl-C -----------------------------------------------------------------------------------

PAUSING = """
import signal, sys, threading, time
from oodzoo.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
place, left = sys.argv[1], int(sys.argv[2])
listing = "os.scandir" if sys.version_info >= (3, 13) else "os.listdir"  # of Path.iterdir

def pause(event, arguments):
    global left
    if event in ("open", listing) and place in str(arguments[0]):
        if threading.current_thread() is threading.main_thread():
            left -= 1
            if left == 0:
                print("waiting", flush=True)
                time.sleep(600)

sys.addaudithook(pause)
sys.argv = ["oodzoo", *sys.argv[3:]]
main()
"""


@pytest.fixture
def interrupt(
    process: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Send SIGINT to a command when it opens files of some name the n-th time."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def interrupt(place: str, n: int, *arguments: str | Path) -> str:
        child = process(PAUSING, place, str(n), *arguments, "--quiet")
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate()
        assert (child.returncode, out) == (130, "")
        return err

    return interrupt


needs_signals = pytest.mark.skipif(os.name == "nt", reason="no SIGINT to another process")


@pytest.mark.parametrize("json", [False, True])
def test_interrupted_before_the_command_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch, json: bool
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("oodzoo.cli.help.PlainCommand.parse_args", interrupt)
    done = run("rank", "store", *(["--json"] if json else []))
    said = '{"error": "interrupted", "code": 130}\n' if json else "oodzoo: interrupted\n"
    assert (done.code, done.out, done.err) == (130, "", said)


@needs_signals
def test_interrupted_data(interrupt: Callable[..., str], photos: Path) -> None:
    assert interrupt("photos/day", 1, "data", photos) == "oodzoo: interrupted\n"


@needs_signals
def test_interrupted_extraction(
    run: Run, interrupt: Callable[..., str], inputs: Path, tmp_path: Path
) -> None:
    store = tmp_path / "features"
    arguments = ("extract", inputs / "data", "--zoo", inputs / "zoo.toml", "--store", store)
    err = interrupt("features/models/net/.tmp-", 3, *arguments)
    assert err == "oodzoo: interrupted; finished features are kept, rerun the command to resume\n"
    assert not list(tmp_path.rglob(".tmp-*"))
    assert list(store.rglob("*.npy"))
    assert run(*arguments, "--json").document["models"] == ["net"]


@needs_signals
def test_interrupted_ranking(interrupt: Callable[..., str], inputs: Path, tmp_path: Path) -> None:
    store = shutil.copytree(inputs / "store", tmp_path / "store")
    shutil.rmtree(store / "cache", ignore_errors=True)
    err = interrupt("cache/folds/", 3, "rank", store)  # reads and writes the first model's before
    assert err.startswith("oodzoo: interrupted; finished models are cached in the store")
    assert len(list(store.glob("cache/folds/*.npz"))) == 1


@needs_signals
@pytest.mark.parametrize("exists", [False, True])
def test_interrupted_fit(
    interrupt: Callable[..., str], inputs: Path, tmp_path: Path, exists: bool
) -> None:
    out = tmp_path / "predictor"
    if exists:
        shutil.copytree(inputs / "model", out)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    err = interrupt(f"{tmp_path}/", 5, "fit", inputs / "store", "--out", out)
    assert err == "oodzoo: interrupted; output files are unchanged or complete\n"
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    after.pop(out / ".lock", None)
    assert after == before


def test_every_command_that_writes_says_what_is_kept() -> None:
    silent = {("data",), ("models",), ("store", "ls"), ("store", "du")}
    root: Any = typer.main.get_command(app)
    for path in LEAVES:
        found = root
        for name in path:
            found = found.commands[name]
        text = found.callback.__wrapped__.interrupted
        assert (text == "") == (path in silent), path


# --- help, version, completion, start ---------------------------------------------------------


def command_lines(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """The names of a command, and those of the commands below it."""
    yield path
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from command_lines(below, *path, name)


COMMANDS = [path for path in command_lines(typer.main.get_command(app)) if path]
LEAVES = [path for path in COMMANDS if not any(o[: len(path)] == path != o for o in COMMANDS)]


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)  # typer insists on colours where it smells a CI


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(run: Run, option: str) -> None:
    assert run(option) == (0, f"oodzoo {oodzoo.__version__}\n", "")


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_of_every_command(run: Run, path: tuple[str, ...]) -> None:
    outcome = run(*path, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"Example: oodzoo {' '.join(path)}" in plain(outcome.out)
    assert max(outcome.out) < "\U0001f000"  # no emoji in place of a name between colons
    if path in LEAVES:
        for option in ("--json", "--verbose", "--quiet", "--debug"):
            assert option in plain(outcome.out)


HEAVY = "numpy scipy sklearn onnxruntime PIL joblib torch"


def test_import_is_light() -> None:
    wanted = f"{HEAVY} typer rich".split()
    assert python(f"import sys, oodzoo; print([m for m in {wanted} if m in sys.modules])") == "[]"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["data", "--help"]])
def test_help_and_version_load_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from oodzoo.cli import main\n"
        f"sys.argv = {['oodzoo', *arguments]}\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as ended:\n"
        "    assert not ended.code\n"
        f"print([m for m in {HEAVY.split()} if m in sys.modules])\n"
    )
    assert python(code).splitlines()[-1] == "[]"


@installed
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    outcome = start(_OODZOO_COMPLETE=f"source_{shell}")
    assert (outcome.code, outcome.err) == (0, "")
    assert "_OODZOO_COMPLETE=complete_" in outcome.out


@installed
@pytest.mark.parametrize(
    ("typed", "offered"), [("oodzoo da", "data"), ("oodzoo data --js", "--json")]
)
def test_completion(typed: str, offered: str) -> None:
    position = str(len(typed.split()) - 1)
    outcome = start(_OODZOO_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=position)
    assert (outcome.code, outcome.err) == (0, "")
    assert offered in outcome.out.split()


@installed
def test_installed_command(photos: Path, tmp_path: Path) -> None:
    outcome = start("data", photos, "--json")
    assert outcome.code == 0
    assert outcome.document["images"] == 8
    assert "no such file or folder" in start("data", tmp_path / "none").complaint


# --- pipes and terminals ----------------------------------------------------------------------


LATE = "import atexit; atexit.register(print, 'late'); from oodzoo.cli import main; main()"


def without_reader(closed: str, *arguments: str | Path, **environment: str) -> tuple[int, str]:
    """Run a command whose reader of stdout, stderr or both leaves before the first line.

    Returns the exit code, and what the open stream of the two got. Something is printed at the exit
    of the interpreter, too.
    """
    reader, writer = os.pipe()
    os.close(reader)
    streams = {name: writer if name in closed else subprocess.PIPE for name in ("stdout", "stderr")}
    try:
        done = subprocess.run(
            [sys.executable, "-c", LATE, *map(str, arguments)],
            env=ENVIRONMENT | environment,
            encoding="utf-8",
            check=False,
            **streams,  # type: ignore[call-overload]
        )
    finally:
        os.close(writer)
    return done.returncode, (done.stdout or "") + (done.stderr or "")


@pytest.mark.parametrize(
    ("closed", "bars"), [("stdout", ""), ("stderr", "1"), ("stdout stderr", "")]
)
def test_reader_that_leaves_ends_no_work(
    digits: Path, zoo: list[ModelSpec], tmp_path: Path, closed: str, bars: str
) -> None:
    models = [f"onnx/{spec.file}" for spec in zoo[1:]]
    options = ("--zoo", ",".join(models), "--out", tmp_path / "job", "--no-baselines", "--verbose")
    code, said = without_reader(closed, "run", digits, *options, FORCE_COLOR=bars)
    assert code == 0, said
    assert read_run(tmp_path / "job").predictor is not None
    assert (tmp_path / "job" / "model" / "predictor.json").is_file()
    assert (tmp_path / "job" / "report.html").is_file()
    assert "Error" not in said


@pytest.mark.parametrize(
    ("closed", "unbuffered"),
    [("stdout", ""), ("stderr", ""), ("stdout stderr", ""), ("stdout stderr", "1")],
)
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["data", "photos", "--json"], 0),  # with warnings
        (["data", "missing"], 2),
        (["data", "--nonsense"], 2),
        (["--help"], 0),
    ],
)
def test_exit_code_without_a_reader(
    photos: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    closed: str,
    unbuffered: str,
) -> None:
    shutil.copytree(photos / "day", photos / "evening")  # which is worth a warning
    monkeypatch.chdir(photos.parent)
    ended, said = without_reader(closed, *arguments, PYTHONUNBUFFERED=unbuffered)
    assert ended == code
    assert "Error" not in said


def test_predictions_that_nobody_reads_end_early(saved: Path, unseen: list[Path]) -> None:
    code, said = without_reader("stdout", "predict", saved, *unseen, "--format", "csv")
    assert (code, said) == (0, "")


@installed
def test_output_that_knows_only_ascii(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / "dämmerung/cat/1.png")
    outcome = start("data", photos, PYTHONIOENCODING="ascii")
    assert outcome.code == 0
    assert "mmerung" in outcome.out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@installed
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", ["--version", "--help", "data .", "data . --json"])
def test_full_device(photos: Path, arguments: str, unbuffered: str) -> None:
    done = subprocess.run(
        f"{SCRIPT} {arguments} > /dev/full",
        shell=True,
        cwd=photos,
        env=ENVIRONMENT | {"PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
    )
    complaint = Outcome(done.returncode, done.stdout, done.stderr).complaint
    assert complaint == "oodzoo: cannot write to stdout: No space left on device"


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@installed
@pytest.mark.parametrize(
    ("closed", "code", "prints", "complains"),
    [
        ("<&-", 0, True, False),
        (">&-", 2, False, True),
        ("2>&-", 0, True, False),
        ("<&- >&- 2>&-", 2, False, False),
    ],
)
def test_closed_streams(
    photos: Path, closed: str, code: int, prints: bool, complains: bool
) -> None:
    done = subprocess.run(
        f"{SCRIPT} data . --json {closed}",
        shell=True,
        cwd=photos,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == complains
    assert bool(done.stdout) == prints
