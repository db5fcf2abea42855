"""The section with near-duplicate images."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path

from PIL import Image
from tests.report.reader import Reader

from oodzoo.data.files import LocalFile, StoredFile
from oodzoo.leaks.pairs import NearDuplicates, Pair, Pairs
from oodzoo.record import Run
from oodzoo.report import page
from oodzoo.report.leaks import SHOWN, shown_pairs

CATS = ("cat", "cat")
PAIR = Pair(
    ("day/cat/1.png", "night/cat/2.png"), ("day", "night"), ("cat", "cat"), 0.61, False, 0.99
)
OTHER = Pair(("day/cat/2.png", "day/dog/1.png"), ("day", "day"), ("cat", "dog"), 0.75)


def leaks(across: list[Pair], within: list[Pair]) -> NearDuplicates:
    return NearDuplicates(Pairs.of(across), Pairs.of(within), 8, ("a",), "all", 1.0, 0.35)


def files_in(root: Path) -> dict[str, StoredFile]:
    return {
        key: LocalFile(str(root / path))
        for pair in (PAIR, OTHER)
        for key, path in zip(pair.keys, pair.paths, strict=True)
    }


def test_the_worst_pairs_are_shown_side_by_side(run: Run, photos: Path) -> None:
    text = page(replace(run, leaks=leaks([PAIR], [OTHER])), files_in(photos))
    read = Reader(text)
    assert [image["alt"] for image in read.images] == [
        "day/cat/1.png, day",
        "night/cat/2.png, night",
        "day/cat/2.png, day",
        "day/dog/1.png, day",
    ]
    assert "day and night: nearly the same pixels" in read.text
    assert "day: probable, labels cat and dog" in read.text
    assert "remove one image of each pair." in read.text
    url = read.images[0]["src"]
    assert url is not None
    with Image.open(io.BytesIO(base64.b64decode(url.partition("base64,")[2]))) as image:
        assert image.size == (96, 96)
    assert str(photos) not in text


def test_csv_has_all_pairs(run: Run) -> None:
    rows = Reader(page(replace(run, leaks=leaks([PAIR], [OTHER])))).table("near-duplicates")
    assert [row["first"] for row in rows] == ["day/cat/1.png", "day/cat/2.png"]
    assert [row["evidence"] for row in rows] == ["same pixels", "probable"]
    assert (rows[0]["similarity"], rows[0]["correlation"]) == ("0.61", "0.99")
    assert rows[1]["correlation"] == ""


def test_images_that_are_gone_are_not_shown(run: Run, photos: Path) -> None:
    files = files_in(photos)
    (photos / "night" / "cat" / "2.png").unlink()
    read = Reader(page(replace(run, leaks=leaks([PAIR], [OTHER])), files))
    assert [image["alt"] for image in read.images] == ["day/cat/2.png, day", "day/dog/1.png, day"]


def test_the_headline_warns_of_pairs_in_different_domains(run: Run) -> None:
    warning = "The results may be too optimistic: 1 pair of near-duplicate images"
    assert warning in Reader(page(replace(run, leaks=leaks([PAIR], [])))).text
    assert warning not in Reader(page(replace(run, leaks=leaks([], [OTHER])))).text


def test_without_pairs_there_is_no_section(run: Run) -> None:
    read = Reader(page(replace(run, leaks=leaks([], []))))
    assert "near-duplicates" not in read.sections
    assert "near-duplicates" in Reader(page(replace(run, leaks=leaks([], [OTHER])))).sections


def test_pairs_of_different_domains_come_first() -> None:
    many = [replace(PAIR, similarity=at / 100) for at in range(40, 40 + SHOWN + 3)]
    assert len(shown_pairs(leaks(many, [OTHER]))) == SHOWN
    assert shown_pairs(leaks([PAIR], [OTHER])) == (PAIR, OTHER)
