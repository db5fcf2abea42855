"""Data sets of Hugging Face's library `datasets`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.data.sources.vision import torchvision

from oodzoo import ImageDomains, InputError
from oodzoo.data.sources.huggingface import using_datasets

datasets = pytest.importorskip("datasets")


def rows(photos: Path, domain: str | None = None) -> Any:
    """A Dataset of the images of a folder, in another order than its own."""
    samples = [s for s in ImageDomains(photos).samples[::-1] if domain in (None, s.domain)]
    columns = {
        "image": [
            {"bytes": (photos / s.path).read_bytes(), "path": s.path.replace("/", "-")}
            for s in samples
        ],
        "label": [s.label for s in samples],
        "domain": [s.domain for s in samples],
    }
    return datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())


def roles(data: ImageDomains) -> set[tuple[str | None, str, str]]:
    return {(d, s.domain, s.label) for s, d in zip(data.samples, data.digests, strict=True)}


def require_equal(source: Any, photos: Path, **options: Any) -> ImageDomains:
    """Open a source that has the images, labels and domains of the folder."""
    data = ImageDomains(source, **options)
    assert roles(data) == roles(ImageDomains(photos))
    return data


# --- columns ----------------------------------------------------------------------------------


def test_images_of_a_dataset(photos: Path) -> None:
    data = require_equal(rows(photos), photos)
    assert data.name == "Dataset"
    assert [s.path for s in data] == [s.path.replace("/", "-") for s in ImageDomains(photos)]


def test_columns_are_found_by_their_type(photos: Path) -> None:
    source = rows(photos).rename_columns({"image": "img", "label": "kind"})
    source = source.class_encode_column("kind").add_column("n", list(range(8)))
    require_equal(source, photos)
    require_equal(source, photos, columns={"image": "img", "label": "kind"})


def test_domains_may_be_classes(photos: Path) -> None:
    source = rows(photos).class_encode_column("domain").class_encode_column("label")
    require_equal(source, photos)
    renamed = source.rename_columns({"domain": "site", "label": "kind"})
    require_equal(renamed, photos, columns={"domain": "site"})
    with pytest.raises(InputError, match=r"'Dataset' has no column 'label'.*'kind', 'site'"):
        ImageDomains(renamed, domains=[0, 1] * 4)


def test_formats_transforms_and_selections(photos: Path) -> None:
    source = rows(photos)
    torchvision("datasets")
    require_equal(source.with_format("torch"), photos)
    require_equal(source.with_transform(lambda batch: {"image": [None]}), photos)
    part = ImageDomains(source.shuffle(seed=1).select(range(6)))
    assert roles(part) < roles(ImageDomains(photos))


def test_labels_and_domains_of_the_user(photos: Path) -> None:
    source = rows(photos)
    bare = source.remove_columns(["label", "domain"])
    data = require_equal(bare, photos, labels=source["label"], domains=list(source["domain"]))
    assert len(data) == 8


def test_paths_in_a_column_of_text(photos: Path) -> None:
    samples = ImageDomains(photos).samples
    for name in ("path", "image"):
        source = datasets.Dataset.from_dict(
            {
                name: [s.path for s in samples],
                "label": [s.label for s in samples],
                "domain": [s.domain for s in samples],
            }
        )
        assert ImageDomains(source, root=photos).samples == samples


# --- splits -----------------------------------------------------------------------------------


def test_splits_are_concatenated(photos: Path) -> None:
    source = rows(photos)
    splits = {"train": source.select(range(5)), "test": source.select(range(5, 8))}
    require_equal(datasets.DatasetDict(splits), photos)


def test_splits_may_be_the_domains(photos: Path) -> None:
    by_domain = datasets.DatasetDict(
        {d: rows(photos, d).remove_columns("domain") for d in ("day", "night")}
    )
    require_equal(by_domain, photos)
    parts = datasets.DatasetDict({"train": by_domain["day"], "test": by_domain["night"]})
    with pytest.raises(InputError, match=r"no column 'domain'.* dict\(…\).*'train', 'test'"):
        ImageDomains(parts)
    assert ImageDomains(dict(parts)).domains == ("test", "train")


def test_splits_with_other_columns(photos: Path) -> None:
    source = rows(photos)
    splits = {"day": source, "night": source.cast_column("label", datasets.Value("large_string"))}
    splits["night"] = source.map(lambda row: {"label": 1})
    with pytest.raises(InputError, match="the splits 'day', 'night' of 'DatasetDict' have diff"):
        ImageDomains(datasets.DatasetDict(splits))


# --- saved to disk ----------------------------------------------------------------------------


def test_saved_data_sets(photos: Path, tmp_path: Path) -> None:
    source = rows(photos).class_encode_column("label")
    source.save_to_disk(tmp_path / "one", num_shards=2)
    data = require_equal(tmp_path / "one", photos)
    assert data.name == str(tmp_path / "one")
    datasets.DatasetDict(train=source).save_to_disk(tmp_path / "splits")
    require_equal(str(tmp_path / "splits"), photos)
    require_equal(tmp_path / "one", photos, columns={"domain": "domain"})


def test_a_saved_data_set_stays_on_disk(photos: Path, tmp_path: Path) -> None:
    rows(photos).save_to_disk(tmp_path / "saved")
    data = ImageDomains(tmp_path / "saved")
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("needs /proc")
    assert str(tmp_path / "saved") in maps.read_text(encoding="utf-8")
    assert data.open(0)


def test_a_damaged_data_set(photos: Path, tmp_path: Path) -> None:
    rows(photos).save_to_disk(tmp_path / "saved")
    (shard,) = (tmp_path / "saved").glob("*.arrow")
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(InputError, match=r"cannot load '.*saved' with datasets: ") as caught:
        ImageDomains(tmp_path / "saved")
    assert "\n" not in str(caught.value)


def test_scripts_in_a_folder_are_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "photos.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')", encoding="utf-8")
    with pytest.raises(InputError, match="no image found"):
        ImageDomains(folder)
    assert not (tmp_path / "ran").exists()


# --- bad input --------------------------------------------------------------------------------


def test_streams_are_refused(photos: Path) -> None:
    stream = rows(photos).to_iterable_dataset()
    for source in (stream, datasets.IterableDatasetDict(train=stream)):
        with pytest.raises(InputError, match="is streamed and cannot be read at a position"):
            ImageDomains(source)


def test_missing_and_ambiguous_columns(photos: Path) -> None:
    source = rows(photos)
    with pytest.raises(InputError, match=r"no column 'domain'.* did you mean domains"):
        ImageDomains(source.rename_column("domain", "domains"))
    with pytest.raises(InputError, match="'Dataset' has no column 'image', it has"):
        ImageDomains(source.remove_columns("image"))
    two = source.rename_column("image", "a").add_column("b", [b"x"] * 8)
    two = two.cast_column("b", datasets.Image())
    with pytest.raises(InputError, match="has several columns of images, 'a', 'b'; name one"):
        ImageDomains(two)
    with pytest.raises(InputError, match="'Dataset' has no images"):
        ImageDomains(source.select([]))


def test_unknown_classes(photos: Path) -> None:
    feature = datasets.ClassLabel(names=["cat", "dog"])
    source = rows(photos).remove_columns("label").add_column("label", [0, 1, -1, 0, 1, 0, 1, 0])
    with pytest.raises(InputError, match="row 2: the label is missing"):
        ImageDomains(source.cast_column("label", feature))


def test_mixed_options(photos: Path) -> None:
    rows(photos).save_to_disk(photos.parent / "saved")
    with pytest.raises(InputError, match="root= is not used with"):
        ImageDomains(photos.parent / "saved", root=photos)


def test_the_library_is_needed(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows(photos).save_to_disk(tmp_path / "saved")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"reading '.*saved' needs .*datasets"):
        ImageDomains(tmp_path / "saved")


def test_the_library_is_silent() -> None:
    level = datasets.logging.get_verbosity()
    with using_datasets("this test") as silent:
        assert silent.are_progress_bars_disabled()
        assert not silent.logging.get_logger("datasets").isEnabledFor(silent.logging.ERROR)
    assert not datasets.are_progress_bars_disabled()
    assert datasets.logging.get_verbosity() == level


def test_images_without_paths_have_no_root(photos: Path) -> None:
    with pytest.raises(InputError, match="root= is not used with 'Dataset'"):
        ImageDomains(rows(photos), root=photos)
