"""The sections with what went into a run: data, near-duplicates, race, provenance."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from tests.report.example import example_run
from tests.report.reader import Reader

from oodzoo.data.files import LocalFile, StoredFile
from oodzoo.ranking.racing import Dropped
from oodzoo.report import page
from oodzoo.report.record import DataSummary, Example, ExtractionSummary, Run, read_run
from oodzoo.store.documents import sealed
from oodzoo.store.leaks.pairs import NearDuplicates, Pair, Pairs


def summary(examples: dict[str, list[str]]) -> DataSummary:
    """Data of two domains and classes, with examples by domain."""
    return DataSummary(
        path="photos",
        fingerprint="f",
        images=8,
        classes=("cat", "dog"),
        domains={domain: {"cat": 2, "dog": 2} for domain in ("day", "night")},
        examples={
            domain: tuple(Example(path, path.split("/")[1]) for path in paths)
            for domain, paths in examples.items()
        },
    )


def files_in(root: Path | None, data: DataSummary) -> dict[str, StoredFile]:
    """Where the examples of a run are."""
    paths = [example.path for some in data.examples.values() for example in some]
    return {} if root is None else {path: LocalFile(str(root / path)) for path in paths}


def shown(data: DataSummary, root: Path | None) -> list[str | None]:
    text = page(Run("oodzoo run", data=data), files_in(root, data))
    return [image["alt"] for image in Reader(text).images]


def test_thumbnails_are_small_copies(photos: Path) -> None:
    data = summary({"day": ["day/cat/1.png", "day/dog/1.png"], "night": ["night/cat/2.png"]})
    images = Reader(page(Run("oodzoo run", data=data), files_in(photos, data))).images
    assert [image["alt"] for image in images] == ["cat, day", "dog, day", "cat, night"]
    url = images[0]["src"]
    assert url is not None
    content = base64.b64decode(url.removeprefix("data:image/jpeg;base64,"))
    with Image.open(io.BytesIO(content)) as image:
        assert image.size == (72, 72)


def test_unreadable_images_are_skipped(photos: Path) -> None:
    (photos / "day" / "cat" / "1.png").write_bytes(b"no image")
    data = summary({"day": ["day/cat/1.png", "day/cat/gone.png", "day/dog/1.png"]})
    assert shown(data, photos) == ["dog, day"]


def test_no_thumbnails_if_the_images_are_gone_or_their_folder_is_unknown(photos: Path) -> None:
    data = summary({"day": ["day/cat/1.png"]})
    assert shown(data, photos) == ["cat, day"]
    assert shown(data, photos / "gone") == []
    assert shown(data, None) == []


@pytest.mark.parametrize(
    ("domains", "per_domain", "expected"), [(2, 9, 12), (24, 9, 72), (36, 9, 72), (100, 2, 72)]
)
def test_the_number_of_thumbnails_is_limited(
    tmp_path: Path,
    write_image: Callable[[Path], Path],
    domains: int,
    per_domain: int,
    expected: int,
) -> None:
    write_image(tmp_path / "d" / "cat" / "1.png")
    examples = {f"d{at}": ["d/cat/1.png"] * per_domain for at in range(domains)}
    assert len(shown(summary(examples), tmp_path)) == expected


# --- near-duplicates ------------------------------------------------------------------------------

PAIR = Pair(
    ("day/cat/1.png", "night/cat/2.png"), ("day", "night"), ("cat", "cat"), 0.61, False, 0.99
)
OTHER = Pair(("day/cat/2.png", "day/dog/1.png"), ("day", "day"), ("cat", "dog"), 0.75)


def leaks(across: list[Pair], within: list[Pair]) -> NearDuplicates:
    return NearDuplicates(Pairs.of(across), Pairs.of(within), 8, ("a",), "all", 1.0, 0.35)


def pair_files(root: Path) -> dict[str, StoredFile]:
    return {
        key: LocalFile(str(root / path))
        for pair in (PAIR, OTHER)
        for key, path in zip(pair.keys, pair.paths, strict=True)
    }


def test_the_worst_pairs_are_shown_side_by_side(run: Run, photos: Path) -> None:
    text = page(replace(run, leaks=leaks([PAIR], [OTHER])), pair_files(photos))
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


def test_images_that_are_gone_are_not_shown(run: Run, photos: Path) -> None:
    files = pair_files(photos)
    (photos / "night" / "cat" / "2.png").unlink()
    read = Reader(page(replace(run, leaks=leaks([PAIR], [OTHER])), files))
    assert [image["alt"] for image in read.images] == ["day/cat/2.png, day", "day/dog/1.png, day"]


def test_sections_of_leaks(run: Run) -> None:
    warning = "The results may be too optimistic: 1 pair of near-duplicate images"
    for across, within in (([PAIR], []), ([], [OTHER]), ([], [])):
        read = Reader(page(replace(run, leaks=leaks(across, within))))
        assert ("near-duplicates" in read.sections) == bool(across or within)
        assert (warning in read.text) == bool(across)


# --- race and provenance --------------------------------------------------------------------------

EARLY = Dropped(1, 140, 20, (11, 27), 31.25, "clearly worse than 10 models")
LATE = Dropped(2, 280, 9, None, 61.0, "rank too low for the budget of 30 min")


def raced(run: Run, dropped: dict[str, Dropped]) -> Reader:
    summary = ExtractionSummary(("a",), {}, (), 1400, {}, "0" * 64, dropped)
    return Reader(page(replace(run, extraction=summary)))


def test_the_metric_is_that_of_the_task() -> None:
    dropped = replace(EARLY, expected_accuracy=-31.25, metric="explained_variance")
    read = raced(example_run(3, task="regression"), {"bad": dropped})
    assert float(read.table("race")[0]["expected_explained_variance"]) == -31.25
    assert "accurac" not in read.text.lower()


def test_without_a_race_there_is_no_section(run: Run) -> None:
    assert "look at a sample" not in raced(run, {}).text


def test_the_page_of_a_record_that_is_read_is_the_same(run: Run, tmp_path: Path) -> None:
    assert list(run.settings) != sorted(run.settings)
    (tmp_path / "run.json").write_bytes(sealed(run.to_dict()))
    assert page(read_run(tmp_path)) == page(run)


def test_settings_as_text() -> None:
    settings = {"batch_size": None, "baselines": True, "deep": {"top_k": [1, 3], "fast": False}}
    read = Reader(page(Run("oodzoo run", settings=settings)))
    words = "baselinesyes batch_sizenot set deep.fastno deep.top_k1, 3"
    assert words.replace(" ", "") in read.text.replace(" ", "")
