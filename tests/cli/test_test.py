"""`oodzoo test`: a short result, JSON, and a page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.fixtures import draw_digits

import oodzoo


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits of one new domain, `root/class/image`, one of them with a wrong label."""
    root = draw_digits(tmp_path_factory.mktemp("labelled"), 4, domains=("tilted",)) / "tilted"
    first = min((root / "0").iterdir())
    first.rename(root / "1" / first.name)
    return root


def test_the_result_is_short_and_readable(
    run: Run, saved: Path, labelled: Path, tmp_path: Path
) -> None:
    page = tmp_path / "new" / "page.html"
    done = run("test", saved, labelled, "--out", page)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split()[:3] == ["domain", "images", "Accuracy"]
    assert lines[2].split()[:2] == ["tilted", "12"]
    for words in (
        "of 12 images of 1 domain are classified correctly (90 % interval",
        "Classes, the weakest first",
        "Most frequent confusions",
        "Most confident mistakes",
        "What to do next:",
        "- Test more images.",
        f"Report: {page}",
    ):
        assert words in done.out
    tables = [line for line in lines if not line.endswith(".") and not line.startswith("Report")]
    assert max(map(len, tables)) <= 80
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "data:image/jpeg" in page.read_text(encoding="utf-8")


def test_json_is_the_document_of_the_result(run: Run, saved: Path, labelled: Path) -> None:
    document = run("test", saved, labelled, "--json").document
    expected = json.loads(json.dumps(oodzoo.test(saved, labelled).to_dict()))
    assert document == expected | {"model": str(saved), "report": None}
    assert set(document["per_class"]) == {"0", "1", "2"}


def test_a_folder_gets_test_html(run: Run, saved: Path, labelled: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    document = run(
        "test", saved, labelled, "--out", tmp_path / "pages", "--log-file", log, "--json"
    ).document
    assert Path(document["report"]) == tmp_path / "pages" / "test.html"
    assert (tmp_path / "pages" / "test.html").is_file()
    text = log.read_text(encoding="utf-8")
    assert '"stage": "test"' in text
    assert "test.html" in text


def test_calibration_and_the_number_of_all_mistakes_are_shown(
    run: Run, saved: Path, labelled: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    for name, other in (("0", "1"), ("1", "2"), ("2", "0")):  # nearly all are mistakes
        shutil.copytree(labelled / name, wrong / other)
        for path in (labelled / name).iterdir():
            shutil.copy(path, wrong / other / f"again-{path.name}")
    result = oodzoo.test(saved, wrong)
    mistakes = result.images - round(result.images * result.accuracy / 100)
    assert mistakes > len(result.mistakes)
    done = run("test", saved, wrong)
    assert f"… {mistakes - 10} more mistakes" in done.out
    error = f"{result.reliability.error:.1f} points off (expected calibration error)."
    assert error in done.out


def test_unreadable_images_and_odd_folders_are_reported(
    run: Run, saved: Path, labelled: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(labelled, tmp_path / "odd")
    (folder / "0" / "broken.png").write_bytes(b"")
    shutil.copy(min((folder / "1").iterdir()), folder / "loose.png")
    done = run("test", saved, folder)
    assert "1 image could not be read" in done.out
    assert "1 image outside any class folder" in done.out
