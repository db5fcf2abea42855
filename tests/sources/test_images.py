"""One contract for all sources of images: the same samples, bytes, order, problems and features."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.sources.kinds import (
    DECODED,
    TABLES,
    VARIANTS,
    WITH_FILES,
    Given,
    columns_of,
    save_image,
    write_mixed,
)

from oodzoo import ImageDomains, extract
from oodzoo.core.errors import NoDomainsError
from oodzoo.data.pixels import decode
from oodzoo.tasks import task_of

ALL = {**WITH_FILES, **VARIANTS, **DECODED}
LOCAL = {"folder", "CSV", "DataFrame", "ImageFolder", "class folders", "HF paths", "Series",
         "pairs by domain", "ConcatDataset", "Parquet structs of paths"}  # fmt: skip
NAMED = {*LOCAL, "URL", "object", "tar of a folder", "frame of bytes", "Parquet struct"}
"""Kinds whose samples have the paths of the folder."""

Table = dict[str, list[Any]]

every_source = pytest.mark.parametrize("name", ALL)
every_table = pytest.mark.parametrize("kind", TABLES)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    return write_mixed(tmp_path / "mixed")


def given_as(name: str, folder: Path, to: Path) -> Given:
    (to / "source").mkdir()
    return ALL[name](ImageDomains(folder), to / "source")


def contents(data: ImageDomains) -> list[tuple[str, str, str | None]]:
    """Domain, label and digest of each image, sorted."""
    rows = zip(data.samples, data.digests, strict=True)
    return sorted((s.domain, s.label, digest) for s, digest in rows)


# --- images of classes ------------------------------------------------------------------------


def features(data: ImageDomains, store: Path) -> list[tuple[Any, ...]]:
    """Domain, label and features of each image, sorted."""
    found = extract(data, "demo/cnn_photos", store)
    return sorted(
        (domain, label, row.tobytes())
        for domain in found.domains
        for label, row in zip(
            found.labels(domain).tolist(), found.features(found.models[0], domain), strict=True
        )
    )


@every_source
def test_the_same_data_set_summary_and_features(name: str, mixed: Path, tmp_path: Path) -> None:
    folder, data = ImageDomains(mixed), given_as(name, mixed, tmp_path).open()
    assert (data.domains, data.classes) == (folder.domains, folder.classes)
    assert list(data) == sorted(data, key=lambda s: (s.domain, s.label, s.path))
    assert repr(data).endswith("8 images, 2 domains, 2 classes)")
    if name in NAMED:
        assert data.samples == folder.samples
        assert data.fingerprint == folder.fingerprint
    if name in LOCAL:
        assert data.files == folder.files
    if name not in DECODED:
        assert contents(data) == contents(folder)
    pixels = [np.asarray(decode(data.open(i))).tolist() for i in range(8)]
    expected = [np.asarray(decode(folder.open(i))).tolist() for i in range(8)]
    assert sorted(map(str, pixels)) == sorted(map(str, expected))
    found, wanted = data.summary(), folder.summary()
    assert found.counts == wanted.counts
    for row, other in zip(found.domains, wanted.domains, strict=True):
        if name in DECODED:  # files are written anew
            changed = {"n_bytes": row.n_bytes, "formats": row.formats, "modes": row.modes}
            assert row.to_dict() == {**other.to_dict(), **changed}
        else:
            assert row == other
    assert [issue.kind for issue in found.issues] == [issue.kind for issue in wanted.issues]
    assert features(data, tmp_path / "a") == features(folder, tmp_path / "b")


# --- tables -----------------------------------------------------------------------------------


@every_table
def test_columns_of_other_names(kind: str, photos: Path, tmp_path: Path) -> None:
    folder = ImageDomains(photos)
    given = columns_of(folder) | {"group": [f"g{n // 2}" for n in range(8)]}
    given["label"][0] = f" {given['label'][0]} "
    own = ImageDomains(TABLES[kind](given, tmp_path))
    assert contents(own) == contents(folder)
    names = {"label": "y", "domain": "site", "group": "who"}
    renamed = {names.get(name, name): values for name, values in given.items()}
    decoys: Table = {"label": ["?"] * 8, "more": list(range(8))}
    source = TABLES[kind](renamed | decoys, tmp_path)
    other = ImageDomains(source, columns=names)
    assert contents(other) == contents(folder)
    assert other.samples == own.samples
    assert sorted({s.group for s in other if s.group}) == ["g0", "g1", "g2", "g3"]


N = 12
DOMAINS = ["day" if at % 2 else "night" for at in range(N)]
AGES = [20.5 + 3.25 * at for at in range(N)]
HEIGHTS = [1.5 + 0.01 * at for at in range(N)]
NAMES = ("dog", "cat", "bird")
LABELS = [[name for bit, name in enumerate(NAMES) if at >> bit & 1] for at in range(N)]
SEVERAL = task_of("multilabel", ("bird", "cat", "dog"))


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Twelve images of noise."""
    folder = tmp_path_factory.mktemp("noise")
    for at in range(N):
        pixels = np.random.default_rng(at).integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{at:02d}.png")
    return [str(folder / f"{at:02d}.png") for at in range(N)]


def require_numbers(data: ImageDomains) -> None:
    assert data.task == task_of("regression", ("age", "height"))
    assert data.classes == ("age", "height")
    assert repr(data).endswith("12 images, 2 domains, 2 numbers)")
    found = {(s.domain, s.label) for s in data}
    assert found == {(d, f"{a!r} {h!r}") for d, a, h in zip(DOMAINS, AGES, HEIGHTS, strict=True)}


@every_table
def test_two_numbers(kind: str, paths: list[str], tmp_path: Path) -> None:
    columns: Table = {"path": paths, "domain": DOMAINS, "age": AGES, "height": HEIGHTS}
    source = TABLES[kind](columns, tmp_path)
    require_numbers(ImageDomains(source, columns={"label": "age+height"}))


def test_two_numbers_that_are_given(paths: list[str]) -> None:
    frame = pytest.importorskip("pandas").DataFrame({"age": AGES, "height": HEIGHTS})
    require_numbers(ImageDomains(paths, labels=frame, domains=DOMAINS))
    rows = [np.flatnonzero(np.array(DOMAINS) == domain) for domain in ("day", "night")]
    pairs = [([paths[at] for at in some], frame.iloc[some]) for some in rows]
    require_numbers(ImageDomains(dict(zip(("day", "night"), pairs, strict=True))))


def require_several(data: ImageDomains) -> None:
    assert data.task == SEVERAL
    assert data.classes == ("bird", "cat", "dog")
    assert repr(data).endswith("12 images, 2 domains, 3 labels)")
    pairs = zip(DOMAINS, map(SEVERAL.encode, LABELS), strict=True)
    assert sorted((s.domain, s.label) for s in data) == sorted(pairs)
    assert data.counts()["day"] == {"bird": 2, "cat": 3, "dog": 6}


@every_table
def test_several_labels(kind: str, paths: list[str], tmp_path: Path) -> None:
    lists = list(map(SEVERAL.encode, LABELS)) if kind == "CSV" else LABELS
    ones: Table = {name: [int(name in some) for some in LABELS] for name in NAMES}
    text = ["|".join(names) for names in LABELS]
    forms: list[tuple[Table, dict[str, Any]]] = [
        ({"label": lists}, {}),
        (ones, {"columns": {"label": "dog+cat+bird"}}),
        ({"label": text}, {"task": "multilabel"}),
    ]
    for at, (columns, options) in enumerate(forms):
        (tmp_path / str(at)).mkdir()
        source = TABLES[kind]({"path": paths, "domain": DOMAINS} | columns, tmp_path / str(at))
        require_several(ImageDomains(source, **options))


def test_several_labels_that_are_given(paths: list[str]) -> None:
    data = ImageDomains(paths, labels=LABELS, domains=DOMAINS)
    require_several(data)
    require_several(ImageDomains(data))


@pytest.mark.parametrize("parquet", [False, True])
def test_lists_of_classes_of_hugging_face(parquet: bool, paths: list[str], tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns: Table = {"path": paths, "domain": DOMAINS}
    columns["label"] = [[NAMES.index(name) for name in some] for some in LABELS]
    data = TABLES["HF in memory"](columns, tmp_path)
    labels = datasets.Sequence(datasets.ClassLabel(names=list(NAMES)))
    data = data.cast_column("label", labels)
    if parquet:
        data.to_parquet(tmp_path / "x.parquet")
    require_several(ImageDomains(tmp_path / "x.parquet" if parquet else data))


# --- tables without domains -------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["CSV", "pandas", "Parquet of paths", "Parquet", "HF in memory", "HF on disk"]
)
def test_domains_are_proposed_by_further_columns(kind: str, tmp_path: Path) -> None:
    for row in range(60):
        save_image(tmp_path / f"a/b/{row}.png", (4, 4), (row, 0, 0))
    columns: Table = {
        "path": [str(tmp_path / f"a/b/{row}.png") for row in range(60)],
        "label": ["cat" if row % 2 else "dog" for row in range(60)],
        "camera": ["canon" if row < 30 else "sony" for row in range(60)],
        "taken": [datetime(2019 + row // 2 % 2, 3, 1, 12) for row in range(60)],
        "weight": [row + 0.5 for row in range(60)],
    }
    source = TABLES[kind](columns, tmp_path)
    with pytest.raises(NoDomainsError, match=r"no column 'domain'.*--domains propose"):
        ImageDomains(source)
    sources = [source]
    if kind == "HF in memory":
        parts = {"train": source.select(range(40)), "test": source.select(range(40, 60))}
        sources.append(pytest.importorskip("datasets").DatasetDict(parts))
        with pytest.raises(NoDomainsError, match="--domains propose"):
            ImageDomains(sources[1])
    for each in sources:
        data = ImageDomains(each, domains="propose")
        assert data.domains == ("canon", "sony")
        assert data.domains_proposed == "camera"
        assert data.metadata.keys() == {"camera", "taken"}
        assert {found.name for found in data.proposals} >= {"camera", "taken:year"}
        for sample in data.samples:
            assert data.metadata["camera"][sample.path] == sample.domain


# --- features ---------------------------------------------------------------------------------
