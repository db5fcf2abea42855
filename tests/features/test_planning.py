"""What an extraction has to do, and what it counts as done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.features.data import Extract, Zoo, one_of, spoil
from tests.features.test_progress import Heard

from oodzoo.data.dataset import ImageDomains
from oodzoo.data.files import ImageFile
from oodzoo.engine.choice import Part
from oodzoo.features.planning import plan_missing
from oodzoo.features.progress import ExtractionProgress
from oodzoo.store import index as store_index
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import writing

NAMES = ["mlp_glyphs_augmented", "separable_shapes"]


def files_of(data: Path) -> dict[str, ImageFile]:
    dataset = ImageDomains(data)
    pairs = zip(dataset.files, dataset.digests, strict=True)
    return {str(digest): file for file, digest in pairs}


def test_what_is_missing_and_what_is_done(store: Path, digits: Path) -> None:
    for file in (store / "models" / NAMES[0]).glob("00000-00001*"):
        file.unlink()
    heard = Heard()
    files = files_of(digits)
    with writing(store) as writer:
        (shard,) = plan_missing(writer, NAMES, files, ExtractionProgress(heard, NAMES, len(files)))
    assert (shard.name, len(shard.images), shard.models) == ("00000-00001", 15, [NAMES[0]])
    assert heard.events == [
        (30, 90, {"model": NAMES[0], "images": 30, "seconds": 0.0}),
        (75, 90, {"model": NAMES[1], "images": 45, "seconds": 0.0}),
    ]


def test_what_other_parts_do_counts_as_done(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_index, "SHARD_ROWS", 5)
    files = files_of(digits)
    for number in (1, 2, 3):
        heard = Heard()
        progress = ExtractionProgress(heard, NAMES, len(files))
        with writing(tmp_path / "s") as writer:
            writer.set_table(SampleTable.of(ImageDomains(digits)))
            writer.add_images()
            planned = plan_missing(writer, NAMES, files, progress, part=Part(number, 3))
        assert [shard.name for shard in planned] == [
            f"00000-{at:05d}" for at in range(3 * number - 3, 3 * number)
        ]
        assert heard.events[-1][:2] == (60, 90)


def test_a_sample_has_shards_of_its_own(store: Path, digits: Path, zoo: Zoo) -> None:
    shutil.rmtree(store / "models" / NAMES[1])
    files = dict(list(files_of(digits).items())[::4])
    with writing(store) as writer:
        planned = plan_missing(writer, NAMES, files, ExtractionProgress(), only=True)
        assert {image for shard in planned for image in shard.images} == files.keys()
        assert all(shard.models == NAMES[1:] for shard in planned)
        # without `only`, the shards that there are
        whole = plan_missing(writer, NAMES, files, ExtractionProgress())
        assert [shard.name for shard in whole] == ["00000-00000", "00000-00001", "00000-00002"]


def test_an_image_that_can_be_read_again(
    data: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    """The same bytes: a decoder that was missing has been installed, say."""
    bad = one_of(data, "marker/1")
    content = spoil(bad)
    extract(data, zoo(), tmp_path / "s")
    files = files_of(data)
    (image,) = [image for image, file in files.items() if str(file) == str(bad)]
    bad.write_bytes(content)  # `files` still has the name of the spoilt image
    with writing(tmp_path / "s") as writer:
        progress = ExtractionProgress()
        assert plan_missing(writer, NAMES, files, progress, again=False) == []
        (shard,) = plan_missing(writer, NAMES, files, progress)
    assert image in shard.images
    assert shard.models == NAMES
