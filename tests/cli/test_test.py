"""`oodzoo test`: a short result, its document, and its page."""

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


def test_the_result_is_short_and_its_page_has_images(
    run: Run, saved: Path, labelled: Path, tmp_path: Path
) -> None:
    """Images that cannot be read, and outside of folders of classes, are reported."""
    folder = shutil.copytree(labelled, tmp_path / "odd")
    (folder / "0" / "broken.png").write_bytes(b"")
    shutil.copy(min((folder / "1").iterdir()), folder / "loose.png")
    page = tmp_path / "new" / "page.html"
    done = run("test", saved, folder, "--out", page)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split()[:3] == ["domain", "images", "Accuracy"]
    for words in (
        "of 12 images of 1 domain are classified correctly (90 % interval",
        "Classes, the weakest first",
        "Most frequent confusions",
        "Most confident mistakes",
        "What to do next:",
        "- Test more images.",
        "1 image could not be read",
        "1 image outside any class folder",
        f"Report: {page}",
    ):
        assert words in done.out
    assert "data:image/jpeg" in page.read_text(encoding="utf-8")


def test_the_document_and_the_page_in_a_folder(
    run: Run, saved: Path, labelled: Path, tmp_path: Path
) -> None:
    pages, log = tmp_path / "pages", tmp_path / "log.jsonl"
    options = ("--out", pages, "--log-file", log, "--json")
    document = run("test", saved, labelled, *options).document
    expected = json.loads(json.dumps(oodzoo.test(saved, labelled).to_dict()))
    assert document == expected | {"model": str(saved), "report": str(pages / "test.html")}
    assert set(document["per_class"]) == {"0", "1", "2"}
    assert (pages / "test.html").is_file()
    text = log.read_text(encoding="utf-8")
    assert '"stage": "test"' in text
    assert "test.html" in text
