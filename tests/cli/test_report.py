"""`oodzoo report` on the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.report.example import example_run

from oodzoo.store.documents import sealed


@pytest.fixture
def job(tmp_path: Path) -> Path:
    run = replace(example_run(4), testbed=None, selection=None)
    (tmp_path / "run.json").write_bytes(sealed(run.to_dict()))
    return tmp_path


def test_the_page(run: Run, job: Path) -> None:
    assert run("report", job) == (0, f"{job / 'report.html'}\n", "")
    assert "model_000_imagenet" in (job / "report.html").read_text(encoding="utf-8")


def test_page_elsewhere_and_figures(run: Run, job: Path) -> None:
    document = run("report", job, "--figures", "--out", job / "page.html", "--json").document
    assert document["report"] == str(job / "page.html")
    assert str(job / "figures" / "ranking.svg") in document["figures"]
    assert all(Path(path).is_file() for path in document["figures"])
    assert not (job / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "gone"], "'gone' has no run.json; give the folder that"),
        (["report", "JOB", "--out", "JOB/run.json/page.html"], "cannot write"),
    ],
)
def test_wrong_use_is_one_line(run: Run, job: Path, arguments: list[str], message: str) -> None:
    outcome = run(*(argument.replace("JOB", str(job)) for argument in arguments))
    assert message in outcome.complaint
    assert [path.name for path in job.iterdir()] == ["run.json"]
