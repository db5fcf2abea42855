"""What holds for every command: bad paths, JSON, warnings, Ctrl-C, start, pipes and terminals."""

from __future__ import annotations

import itertools
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
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from tests.conftest import Outcome, Run, WriteImage, linked
from tests.report.example import example_run

import oodzoo
from oodzoo.cli import app
from oodzoo.report.record import read_run
from oodzoo.store.format import sealed
from oodzoo.zoo import ModelSpec

SCRIPT = shutil.which("oodzoo", path=sysconfig.get_path("scripts"))
# Results do not depend on the shell that the tests are started from.
SHELL = ("COLUMNS", "FORCE_COLOR", "PYTHONIOENCODING", "PYTHONUNBUFFERED")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in SHELL}

installed = pytest.mark.skipif(SCRIPT is None, reason="the command oodzoo is not installed")

COMMANDS = """
data @data
models @zoo.toml
extract @data --zoo @zoo.toml --store >new
extract @data --zoo @zoo.toml --store >new --unlabelled @target
rank @store --plot >new.svg
domains @store
select @store
evaluate @store --no-baselines
fit @store --out >new
test @model @data --out >new.html
predict @model @data
export @model >new.onnx
report @job --out >new.html
testbed @store --values @values.csv --out >new.json
import @net.npz --store >new
store ls @store
store du @store
store rm @store mlp_glyphs_augmented
store prune @store
store sync @store @data
store check @store
store check @store --repair
"""
"""Commands that succeed. `@` marks what is read, `>` what is written."""

LONG = """
demo --out >new
data @rows.csv --root @data
run @data --zoo @zoo.toml --out >new
tune @model @data --out >new
predict @model @data --out >new.csv
fit @store --zoo @zoo.toml --out >new
testbed @store --plot >new.svg
testbed compare @result.json
import @net.npy --table @rows.csv --store >new
store merge @store @store --out >new
"""
"""Commands that take long, or that fail for other reasons."""

SUCCEEDING = COMMANDS.strip().splitlines()
LINES = [*SUCCEEDING, *LONG.strip().splitlines()]
MARK = re.compile(r"([@>])(\S+)")


def arguments(
    line: str, good: Path, new: Path, at: int | None = None, bad: Callable[[str], Path] = Path
) -> list[str]:
    """The arguments of a line; what the mark of a number names is given by `bad`."""
    numbers = itertools.count()

    def place(found: re.Match[str]) -> str:
        if next(numbers) == at:
            return str(bad(found[2]))
        return str((good if found[1] == "@" else new) / found[2])

    return MARK.sub(place, line).split()


def marks(line: str, kinds: str = "@>") -> list[int]:
    return [at for at, found in enumerate(MARK.finditer(line)) if found[1] in kinds]


@pytest.fixture(scope="module")
def inputs(
    digits: Path,
    store: oodzoo.FeatureStore,
    saved: Path,
    zoo: list[ModelSpec],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Everything that commands read. Tests must not change it."""
    folder = tmp_path_factory.mktemp("inputs")
    for name, source in (("data", digits), ("store", store.path), ("model", saved)):
        linked(source, folder / name)
    linked(digits / "chalk" / "1", folder / "target")
    shutil.copyfile(zoo[0].file, folder / "net.onnx")
    (folder / "zoo.toml").write_text(
        '[[model]]\nname = "net"\nsource = "onnx/net.onnx"\n'
        "mean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n"
    )
    paths = [path.relative_to(digits) for path in sorted(digits.rglob("*.png"))]
    rows = [f"{path.as_posix()},d,c" for path in paths]
    (folder / "rows.csv").write_text("\n".join(["path,domain,label", *rows]))
    (folder / "values.csv").write_text("model,seen\nmlp_glyphs_augmented,1\n")
    (folder / "result.json").write_text("{}")
    np.save(folder / "net.npy", np.ones((4, 2)))
    labels, domains = ["a", "b", "a", "b"], ["x", "x", "y", "y"]
    np.savez(folder / "net.npz", net=np.eye(4), labels=labels, domains=domains)
    record = replace(example_run(4), testbed=None, selection=None)
    (folder / "job").mkdir()
    (folder / "job" / "run.json").write_bytes(sealed(record.to_dict()))
    return folder


def require_input_error(outcome: Outcome, *, is_json: bool = False) -> None:
    """One line, after a line that counts warnings; in JSON, nothing else."""
    assert outcome.code == 2, outcome.err
    *before, last = outcome.err.splitlines()
    assert len(before) <= 1
    assert all(re.fullmatch(r"\d+ warnings?; run without -q to see \w+", line) for line in before)
    if is_json:
        assert outcome.out == ""
        document = json.loads(last)
        assert (document.keys(), document["code"]) == ({"error", "code"}, 2)
    else:
        assert last.startswith("oodzoo: ")
        assert "unexpected" not in last


# --- JSON and bad paths -----------------------------------------------------------------------


@pytest.mark.parametrize("line", SUCCEEDING)
def test_json_is_one_document(run: Run, inputs: Path, tmp_path: Path, line: str) -> None:
    good = linked(inputs, tmp_path / "good")
    done = run(*arguments(line, good, tmp_path), "--json", "--quiet")
    assert done.code == 0, done.err
    assert isinstance(done.document, dict)
    assert not [line for line in done.err.splitlines() if "; run without -q to see" not in line]
    written = [tmp_path / name for kind, name in MARK.findall(line) if kind == ">"]
    assert all(path.exists() for path in written)


@pytest.mark.parametrize("line", LINES)
def test_bad_paths_are_one_line(run: Run, inputs: Path, tmp_path: Path, line: str) -> None:
    file, hidden = tmp_path / "file", tmp_path / ".tmp-x"
    file.write_text("content")
    hidden.mkdir()

    def too_long(name: str) -> Path:
        return tmp_path / ("x" * 300 + Path(name).suffix)

    for at in marks(line):
        for bad in (too_long, file.joinpath):
            words = arguments(line, inputs, tmp_path, at, bad)
            require_input_error(run(*words, "--quiet"))
    for at in marks(line, "@"):
        words = arguments(line, inputs, tmp_path, at, lambda _: hidden)
        require_input_error(run(*words, "-q", "--json"), is_json=True)
    assert sorted(tmp_path.rglob("*")) == [hidden, file]
    assert file.read_text() == "content"


@pytest.mark.parametrize("arguments", [["rnk"], ["data"], ["data", "x", "--nonsense"]])
def test_usage_errors_are_json_too(run: Run, arguments: list[str]) -> None:
    require_input_error(run(*arguments, "--json"), is_json=True)


def test_debug_shows_where(run: Run, tmp_path: Path) -> None:
    outcome = run("data", tmp_path / "none", "--debug")
    assert (outcome.code, outcome.out) == (2, "")
    assert "Traceback" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("oodzoo: ")


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

    monkeypatch.setattr(import_module("oodzoo.cli.app").PlainCommand, "parse_args", interrupt)
    done = run("rank", "store", *(["--json"] if json else []))
    said = '{"error": "interrupted", "code": 130}\n' if json else "oodzoo: interrupted\n"
    assert (done.code, done.out, done.err) == (130, "", said)


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
    store = linked(inputs / "store", tmp_path / "store")
    shutil.rmtree(store / "cache", ignore_errors=True)
    err = interrupt("cache/folds/", 3, "rank", store)  # reads and writes the first model's before
    assert err.startswith("oodzoo: interrupted; finished models are cached in the store")
    assert len(list(store.glob("cache/folds/*.npz"))) == 1


# --- every command -----------------------------------------------------------------------------


def command_lines(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """The names of a command, and those of the commands below it."""
    yield path
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from command_lines(below, *path, name)


NAMES = [path for path in command_lines(typer.main.get_command(app)) if path]
LEAVES = [path for path in NAMES if not any(o[: len(path)] == path != o for o in NAMES)]


def test_every_command_has_lines_and_says_what_is_kept_when_interrupted() -> None:
    silent = {("data",), ("models",), ("store", "ls"), ("store", "du")}
    root: Any = typer.main.get_command(app)
    words = [tuple(line.split()) for line in LINES]
    for path in LEAVES:
        assert any(each[: len(path)] == path for each in words), path
        found = root
        for name in path:
            found = found.commands[name]
        assert (found.callback.__wrapped__.interrupted == "") == (path in silent), path


@pytest.mark.parametrize("path", NAMES, ids=" ".join)
def test_help_of_every_command(run: Run, path: tuple[str, ...]) -> None:
    outcome = run(*path, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    text = re.sub(r"\x1b\[[0-9;]*m", "", outcome.out)  # typer insists on colours in a CI
    assert f"Example: oodzoo {' '.join(path)}" in text
    assert max(text) < "\U0001f000"  # no emoji in place of a name between colons
    if path in LEAVES:
        assert all(f"{each} " in text for each in ("--json", "--verbose", "--quiet", "--debug"))
    else:
        alone = run(*path)
        assert (alone.out.rstrip("\n"), alone.err) == (outcome.out.rstrip("\n"), "")


# --- the program -------------------------------------------------------------------------------


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


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(run: Run, option: str) -> None:
    assert run(option) == (0, f"oodzoo {oodzoo.__version__}\n", "")


HEAVY = "numpy scipy sklearn onnxruntime PIL joblib torch"


def test_imports_and_help_load_nothing_heavy() -> None:
    wanted = f"{HEAVY} typer rich".split()
    imported = "import sys, oodzoo, oodzoo.demo; print([m for m in {} if m in sys.modules])"
    assert python(imported.format(wanted)) == "[]"
    code = (
        "import sys\n"
        "from oodzoo.cli import main\n"
        "for arguments in (['--help'], ['--version'], ['data', '--help']):\n"
        "    sys.argv = ['oodzoo', *arguments]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as ended:\n"
        "        assert not ended.code\n"
        f"print([m for m in {HEAVY.split()} if m in sys.modules])\n"
    )
    assert python(code).splitlines()[-1] == "[]"


@installed
def test_completion() -> None:
    outcome = start(_OODZOO_COMPLETE="source_bash")
    assert (outcome.code, outcome.err) == (0, "")
    assert "_OODZOO_COMPLETE=complete_" in outcome.out
    for typed, offered in (("oodzoo da", "data"), ("oodzoo data --js", "--json")):
        position = str(len(typed.split()) - 1)
        outcome = start(_OODZOO_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=position)
        assert (outcome.code, outcome.err) == (0, "")
        assert offered in outcome.out.split()


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


def test_reader_that_leaves_ends_no_work(
    digits: Path, zoo: list[ModelSpec], tmp_path: Path
) -> None:
    models = [f"onnx/{spec.file}" for spec in zoo[1:]]
    options = ("--zoo", ",".join(models), "--no-baselines", "--limit", "36", "--top-k", "1", "-v")
    arguments = ("run", digits, "--out", tmp_path / "job", *options)
    code, said = without_reader("stdout stderr", *arguments, FORCE_COLOR="1")
    assert code == 0, said
    assert read_run(tmp_path / "job").predictor is not None
    assert (tmp_path / "job" / "model" / "predictor.json").is_file()
    assert (tmp_path / "job" / "report.html").is_file()
    assert "Error" not in said


@pytest.mark.parametrize(
    ("arguments", "code", "closed", "unbuffered"),
    [
        ("data photos --json", 0, "stdout", ""),  # with warnings
        ("data photos --json", 0, "stdout stderr", "1"),
        ("data missing", 2, "stdout stderr", "1"),
        ("--help", 0, "stdout", "1"),
    ],
)
def test_exit_code_without_a_reader(
    photos: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    code: int,
    closed: str,
    unbuffered: str,
) -> None:
    shutil.copytree(photos / "day", photos / "evening")  # which is worth a warning
    monkeypatch.chdir(photos.parent)
    ended, said = without_reader(closed, *arguments.split(), PYTHONUNBUFFERED=unbuffered)
    assert ended == code
    assert "Error" not in said


@installed
def test_output_that_knows_only_ascii(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / "dämmerung/cat/1.png")
    outcome = start("data", photos, PYTHONIOENCODING="ascii")
    assert outcome.code == 0
    assert "mmerung" in outcome.out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@installed
@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [("--help", "1"), ("data . --json", "")],
)
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
