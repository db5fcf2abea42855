"""Images on pages: examples of the data, near-duplicates, mistakes."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from tests.report.assessment_example import example_test
from tests.report.reader import Reader
from tests.report.test_golden import leaks

from oodzoo.data.files import LocalFile, StoredFile
from oodzoo.report import page, write_test_report
from oodzoo.report.assessment_page import assessment_page
from oodzoo.report.diagnosis import mistakes_gallery
from oodzoo.report.page import Headline, Section, render
from oodzoo.report.record import Run
from oodzoo.store.leaks.similar import Pair
from oodzoo.tasks import Kind
from oodzoo.tasks.classification import Mistake

PAIR = Pair(
    ("day/cat/1.png", "night/cat/2.png"), ("day", "night"), ("cat", "cat"), 0.61, False, 0.99
)
OTHER = Pair(("day/cat/2.png", "day/dog/1.png"), ("day", "day"), ("cat", "dog"), 0.75)


def size_of(image: dict[str, str | None]) -> tuple[int, int]:
    """The size of an image that is embedded in the page."""
    content = base64.b64decode((image["src"] or "").removeprefix("data:image/jpeg;base64,"))
    with Image.open(io.BytesIO(content)) as opened:
        return opened.size


def test_near_duplicates_are_shown_side_by_side(run: Run, photos: Path) -> None:
    files: dict[str, StoredFile] = {
        key: LocalFile(str(photos / path))
        for pair in (PAIR, OTHER)
        for key, path in zip(pair.keys, pair.paths, strict=True)
    }
    found = replace(run, leaks=leaks([PAIR], [OTHER]))
    read = Reader(page(found, files))
    names = ["day/cat/1.png", "night/cat/2.png", "day/cat/2.png", "day/dog/1.png"]
    assert [image["alt"] for image in read.images] == [f"{n}, {n.split('/')[0]}" for n in names]
    assert size_of(read.images[0]) == (96, 96)
    assert str(photos) not in read.text
    (photos / "night/cat/2.png").unlink()
    less = Reader(page(found, files)).images
    assert [image["alt"] for image in less] == ["day/cat/2.png, day", "day/dog/1.png, day"]


def test_a_mistake_is_an_image_or_a_line_of_text(tmp_path: Path) -> None:
    mistakes = [
        Mistake("photo/cat/<1>.png", "photo", "cat", "dog", 98.7),
        Mistake("photo/cat/2.png", "photo", "cat", "owl", 90.1),
        Mistake("photo/dog/3.png", "photo", "dog", "cat", 61.2),
    ]
    Image.new("RGB", (300, 200), "red").save(tmp_path / "1.png")
    (tmp_path / "2.png").write_bytes(b"not an image")
    files: dict[str, StoredFile] = {
        each.key: LocalFile(str(tmp_path / f"{at}.png")) for at, each in enumerate(mistakes[:2], 1)
    }
    gallery = mistakes_gallery(mistakes, files)
    read = Reader(render(Headline("None."), [Section("s", "Section", "", [gallery])]))
    (image,) = read.images
    assert image["alt"] == "cat in photo, predicted as dog, 99 %"
    assert image["title"] == "photo/cat/<1>.png"
    assert (image["src"] or "").startswith("data:image/jpeg;base64,")
    assert str(tmp_path) not in read.text
    assert read.text.count("photo/cat/2.png") == read.text.count("photo/dog/3.png") == 1
    assert all(words in read.text for words in ("dog, 99 %", "owl, 90 %", "cat, 61 %"))


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_the_page_of_a_test_has_images_and_no_folders(task: Kind, tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 30)).save(content, "PNG")
    result = example_test(task, image=content.getvalue())
    text = assessment_page(result, "models/best")
    assert text.count("data:image/jpeg") >= 12
    assert "/home/ada" not in text
    file = write_test_report(result, tmp_path / "a" / "b.html", model="models/best")
    assert file.read_text(encoding="utf-8") == assessment_page(result, "models/best", "b.html")
