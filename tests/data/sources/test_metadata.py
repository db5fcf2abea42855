"""Further columns of tables of every kind."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oodzoo.data.dataset import ImageDomains
from oodzoo.data.sources.columns import as_texts, read_metadata
from oodzoo.errors import NoDomainsError

ROWS = 60


def columns(folder: Path) -> dict[str, list[Any]]:
    """Sixty images with two classes, two cameras and dates, without domains."""
    for row in range(ROWS):
        Image.new("RGB", (4, 4), (row, 0, 0)).save(folder / f"{row}.png")
    return {
        "path": [str(folder / f"{row}.png") for row in range(ROWS)],
        "label": ["cat" if row % 2 else "dog" for row in range(ROWS)],
        "camera": ["canon" if row < 30 else "sony" for row in range(ROWS)],
        "taken": [datetime(2019 + row // 2 % 2, 3, 1, 12) for row in range(ROWS)],
        "weight": [row + 0.5 for row in range(ROWS)],
    }


def test_values_as_text() -> None:
    assert as_texts([np.int64(3), "", float("nan"), date(2020, 1, 2), False]) == [
        "3",
        None,
        None,
        "2020-01-02",
        "False",
    ]
    assert as_texts([b"bytes"]) is None


def test_columns_with_a_role_are_left_out() -> None:
    table: dict[str, list[Any]] = {"path": ["a"], "y": ["b"], "camera": ["c"], "weight": [0.5]}
    assert read_metadata(table, ["y"], table.__getitem__) == {"camera": ["c"]}


def require_cameras(data: ImageDomains) -> None:
    assert data.domains == ("canon", "sony")
    assert data.domains_proposed == "camera"
    assert data.metadata.keys() == {"camera", "taken"}
    assert {each.name for each in data.proposals} >= {"camera", "taken:year"}
    for sample in data.samples:
        assert data.metadata["camera"][sample.path] == sample.domain


def test_csv(tmp_path: Path) -> None:
    table = columns(tmp_path)
    lines = [",".join(table)]
    lines += [",".join(map(str, row)) for row in zip(*table.values(), strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    require_cameras(ImageDomains(tmp_path / "t.csv", domains="propose"))
    with pytest.raises(NoDomainsError, match=r"no column 'domain'.*--domains propose"):
        ImageDomains(tmp_path / "t.csv")


def test_data_frame(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns(tmp_path))
    require_cameras(ImageDomains(frame, domains="propose"))
    with pytest.raises(NoDomainsError):
        ImageDomains(frame)


@pytest.mark.parametrize("images", [False, True])
def test_parquet(tmp_path: Path, images: bool) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = columns(tmp_path)
    if images:
        table["image"] = [Path(path).read_bytes() for path in table["path"]]
    parquet.write_table(pyarrow.table(table), tmp_path / "t.parquet")
    require_cameras(ImageDomains(tmp_path / "t.parquet", domains="propose"))
    with pytest.raises(NoDomainsError):
        ImageDomains(tmp_path / "t.parquet")


def test_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict(columns(tmp_path))
    require_cameras(ImageDomains(data, domains="propose"))
    splits = datasets.DatasetDict(
        {"train": data.select(range(40)), "test": data.select(range(40, 60))}
    )
    require_cameras(ImageDomains(splits, domains="propose"))
    with pytest.raises(NoDomainsError, match="--domains propose"):
        ImageDomains(splits)


def test_arrays_without_domains_are_one_domain() -> None:
    images = [np.full((8, 8, 3), row, np.uint8) for row in range(4)]
    data = ImageDomains(images, labels=["a", "b", "a", "b"], domains="propose")
    assert (data.domains, data.domains_proposed) == (("all",), None)
