"""The section with the data, and its thumbnails."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from tests.report.example import CLASSES, DOMAINS, example_run
from tests.report.reader import Reader

from oodzoo.data.files import LocalFile, StoredFile
from oodzoo.record import DataSummary, Example, Run
from oodzoo.report import page
from oodzoo.report.data import data_section


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


def test_csv_equals_the_data(run: Run, read: Reader) -> None:
    assert run.data is not None
    counts = read.table("counts")
    assert [row["class"] for row in counts] == [*CLASSES, "all classes"]
    assert int(counts[-1]["all"]) == run.data.images


def test_numbers_have_a_mean_and_a_range_in_each_domain() -> None:
    run = example_run(classes=["age", "height"], task="regression")
    read = Reader(page(run))
    rows = read.table("numbers")
    assert [(row["output"], row["domain"]) for row in rows] == [
        *(("age", domain) for domain in DOMAINS),
        *(("height", domain) for domain in DOMAINS),
    ]
    first = rows[0]
    assert [float(first[key]) for key in ("images", "mean", "standard_deviation")] == [
        70, -1.5, 2.25
    ]  # fmt: skip
    assert [float(first[key]) for key in ("lowest", "highest", "overlap")] == [-7.5, 4.5, 88]
    assert "4 domains, 2 outputs." in read.text


def test_images_with_several_labels_are_counted_once() -> None:
    read = Reader(page(example_run(classes=["cat", "dog"], task="multilabel")))
    rows = {row["label"]: [int(row[domain]) for domain in DOMAINS] for row in read.table("counts")}
    assert rows == {
        "cat": [50] * 4, "dog": [50] * 4, "no label": [3] * 4, "all images": [70] * 4
    }  # fmt: skip
    assert "4 domains, 2 labels." in read.text


def test_thumbnails_are_small_copies(photos: Path) -> None:
    data = summary({"day": ["day/cat/1.png", "day/dog/1.png"], "night": ["night/cat/2.png"]})
    images = Reader(page(Run("oodzoo run", data=data), files_in(photos, data))).images
    assert [image["alt"] for image in images] == ["cat, day", "dog, day", "cat, night"]
    url = images[0]["src"]
    assert url is not None
    content = base64.b64decode(url.removeprefix("data:image/jpeg;base64,"))
    with Image.open(io.BytesIO(content)) as image:
        assert image.size == (72, 72)


def test_only_images_of_the_run_are_shown(photos: Path) -> None:
    """A run on a sample of the folder shows images of the sample."""
    data = summary({"day": ["day/dog/2.png"]})
    assert shown(data, photos) == ["dog, day"]


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


def test_the_lead_counts_in_the_singular_too() -> None:
    data = summary({})
    assert data_section(data).lead == "8 images, 2 domains, 2 classes."
    one = replace(data, images=1, classes=("cat",), domains={"day": {"cat": 1}}, skipped=1)
    lead = "1 image, 1 domain, 1 class. Skipped as unreadable: 1 image."
    assert data_section(one).lead == lead
