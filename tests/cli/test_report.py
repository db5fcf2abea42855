"""`oodzoo report` on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.example import example_run

from oodzoo.cli import main
from oodzoo.store.documents import sealed

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["oodzoo", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def job(tmp_path: Path) -> Path:
    run = replace(example_run(4), testbed=None, selection=None)
    (tmp_path / "run.json").write_bytes(sealed(run.to_dict()))
    return tmp_path


def test_the_page(run: Run, job: Path) -> None:
    code, out, err = run("report", job)
    assert (code, out.split(), err) == (0, [str(job / "report.html")], "")
    assert "model_000_imagenet" in (job / "report.html").read_text(encoding="utf-8")


def test_page_elsewhere_and_figures(run: Run, job: Path) -> None:
    code, out, _ = run("report", job, "--figures", "svg", "--out", job / "page.html", "--json")
    document = json.loads(out)
    assert (code, document["report"]) == (0, str(job / "page.html"))
    assert str(job / "figures" / "ranking.svg") in document["figures"]
    assert all(Path(path).is_file() for path in document["figures"])
    assert not (job / "report.html").exists()


def test_the_old_word_for_figures(run: Run, job: Path) -> None:
    code, out, err = run("report", job, "--format", "svg")
    assert (code, err.count("warning: --format is deprecated; use --figures")) == (0, 1)
    assert str(job / "figures" / "ranking.svg") in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "gone"], "'gone' has no run.json; give the folder that"),
        (
            ["report", "JOB", "--figures", "gif"],
            "unknown format 'gif'; expected one of png, svg, pdf",
        ),
        (["report", "JOB", "--out", "JOB/run.json/page.html"], "cannot write"),
    ],
)
def test_wrong_use_is_one_line(run: Run, job: Path, arguments: list[str], message: str) -> None:
    code, out, err = run(*(argument.replace("JOB", str(job)) for argument in arguments))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("oodzoo: ")
    assert message in err
    assert [path.name for path in job.iterdir()] == ["run.json"]
