"""Confident mistakes, with and without their images."""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from tests.report.reader import Reader

from oodzoo.data.files import LocalFile, StoredFile
from oodzoo.diagnostics.classes import Mistake
from oodzoo.report.blocks import Headline, Section
from oodzoo.report.mistakes import mistakes_gallery
from oodzoo.report.rendering import render

MISTAKES = [
    Mistake("photo/cat/<1>.png", "photo", "cat", "dog", 98.7),
    Mistake("photo/cat/2.png", "photo", "cat", "owl", 90.1),
    Mistake("photo/dog/3.png", "photo", "dog", "cat", 61.2),
]


def test_an_image_or_a_line_of_text(tmp_path: Path) -> None:
    Image.new("RGB", (300, 200), "red").save(tmp_path / "1.png")
    (tmp_path / "2.png").write_bytes(b"not an image")
    files: dict[str, StoredFile] = {
        MISTAKES[0].key: LocalFile(str(tmp_path / "1.png")),
        MISTAKES[1].key: LocalFile(str(tmp_path / "2.png")),
    }
    section = Section("s", "Section", "", [mistakes_gallery(MISTAKES, files)])
    read = Reader(render(Headline("None."), [section]))
    (image,) = read.images
    assert image["alt"] == "cat in photo, predicted as dog, 99 %"
    assert image["title"] == "photo/cat/<1>.png"
    assert (image["src"] or "").startswith("data:image/jpeg;base64,")
    assert str(tmp_path) not in read.text
    text = read.text
    assert text.count("photo/cat/2.png") == text.count("photo/dog/3.png") == 1
    for predicted in ("dog, 99 %", "owl, 90 %", "cat, 61 %"):
        assert predicted in text


def test_no_mistakes() -> None:
    assert mistakes_gallery([], {}).cards == []
