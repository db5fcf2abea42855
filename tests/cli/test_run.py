"""`oodzoo run`: what is printed and written, and what must not be written."""

from __future__ import annotations

import html
import json
import platform
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cluster.data import write_zoo
from tests.conftest import Outcome, Run
from tests.report.example import example_run

from oodzoo.cli.run import _typed_command, next_steps
from oodzoo.core.tables import aligned
from oodzoo.demo import write_digits
from oodzoo.report.record import PredictorSummary, read_run
from oodzoo.zoo import ModelSpec, load_zoo


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Handwritten digits of three domains."""
    folder = write_digits(tmp_path_factory.mktemp("digits"), per_class=10)
    for domain in ("tilted", "collage", "marker"):
        shutil.rmtree(folder / domain)
    return folder


def commands(outcome: Outcome | str) -> list[list[str]]:
    """The commands with arguments that are printed, as their words."""
    text = outcome if isinstance(outcome, str) else outcome.out + outcome.err
    found = re.findall("`(oodzoo [^`]*)`|(?<!`)(oodzoo (?:store )?[a-z]+ .*)", text)
    words = [shlex.split("".join(each)) for each in found]
    return [each for each in words if len(each) > 2]


def test_a_run_and_the_commands_that_it_prints(run: Run, digits: Path, tmp_path: Path) -> None:
    place = tmp_path / "my daughter's photos"
    job, copy, model = place / "a job", place / "a store", place / "a model"
    zoo = write_zoo(tmp_path / "zoo", [spec.name for spec in load_zoo("demo")[::6]])
    options = ("--limit", "90", "--device", "cpu", "--published", "PACS", "--testbed")
    command = ("run", digits, "--zoo", zoo, "--out", job, *options)
    first = run(*command)
    assert first.code == 0, first.err
    assert "1. Extract features of 4 models" in first.err
    for words in ("90 images, 3 domains", "Selection", "weighted tau", "90 %", str(job)):
        assert words in first.out
    *_, result = first.out.partition("\nResult: ")
    sentence, *_ = result.partition("\n  accuracy ")
    assert "correctly" in sentence
    assert re.search(r"\n  accuracy .*\n  cost .*\n  compared ", result, flags=re.S)
    again = run(*command, "--json")
    assert again.err.count("reused from an earlier run") == 7
    document = again.document
    assert document["ranking"]["ranking"][0]["rank"] == 1
    assert document["evaluation"]["selection"]["average"] > 0
    published = document["evaluation"]["published"]
    assert published["dataset"] == "PACS"
    assert published["hours"]["extraction"] > 0
    assert "Beside published results on PACS" in Path(document["report"]).read_text()
    detailed = run(*command, "--verbose")
    for words in ("evid.", "w. tau", "random features", "the class columns"):
        assert words.lower() in detailed.out.lower()
    assert "Done in" in detailed.err

    shutil.copytree(job / "store", copy)
    printed = [first, run("fit", copy, "--choose", "single", "--out", model)]
    printed += [run("rank", copy, "--target", "new"), run("store", "sync", copy, digits)]
    shutil.rmtree(next((copy / "models").iterdir()))
    printed += [run("store", "check", copy), run("rank", copy), run("predict", copy, digits)]
    for each in printed:
        found = commands(each)
        assert found, each
        for line in found:
            paths = [Path(word) for word in line if word.startswith(str(tmp_path))]
            assert paths, line
            assert all(path.exists() for path in paths), line
    page = html.unescape(re.sub("<[^>]*>", "\n", (job / "report.html").read_text()))
    assert ["oodzoo", "export", "model/", "model.onnx"] in commands(page)
    assert commands((model / "README.md").read_text())


TARGETS: dict[str, tuple[Callable[[int], str], str, str]] = {
    "regression": (lambda digit: f"{digit / 2}", "explained_variance", "absolute_error"),
    "multilabel": (
        lambda digit: "|".join(
            name
            for name, has in (
                ("even", digit % 2 == 0), ("large", digit > 4), ("round", digit in (0, 6, 8, 9))
            )
            if has
        ),
        "average_precision",
        "exact_match",
    ),
}  # fmt: skip
"""What is predicted of a digit, and by what it is judged."""


def table_of(digits: Path, file: Path, task: str) -> Path:
    """A table of the digits with another target than their class."""
    label, _, _ = TARGETS[task]
    lines = ["path,domain,label"]
    for path in sorted(digits.rglob("*.png"))[::2]:
        domain, digit, _ = path.relative_to(digits).parts
        lines.append(f"{path},{domain},{label(int(digit))}")
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


@pytest.mark.parametrize("task", TARGETS)
def test_other_targets_than_classes(run: Run, digits: Path, tmp_path: Path, task: str) -> None:
    _, metric, second = TARGETS[task]
    table, out = table_of(digits, tmp_path / "table.csv", task), tmp_path / "run"
    *_, last = lines = table.read_text(encoding="utf-8").splitlines()
    path, facts = last.split(",", 1)
    shutil.copy(path, tmp_path / "copy.png")
    (tmp_path / "bad.png").write_text("no image", encoding="utf-8")
    lines += [f"{tmp_path / name},{facts}" for name in ("copy.png", "bad.png")]
    table.write_text("\n".join(lines), encoding="utf-8")
    n = len(lines) - 1
    given = ("run", table, "--zoo", "demo/separable*", "--out", out, "--task", task)
    options = ("--device", "cpu", "--no-baselines", "--testbed")
    if task == "regression":
        assert "needs classes" in run(*given, "--protocol", "domainbed").complaint
        assert not out.exists()
    outcome = run(*given, *options)
    assert outcome.code == 0, outcome.err
    words = metric.replace("_", " ")
    used = f"so the models run on {n - 1}; 1 cannot be read, so {n - 1} are used\n"
    assert f"\n{n} images: 1 is identical to another, {used}" in outcome.out
    assert re.search(rf"^  {words} +[0-9.]+ % ", outcome.out, flags=re.M)
    assert "accuracy" not in outcome.out
    assert "test bed skipped" in outcome.err
    document = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert (document["task"], document["metric"]) == (task, metric)
    best = document["ranking"]["ranking"][0]
    assert best["model"] == "separable_glyphs_colour"  # the only one that has seen characters
    assert best[f"expected_{metric}"] > 50
    assert document["evaluation"]["single"][second]["average"] > 0
    assert document["settings"]["task"] == task
    page = re.sub(
        r"<(style|script)>.*?</\1>", "", (out / "report.html").read_text("utf-8"), flags=re.S
    )
    assert "accuracy" not in page
    assert f"{words[0].upper()}{words[1:]} on unseen domains" in page
    assert page.count("<img ") == 20  # two of them are the copies
    again = run("report", out, "--out", tmp_path / "again.html")
    assert again.code == 0, again.err
    assert (tmp_path / "again.html").read_bytes() == (out / "report.html").read_bytes()
    repeated = run(*given, *options)
    assert repeated.err.count("reused from an earlier run") == 6


def test_a_log_file_has_every_stage(run: Run, digits: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    options = ("--zoo", "onnx/nothing.onnx", "--no-baselines", "--log-file", log)
    failed = run("run", digits, "--out", tmp_path / "run", "--limit", "90", *options)
    assert failed.code == 2
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["stage"], line["status"]) for line in lines if line["event"] == "end"] == [
        ("extraction", "failed"),
        ("run", "failed"),
    ]
    assert lines[-1]["error"] in failed.err


MARKER = "alice-secret"
ZOO = """
[[model]]
name = "good"
source = "onnx/{folder}/models/good.onnx"
mean = [0.5, 0.5, 0.5]
std = [0.5, 0.5, 0.5]

[[model]]
name = "also"
source = "onnx/models/also.onnx"
mean = [0.5, 0.5, 0.5]
std = [0.5, 0.5, 0.5]

[[model]]
name = "broken"
source = "onnx/models/broken.onnx"

[[model]]
name = "gone"
source = "onnx/{folder}/models/gone.onnx"
"""


def test_files_to_share_do_not_name_the_folders_above(
    run: Run, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "homes" / MARKER
    shutil.copytree(digits, home / "photos")
    (home / "models").mkdir()
    files = [spec.file for spec in load_zoo("demo")[:2]]
    for file, name in zip(files, ("good", "also"), strict=True):
        shutil.copyfile(file, home / "models" / f"{name}.onnx")
    (home / "models" / "broken.onnx").write_bytes(b"no model")
    (home / "zoo.toml").write_text(ZOO.format(folder=home.as_posix()))
    monkeypatch.chdir(tmp_path)
    given = home.relative_to(tmp_path)
    options = ("--limit", "90", "--device", "cpu", "--no-baselines", "--top-k", "2")
    log = ("--log-file", home / "log.jsonl")
    zoo = f"--zoo={given / 'zoo.toml'}"
    made = run("run", home / "photos", zoo, "--out", given / "job", *options, *log)
    assert made.code == 0, made.err

    job = home / "job"
    record = read_run(job)
    assert record.command.startswith("oodzoo run photos --zoo=zoo.toml --out job --limit 90")
    assert record.data is not None
    assert record.data.path == record.settings["data"] == "photos"
    assert record.extraction is not None
    assert record.extraction.failed.keys() == {"broken", "gone"}
    assert record.machine.keys() == {"cores", "system"}
    assert platform.node() not in record.machine["system"]
    logged = [json.loads(line) for line in (home / "log.jsonl").read_text().splitlines()]
    ends = [(line["stage"], line["status"]) for line in logged if line["event"] == "end"]
    assert ends == [*((stage.name, "done") for stage in record.stages), ("run", "done")]
    own = ("local.json", "oodzoo.toml")  # the paths as they were given, to run it again
    shared = [path for path in job.rglob("*") if path.is_file() and path.name not in own]
    assert {"run.json", "report.html", "predictor.json"} < {path.name for path in shared}
    assert [path.name for path in shared if MARKER.encode() in path.read_bytes()] == []

    page = job / "report.html"
    thumbnails = page.read_text(encoding="utf-8").count("data:image/jpeg")
    assert thumbnails > 3
    page.unlink()
    assert run("report", job).code == 0
    assert page.read_text(encoding="utf-8").count("data:image/jpeg") == thumbnails
    assert MARKER not in page.read_text(encoding="utf-8")
    (job / "local.json").unlink()
    assert run("report", job).code == 0
    assert "data:image/jpeg" not in page.read_text(encoding="utf-8")


def test_the_record_has_neither_uris_nor_folders(tmp_path: Path) -> None:
    """`_typed_command` alone: a run would need the database and the patterns."""
    uris = ["--mlflow", "postgresql://me:secret@host/db", "--mlflow=sqlite:////home/me/x.db?a=b"]
    patterns = ["--zoo", f"onnx/{tmp_path}/*.onnx,timm/vit*,hf/{tmp_path}/v?t"]
    for given, typed in (
        (uris, "--mlflow 'postgresql://…' '--mlflow=sqlite://…'"),
        (patterns, "--zoo 'onnx/*.onnx,timm/vit*,hf/v?t'"),
        ([f"--zoo=onnx/{tmp_path}/[ab].onnx"], "'--zoo=onnx/[ab].onnx'"),
    ):
        assert _typed_command(["run", *given], Path("job"), load_zoo("demo")) == (
            f"oodzoo run {typed}"
        )


@pytest.mark.parametrize(
    ("source", "texts", "steps"),
    [
        ("onnx/net.onnx", False, ["look", "predict", "test"]),
        ("timm/resnet50", False, ["look", "predict", "test", "fine-tune"]),
        ("hf/a/b", True, ["look", "predict", "test"]),
        (None, False, ["look"]),
    ],
)
def test_next_steps(source: str | None, texts: bool, steps: list[str]) -> None:
    made = PredictorSummary("model", ("net",), "", "single") if source else None
    zoo = [ModelSpec("net", source)] if source else []
    given = replace(example_run(), predictor=made)
    found = next_steps(given, Path("job"), zoo, texts=texts)
    assert [name.split()[0] for name, _ in found] == steps
    assert any("TEXTS.csv" in command for _, command in found) == texts
    assert all("job" in command for _, command in found)
    assert aligned([]) == []
