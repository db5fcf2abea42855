"""DataFrames of pandas and polars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oodzoo import ImageDomains, InputError
from oodzoo.data.images import decode


@pytest.fixture(params=["pandas", "polars"])
def library(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


def columns_of(photos: Path) -> dict[str, list[Any]]:
    samples = ImageDomains(photos).samples[::-1]
    return {
        "path": [s.path for s in samples],
        "label": [s.label for s in samples],
        "domain": [s.domain for s in samples],
    }


def test_paths(library: Any, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = library.DataFrame(columns_of(photos))
    expected = ImageDomains(photos)
    data = ImageDomains(frame, root=photos)
    assert (data.samples, data.files) == (expected.samples, expected.files)
    monkeypatch.chdir(photos)
    assert ImageDomains(frame).digests == expected.digests


def test_other_names_and_a_group(library: Any, photos: Path) -> None:
    given = columns_of(photos)
    frame = library.DataFrame(
        {
            "file": [str(photos / path) for path in given["path"]],
            "y": [int(label == "cat") for label in given["label"]],
            "site": given["domain"],
            "patient": [None, *range(7)],
        }
    )
    names = {"path": "file", "label": "y", "domain": "site", "group": "patient"}
    data = ImageDomains(frame, columns=names)
    assert {s.path for s in data} == {s.path for s in ImageDomains(photos)}
    assert {s.label for s in data if "/cat/" in s.path} == {"1"}
    assert data.classes == ("0", "1")
    assert {s.group for s in data} == {None, *map(str, range(7))}


def test_images_as_bytes(library: Any, photos: Path) -> None:
    given = columns_of(photos)
    contents = [(photos / path).read_bytes() for path in given["path"]]
    expected = ImageDomains(photos)
    data = ImageDomains(library.DataFrame({"image": contents, **given}))
    assert (data.samples, data.digests) == (expected.samples, expected.digests)
    cells = [{"bytes": content, "path": None} for content in contents]
    frame = library.DataFrame({"img": cells, "label": given["label"], "domain": given["domain"]})
    data = ImageDomains(frame, columns={"image": "img"})
    assert sorted(map(str, data.digests)) == sorted(map(str, expected.digests))
    assert data.samples[0].path == "000006"


def test_pixels() -> None:
    pandas = pytest.importorskip("pandas")
    pixels = list(np.random.default_rng(0).integers(0, 256, (4, 6, 7, 3), np.uint8))
    frame = pandas.DataFrame({"image": pixels, "label": [0, 1, 0, 1]}, index=[9, 9, 7, 0])
    data = ImageDomains(frame, domains=pandas.Series(["a", "a", "b", "b"], index=[3, 2, 1, 0]))
    assert [s.domain for s in data] == ["a", "a", "b", "b"]
    assert np.asarray(decode(data.open(1))).tolist() == pixels[1].tolist()


def test_a_series_of_paths(library: Any, photos: Path) -> None:
    given = columns_of(photos)
    frame = library.DataFrame(given)
    data = ImageDomains(frame["path"], root=photos, labels=frame["label"], domains=frame["domain"])
    assert data.samples == ImageDomains(photos).samples


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": None}, "'DataFrame' has no column 'label'.* did you mean labels"),
        ({"path": None}, "'DataFrame' has no column 'path'"),
        ({"label": ["cat"] * 7 + [None]}, "row 7: the label is missing"),
        ({"path": ["nowhere.png"] * 8}, "'DataFrame' lists 'nowhere.png' twice, in rows 0 and 1"),
        ({"path": [f"no{n}.png" for n in range(8)]}, "row 0: no such file in .*: 'no0.png'"),
        ({"path": [None] * 8}, "row 0: the path is missing"),
    ],
)
def test_bad_rows(library: Any, photos: Path, change: dict[str, Any], words: str) -> None:
    given = {**columns_of(photos), **change, "labels": [1] * 8}
    frame = library.DataFrame({name: cells for name, cells in given.items() if cells})
    with pytest.raises(InputError, match=words) as caught:
        ImageDomains(frame, root=photos)
    assert "\n" not in str(caught.value)


def test_mixed_labels_and_columns_twice(photos: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({**columns_of(photos), "label": ["cat"] * 7 + [3]})
    with pytest.raises(InputError, match=r"labels of mixed kinds: 'cat' .* and 3"):
        ImageDomains(frame, root=photos)
    twice = pandas.concat([frame, frame], axis=1)
    with pytest.raises(InputError, match="has the column 'path' twice"):
        ImageDomains(twice, root=photos)


def test_what_is_not_a_frame() -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(InputError, match=r"from a LazyFrame; give a DataFrame; call collect\(\)"):
        ImageDomains(polars.LazyFrame({"path": []}))
