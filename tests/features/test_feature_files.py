"""Files of features without labels; those with labels are tested with the import."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from oodzoo import InputError
from oodzoo.features.feature_files import read_feature_files
from oodzoo.features.importing import import_features

X = np.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv(tmp_path: Path, separator: str) -> None:
    file = tmp_path / "wine.csv"
    text = "path,x,label,y\na,0,no,1\nb,2,yes,3\nc,4e0,no,5\n"
    file.write_text(text.replace(",", separator), encoding="utf-8-sig")
    read = read_feature_files([file])
    assert read.columns == {"path": ["a", "b", "c"]}
    assert read.labels == {"label": ["no", "yes", "no"]}
    assert list(read.features) == ["wine"]
    np.testing.assert_array_equal(read.features["wine"], X)
    assert not read.named


def test_csv_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "wine.csv"
    cells = itertools.product("ab", "xy")
    rows = [f"{domain},{label},{n},{-n}" for n, (domain, label) in enumerate(cells)]
    file.write_text("\n".join(["domain,label,u,v", *rows]))
    store = import_features([file], tmp_path / "store")
    assert store.models == ("wine",)
    np.testing.assert_array_equal(store.features("wine", "b"), [[2, -2], [3, -3]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n1,2\n3,\n", "column 'y' has '' in row 1; every column besides label, domain,"),
        ("x,id\n1,2\n3,abc\n", "column 'id' has 'abc' in row 1"),
        ("x,y\n1,2\n3,4,5\n", "row 1 has more cells than the header"),
        ("x,y\n", "has no row below its header"),
    ],
)
def test_csv_that_is_no_table_of_numbers(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_feature_files([tmp_path / "x.csv"])


def test_arrays_without_a_table(tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", X)
    read = read_feature_files([tmp_path / "a.npy", tmp_path / "b.npy"])
    assert (list(read.features), read.columns, read.named) == (["a", "b"], {}, False)


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"net": X.tolist()}), tmp_path / "lists.parquet")
    parquet.write_table(pyarrow.table({"u": X[:, 0], "v": X[:, 1]}), tmp_path / "wide.parquet")
    lists = read_feature_files([tmp_path / "lists.parquet"])
    wide = read_feature_files([tmp_path / "wide.parquet"])
    assert (list(lists.features), lists.named) == (["net"], True)
    assert (list(wide.features), wide.named) == (["wide"], False)
    np.testing.assert_array_equal(wide.features["wide"], lists.features["net"])
