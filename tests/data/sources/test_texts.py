"""Texts in a column of a table."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import oodzoo
from oodzoo import InputError
from oodzoo.data.sources.texts import read_texts

pd = pytest.importorskip("pandas")

COLUMNS = {"text": "review", "label": "stars", "domain": "site"}
TABLE = pd.DataFrame(
    {
        "review": ["good, really", 'a "bad" pan', "fine\nbook", "dull, long"],
        "stars": ["up", "down", "up", "down"],
        "site": ["kitchen", "kitchen", "books", "books"],
        "author": ["a", "b", "a", "b"],
    }
)


def _sources(folder: Path) -> dict[str, Any]:
    TABLE.to_csv(folder / "reviews.csv", index=False)
    TABLE.to_csv(folder / "other.csv", index=False, sep=";", encoding="utf-8-sig")
    sources: dict[str, Any] = {
        "csv": folder / "reviews.csv", "semicolons": folder / "other.csv", "frame": TABLE
    }  # fmt: skip
    try:
        TABLE.to_parquet(folder / "reviews.parquet")
    except ImportError:
        return sources
    return sources | {"parquet": folder / "reviews.parquet"}


def test_tables_of_texts(tmp_path: Path) -> None:
    found = {
        kind: oodzoo.ImageDomains(source, columns=COLUMNS | {"group": "author"})
        for kind, source in _sources(tmp_path).items()
    }
    for data in found.values():
        assert data.modality == "text"
        assert data.domains == ("books", "kitchen")
        assert data.classes == ("down", "up")
        texts = {data.open(at).decode(): sample for at, sample in enumerate(data.samples)}
        assert set(texts) == set(TABLE["review"])
        assert texts["fine\nbook"][1:] == ("books", "up", "a")
        expected = [hashlib.sha256(data.open(at)).hexdigest() for at in range(4)]
        assert list(data.digests) == expected
        assert [issue.kind for issue in data.check()] == ["leak"]  # authors on several sites
        assert str(data.summary()) == str(data.summary(quick=True))  # texts are not decoded
        assert repr(data).endswith("4 texts, 2 domains, 2 classes)")
    assert len({data.fingerprint for data in found.values()}) == 1


def test_rows_have_the_names_of_a_column() -> None:
    table = TABLE.assign(id=list("wxyz"))
    data = oodzoo.ImageDomains(table, columns={**COLUMNS, "path": "id"})
    assert sorted(sample.path for sample in data.samples) == list("wxyz")


def test_labels_and_domains_may_be_given() -> None:
    given: dict[str, Any] = {"labels": [1, 2, 1, 2], "domains": ["x", "x", "y", "y"]}
    data = oodzoo.ImageDomains(TABLE[["review"]], columns={"text": "review"}, **given)
    assert (data.classes, data.domains) == (("1", "2"), ("x", "y"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "review,stars,site\n,up,a\nx,down,b\n",
            "row 0 has no text in the column 'review', got ''",
        ),
        ("review,stars,site\nx,y,down,b\n", "row 0: 4 cells, but the header has 3; quote cells"),
        ("review,stars\nx,down\n", "has no column 'site' for the domain, it has 'review', 'stars'"),
        ("Review,stars,site\nx,down,b\n", "has no column 'review' for the text.*[Dd]id you mean"),
        ("review,stars,site\n", "has no rows"),
        ("", "has no rows"),
    ],
)
def test_tables_that_are_not_understood(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        oodzoo.ImageDomains(tmp_path / "reviews.csv", columns=COLUMNS)


def test_texts_need_a_table(tmp_path: Path) -> None:
    for source, message in (
        (tmp_path, "no such file"),
        (tmp_path / "absent.csv", "no such file"),
        (["a", "b"], r"needs a table \(.csv, .parquet or a DataFrame\), got list"),
        (
            pd.DataFrame({"text": ["a", None], "label": [1, 2], "domain": [1, 2]}),
            "row 1 has no text .* leave the row",
        ),
    ):
        with pytest.raises(InputError, match=message):
            oodzoo.ImageDomains(source, columns={"text": "text"})
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(InputError, match=r"needs a table \(.csv or .parquet\), got"):
        oodzoo.ImageDomains(tmp_path / "a.txt", columns={"text": "text"})
    with pytest.raises(InputError, match=r"root= is not used with 'DataFrame'"):
        oodzoo.ImageDomains(TABLE, columns=COLUMNS, root=tmp_path)


def test_texts_to_predict(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "new.csv", index=False)
    texts, names = read_texts(tmp_path / "new.csv", "review")
    assert texts == TABLE["review"].tolist()
    assert names == ["row 0", "row 1", "row 2", "row 3"]
    (tmp_path / "new.txt").write_text("one\ntwo words\n")
    assert read_texts(tmp_path / "new.txt", "") == (["one", "two words"], ["line 1", "line 2"])
    (tmp_path / "named.csv").write_text("path,text\na,x\n")
    assert read_texts(tmp_path / "named.csv", "text") == (["x"], ["a"])
    with pytest.raises(InputError, match=r"no column 'text', it has 'review', .* --text-column"):
        read_texts(tmp_path / "new.csv", "text")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"cannot read .* as text"):
        read_texts(tmp_path / "bad.txt", "text")
