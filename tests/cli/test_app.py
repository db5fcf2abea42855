"""The command line, as a person and as a script meet it."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main
from PIL import Image

import oodzoo
from oodzoo.cli import app, main

WriteImage = Callable[[Path], Path]
SCRIPT = shutil.which("oodzoo", path=sysconfig.get_path("scripts"))
# what the tests say shall not depend on the shell they are started from
SHELL = ("COLUMNS", "FORCE_COLOR", "PYTHONIOENCODING", "PYTHONUNBUFFERED")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in SHELL}

installed = pytest.mark.skipif(SCRIPT is None, reason="the command oodzoo is not installed")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line that a wrong use deserves, and nothing else anywhere."""
        assert (self.code, self.out) == (2, "")
        (line,) = self.err.splitlines()
        assert line.startswith("oodzoo: ")
        return line


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process, which is quicker than starting another one."""
    for name in SHELL:
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["oodzoo", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), out, err)

    return run


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


# --- oodzoo data --------------------------------------------------------------------------------


def test_table_of_counts(run: Run, photos: Path, write_image: WriteImage) -> None:
    write_image(photos / "day/cat/3.png")
    outcome = run("data", photos)
    assert outcome.code == 0
    cells = [line.split() for line in outcome.out.splitlines()]
    for row in (["class", "day", "night"], ["cat", "3", "2"], ["dog", "2", "2"], ["all", "5", "4"]):
        assert row in cells
    assert "9 images, 2 domains, 2 classes" in outcome.out
    assert "warning" not in outcome.err


def test_json_document(run: Run, photos: Path) -> None:
    outcome = run("data", photos, "--json")
    assert outcome.code == 0
    document = outcome.document
    assert document["images"] == 8
    assert document["domains"] == ["day", "night"]
    assert document["classes"] == ["cat", "dog"]
    assert document["counts"]["night"] == {"cat": 2, "dog": 2}
    assert document["fingerprint"] == oodzoo.ImageDomains(photos).fingerprint
    assert document["warnings"] == []


def test_table_of_images_with_groups(run: Run, photos: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    with table.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "domain", "label", "group"])
        rows.writerows([s.path, s.domain, s.label, s.label] for s in oodzoo.ImageDomains(photos))
    outcome = run("data", table, "--root", photos, "--json")
    assert outcome.document["groups"] == 2
    (warning,) = outcome.document["warnings"]
    assert "'cat', 'dog'" in warning["message"]
    assert warning["kind"] == "leak"


def test_every_oddity_is_a_warning_and_named(
    run: Run, photos: Path, write_image: WriteImage
) -> None:
    write_image(photos / "day/bird/1.png")
    write_image(photos / "dusk/cat/1.png")
    (photos / "day/cat/broken.JPG").write_text("this is no picture")
    shutil.copy(photos / "day/dog/1.png", photos / "night/dog/copy.png")
    (photos / "night/loop").symlink_to(photos)
    plain, machine = run("data", photos), run("data", photos, "--json")
    warnings = machine.document["warnings"]
    assert sorted(w["kind"] for w in warnings) == [
        *("leak", "link loop", "missing class", "one class", "unreadable")
    ]
    for outcome in (plain, machine):
        lines = [line for line in outcome.err.splitlines() if line.startswith("warning: ")]
        assert [f"warning: {w['message']}" for w in warnings] == lines
        assert outcome.code == 0
    (leak,) = [w for w in warnings if w["kind"] == "leak"]
    assert "LEAK" in leak["message"]
    assert leak["paths"] == ["day/dog/1.png", "night/dog/copy.png"]


def test_quiet_leaves_results_and_warnings(run: Run, photos: Path) -> None:
    (photos / "day/cat/empty.png").touch()
    outcome = run("data", photos, "--quiet")
    assert "9 images" in outcome.out
    assert outcome.err == "warning: 'day/cat/empty.png': the file is empty (0 bytes)\n"
    assert run("data", photos, "--quiet", "--json").document["images"] == 9


def test_quick_counts_without_opening(run: Run, photos: Path) -> None:
    (photos / "day/cat/empty.png").touch()
    outcome = run("data", photos, "--quick", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert (outcome.document["images"], outcome.document["fingerprint"]) == (9, None)


@pytest.mark.parametrize("side", [10_000, 20_000])
def test_image_bomb_is_one_warning(run: Run, photos: Path, side: int) -> None:
    Image.new("1", (side, side)).save(photos / "day/cat/bomb.png")
    outcome = run("data", photos, "--quiet")
    assert outcome.code == 0
    (line,) = outcome.err.splitlines()
    assert line.startswith("warning: 'day/cat/bomb.png': more than")


def test_names_are_shown_as_they_are(run: Run, photos: Path, write_image: WriteImage) -> None:
    name = "[red] :dog:  straße 猫"
    write_image(photos / name / "cat/1.png")
    (photos / name / "cat/:dog:.png").touch()
    outcome = run("data", photos, "--quiet")
    assert name in outcome.out
    assert f"domain {name!r} has" in outcome.err
    assert f"{name}/cat/:dog:.png" in outcome.err
    assert name in run("data", photos, "--json").document["domains"]


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["", "--json", "--quiet"])
def test_missing_data_is_one_line(run: Run, tmp_path: Path, option: str) -> None:
    arguments = [tmp_path / "two  spaces", *([option] if option else [])]
    assert "two  spaces' does not exist" in run("data", *arguments).complaint


def test_debug_shows_where(run: Run, tmp_path: Path) -> None:
    outcome = run("data", tmp_path / "none", "--debug")
    assert (outcome.code, outcome.out) == (2, "")
    assert "Traceback" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("oodzoo: ")


def test_bad_folders_are_one_line(run: Run, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    shutil.copytree(photos / "day", tmp_path / "one/day")
    for source, words in [
        (photos / "day/cat/1.png", "is a file"),
        (tmp_path / "empty", "no image found"),
        (tmp_path / "one", "one domain, 'day'"),
        (photos / "day", "one level too high"),
    ]:
        assert words in run("data", source).complaint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("path;domain;label\na;b;c\n", "by commas"),
        ("path,domain\na,b\n", "lacks the column 'label'"),
        ("path,domain,label\n", "no row below"),
        ("path,domain,label\n,day,cat\n", "line 2: no path in ',day,cat'"),
        ("path,domain,label\n../x.png,day,cat\n", "'../x.png' leads outside"),
        ("path,domain,label\nx.png,day,cat\n", "no image 'x.png'"),
        ('path,domain,label\n"x\ny.png",day,cat\n', r"no image 'x\ny.png'"),
        (b"path,domain,label\n\xff,day,cat\n", "not UTF-8"),
    ],
)
def test_bad_tables_are_one_line(run: Run, tmp_path: Path, text: str | bytes, words: str) -> None:
    table = tmp_path / "table.csv"
    table.write_bytes(text.encode() if isinstance(text, str) else text)
    complaint = run("data", table).complaint
    assert words in complaint
    assert "table.csv" in complaint


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes only on Linux")
def test_name_that_is_no_text(run: Run, photos: Path) -> None:
    shutil.copy(photos / "day/cat/1.png", photos / "day/cat" / os.fsdecode(b"caf\xe9.png"))
    assert r"b'caf\xe9.png'" in run("data", photos).complaint
    odd_root = photos.rename(photos.parent / os.fsdecode(b"caf\xe9"))
    (odd_root / "day/cat" / os.fsdecode(b"caf\xe9.png")).unlink()
    assert run("data", odd_root, "--json").document["images"] == 8


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["data", "x", "--nonsense"], "--nonsense"),
        (["--nonsense"], "--nonsense"),
        (["dta"], "'dta'"),
        (["data"], "'DATA'"),
        (["data", "x", "y"], "y"),
        (["data", "x", "--root"], "--root"),
        (["data", "x", "--json=maybe"], "--json"),
    ],
)
def test_wrong_use_is_one_line(run: Run, arguments: list[str], words: str) -> None:
    complaint = run(*arguments).complaint
    assert words in complaint
    assert "--help" in complaint


# --- help, version, completion, start ---------------------------------------------------------


def command_lines(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """The names of a command, and those of the commands below it."""
    yield path
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from command_lines(below, *path, name)


COMMANDS = [path for path in command_lines(typer.main.get_command(app)) if path]


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)  # typer insists on colours where it smells a CI


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"oodzoo {oodzoo.__version__}\n", "")


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_every_command(run: Run, option: str) -> None:
    outcome = run(option)
    assert (outcome.code, outcome.err) == (0, "")
    assert ("data",) in COMMANDS
    assert all(path[0] in plain(outcome.out) for path in COMMANDS)
    assert "Example: oodzoo" in plain(outcome.out)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_of_every_command(run: Run, path: tuple[str, ...]) -> None:
    outcome = run(*path, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"Example: oodzoo {' '.join(path)}" in plain(outcome.out)
    if not any(other[: len(path)] == path for other in COMMANDS if other != path):
        for option in ("--json", "--quiet", "--debug"):
            assert option in plain(outcome.out)


HEAVY = "numpy scipy sklearn onnxruntime PIL matplotlib joblib torch"


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
    assert "does not exist" in start("data", tmp_path / "none").complaint


# --- pipes and terminals ----------------------------------------------------------------------


def closed_pipe(*arguments: str | Path) -> tuple[int, str]:
    """Run with a reader of stdout that has left before the first line, as `| true` would."""
    assert SCRIPT is not None
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [SCRIPT, *map(str, arguments)],
            env=ENVIRONMENT,
            stdout=writer,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr.strip()


@installed
@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_reader_that_leaves_causes_no_noise(photos: Path, option: str) -> None:
    assert closed_pipe("data", photos, option)[1] == ""


@installed
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_head_of_the_output(photos: Path, unbuffered: str) -> None:
    done = subprocess.run(
        f"{SCRIPT} data photos --json --quiet | head -1",
        shell=True,
        cwd=photos.parent,
        env=ENVIRONMENT | {"PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("{\n", "")


@installed
@pytest.mark.parametrize("arguments", [["data"], ["--version"], ["--help"]])
def test_reader_that_leaves_is_no_fault_of_ours(photos: Path, arguments: list[str]) -> None:
    source = [photos] if arguments == ["data"] else []
    assert closed_pipe(*arguments, *source) == (0, "")


@installed
def test_output_that_knows_only_ascii(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / "dämmerung/cat/1.png")
    outcome = start("data", photos, PYTHONIOENCODING="ascii")
    assert outcome.code == 0
    assert "mmerung" in outcome.out


def test_many_domains_keep_their_counts(run: Run, photos: Path, write_image: WriteImage) -> None:
    domains = [f"camera_{i:02d}" for i in range(20)]
    for domain in domains:
        write_image(photos / domain / "cat/1.png")
    outcome = run("data", photos, "--quick")
    assert all(domain in outcome.out for domain in domains)
