"""Numbers and several labels of images, from every kind of source: one task, the same labels."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import oodzoo
from oodzoo.errors import InputError
from oodzoo.task import Task

N = 12
DOMAINS = ["day" if at % 2 else "night" for at in range(N)]
AGES = [20.5 + 3.25 * at for at in range(N)]
HEIGHTS = [1.5 + 0.01 * at for at in range(N)]
NAMES = ("dog", "cat", "bird")
LABELS = [[name for bit, name in enumerate(NAMES) if at >> bit & 1] for at in range(N)]

NUMBERS = Task("regression", ("age", "height"))
SEVERAL = Task("multilabel", ("bird", "cat", "dog"))
PLUS = {"label": "age+height"}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for at in range(N):
        pixels = np.random.default_rng(at).integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{at:02d}.png")
    return folder


def paths(photos: Path) -> list[str]:
    return [str(photos / f"{at:02d}.png") for at in range(N)]


def images(photos: Path) -> list[Any]:
    return [{"bytes": Path(path).read_bytes(), "path": Path(path).name} for path in paths(photos)]


def write_csv(to: Path, /, **columns: Any) -> Path:
    with to.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return to


def csv_numbers(photos: Path, to: Path) -> oodzoo.ImageDomains:
    columns = {"path": paths(photos), "domain": DOMAINS, "age": AGES, "height": HEIGHTS}
    return oodzoo.ImageDomains(write_csv(to / "x.csv", **columns), columns=PLUS)


def frame_numbers(photos: Path, to: Path) -> oodzoo.ImageDomains:
    frame = pytest.importorskip("pandas").DataFrame(
        {"path": paths(photos), "domain": DOMAINS, "age": AGES, "height": HEIGHTS}
    )
    return oodzoo.ImageDomains(frame, columns=PLUS)


def parquet_numbers(photos: Path, to: Path) -> oodzoo.ImageDomains:
    columns = {"image": images(photos), "domain": DOMAINS, "age": AGES, "height": HEIGHTS}
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(columns), to / "x.parquet")
    return oodzoo.ImageDomains(to / "x.parquet", columns=PLUS)


def parquet_of_paths(photos: Path, to: Path) -> oodzoo.ImageDomains:
    columns = {"path": paths(photos), "domain": DOMAINS, "age": AGES, "height": HEIGHTS}
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(columns), to / "x.parquet")
    return oodzoo.ImageDomains(to / "x.parquet", columns=PLUS)


def hf_numbers(photos: Path, to: Path) -> oodzoo.ImageDomains:
    datasets = pytest.importorskip("datasets")
    columns = {"image": images(photos), "domain": DOMAINS, "age": AGES, "height": HEIGHTS}
    data = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    return oodzoo.ImageDomains(data, columns=PLUS)


def dict_items(photos: Path, to: Path) -> oodzoo.ImageDomains:
    rows = zip(paths(photos), DOMAINS, AGES, HEIGHTS, strict=True)
    items = [{"image": p, "domain": d, "age": a, "height": h} for p, d, a, h in rows]
    return oodzoo.ImageDomains(items, columns=PLUS)


def labels_frame(photos: Path, to: Path) -> oodzoo.ImageDomains:
    frame = pytest.importorskip("pandas").DataFrame({"age": AGES, "height": HEIGHTS})
    return oodzoo.ImageDomains(paths(photos), labels=frame, domains=DOMAINS)


def by_domain(photos: Path, to: Path) -> oodzoo.ImageDomains:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": AGES, "height": HEIGHTS, "path": paths(photos)})
    parts = {d: frame[np.array(DOMAINS) == d] for d in ("day", "night")}
    return oodzoo.ImageDomains(
        {d: (list(part["path"]), part[["age", "height"]]) for d, part in parts.items()}
    )


@pytest.mark.parametrize(
    "make",
    [
        csv_numbers,
        frame_numbers,
        parquet_numbers,
        parquet_of_paths,
        hf_numbers,
        dict_items,
        labels_frame,
        by_domain,
    ],
)
def test_two_numbers(
    make: Callable[[Path, Path], oodzoo.ImageDomains], photos: Path, tmp_path: Path
) -> None:
    data = make(photos, tmp_path)
    assert data.task == NUMBERS
    assert data.classes == ("age", "height")
    assert repr(data).endswith("12 images, 2 domains, 2 numbers)")
    found = {(s.domain, s.label) for s in data}
    assert found == {(d, f"{a!r} {h!r}") for d, a, h in zip(DOMAINS, AGES, HEIGHTS, strict=True)}


def csv_text(photos: Path, to: Path) -> oodzoo.ImageDomains:
    labels = ["|".join(names) for names in LABELS]
    table = write_csv(to / "x.csv", path=paths(photos), domain=DOMAINS, label=labels)
    return oodzoo.ImageDomains(table, task="multilabel")


def csv_zeros_and_ones(photos: Path, to: Path) -> oodzoo.ImageDomains:
    binary = {name: [int(name in some) for some in LABELS] for name in ("dog", "cat", "bird")}
    table = write_csv(to / "x.csv", path=paths(photos), domain=DOMAINS, **binary)
    return oodzoo.ImageDomains(table, columns={"label": "dog+cat+bird"})


def frame_lists(photos: Path, to: Path) -> oodzoo.ImageDomains:
    frame = pytest.importorskip("pandas").DataFrame(
        {"path": paths(photos), "domain": DOMAINS, "label": LABELS}
    )
    return oodzoo.ImageDomains(frame)


def polars_lists(photos: Path, to: Path) -> oodzoo.ImageDomains:
    frame = pytest.importorskip("polars").DataFrame(
        {"path": paths(photos), "domain": DOMAINS, "label": LABELS}
    )
    return oodzoo.ImageDomains(frame)


def parquet_lists(photos: Path, to: Path) -> oodzoo.ImageDomains:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"image": images(photos), "domain": DOMAINS, "label": LABELS})
    pytest.importorskip("pyarrow.parquet").write_table(table, to / "x.parquet")
    return oodzoo.ImageDomains(to / "x.parquet")


def hf_dataset(photos: Path) -> Any:
    """A data set whose labels are lists of numbers of classes."""
    datasets = pytest.importorskip("datasets")
    names = ["dog", "cat", "bird"]
    numbers = [[names.index(name) for name in some] for some in LABELS]
    columns = {"image": images(photos), "domain": DOMAINS, "label": numbers}
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "domain": datasets.Value("string"),
            "label": datasets.Sequence(datasets.ClassLabel(names=names)),
        }
    )
    return datasets.Dataset.from_dict(columns, features=features)


def hf_lists(photos: Path, to: Path) -> oodzoo.ImageDomains:
    return oodzoo.ImageDomains(hf_dataset(photos))


def hf_parquet(photos: Path, to: Path) -> oodzoo.ImageDomains:
    hf_dataset(photos).to_parquet(to / "x.parquet")
    return oodzoo.ImageDomains(to / "x.parquet")


def label_lists(photos: Path, to: Path) -> oodzoo.ImageDomains:
    return oodzoo.ImageDomains(paths(photos), labels=LABELS, domains=DOMAINS)


def again(photos: Path, to: Path) -> oodzoo.ImageDomains:
    """A data set as the source of another one."""
    return oodzoo.ImageDomains(label_lists(photos, to))


@pytest.mark.parametrize(
    "make",
    [
        csv_text,
        csv_zeros_and_ones,
        frame_lists,
        polars_lists,
        parquet_lists,
        hf_lists,
        hf_parquet,
        label_lists,
        again,
    ],
)
def test_several_labels(
    make: Callable[[Path, Path], oodzoo.ImageDomains], photos: Path, tmp_path: Path
) -> None:
    data = make(photos, tmp_path)
    assert data.task == SEVERAL
    assert data.classes == ("bird", "cat", "dog")
    assert repr(data).endswith("12 images, 2 domains, 3 labels)")
    found = sorted((s.domain, s.label) for s in data)
    pairs = zip(DOMAINS, map(SEVERAL.encode, LABELS), strict=True)
    assert found == sorted(pairs)
    assert data.counts()["day"] == {"bird": 2, "cat": 3, "dog": 6}


def test_one_number_has_the_name_of_its_column(photos: Path, tmp_path: Path) -> None:
    table = write_csv(tmp_path / "x.csv", path=paths(photos), domain=DOMAINS, label=AGES)
    assert oodzoo.ImageDomains(table).task.outputs == ("label",)
    table = write_csv(tmp_path / "x.csv", path=paths(photos), domain=DOMAINS, age=AGES)
    assert oodzoo.ImageDomains(table, columns={"label": "age"}).task.outputs == ("age",)
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(AGES, name="years")
    data = oodzoo.ImageDomains(paths(photos), labels=series, domains=DOMAINS)
    assert data.task.outputs == ("years",)


def test_a_column_that_is_named_with_a_plus(photos: Path, tmp_path: Path) -> None:
    columns = {"path": paths(photos), "domain": DOMAINS, "a+b": AGES, "a": AGES, "b": AGES}
    data = oodzoo.ImageDomains(write_csv(tmp_path / "x.csv", **columns), columns={"label": "a+b"})
    assert data.task.outputs == ("a+b",)


@pytest.mark.parametrize(
    ("label", "options", "message"),
    [
        ([1.5] * N, {}, "is constant: 1.5 in all 12 samples"),
        ([*AGES[:5], "", *AGES[6:]], {}, "x.csv', line 7: no label in"),
        ([*AGES[:5], "tall", *AGES[6:]], {}, "line 7: the label 'tall' is not a number, as most"),
        ([*AGES[:5], "nan", *AGES[6:]], {"task": "regression"}, "line 7: the label is 'nan'"),
        (AGES, {"columns": {"label": "labl"}}, "no column 'labl' for the label.* 'label'"),
        (AGES, {"columns": {"label": "label+ag"}}, "no column 'ag' for the label"),
        (AGES, {"task": "multilabel"}, None),
        (["cat"] * 6 + ["dog"] * 6, {"task": "regression"}, "line 2: the label is 'cat', which"),
        (["a|b"] * 6 + ["b"] * 6, {}, r"such as 'a\|b' could be .*--task"),
        (["a|b"] * N, {"task": "multilabel"}, "has the same labels in all 12 samples"),
        (range(N), {"task": "numbers"}, "unknown task 'numbers'"),
    ],
)
def test_bad_labels_of_a_table(
    label: Any, options: dict[str, Any], message: str | None, photos: Path, tmp_path: Path
) -> None:
    table = write_csv(tmp_path / "x.csv", path=paths(photos), domain=DOMAINS, label=label)
    if message is None:
        assert oodzoo.ImageDomains(table, **options).task.kind == "multilabel"
        return
    with pytest.raises(InputError, match=message) as caught:
        oodzoo.ImageDomains(table, **options)
    assert "\n" not in str(caught.value)


def test_a_folder_has_classes(digits: Path) -> None:
    assert oodzoo.ImageDomains(digits, task="classification").task.is_classification
    with pytest.raises(InputError, match=r"has classes: .* for the task regression, give a table"):
        oodzoo.ImageDomains(digits, task="regression")


def test_domains_of_several_kinds(photos: Path) -> None:
    files = paths(photos)
    sources = {"day": (files[:6], AGES[:6]), "night": (files[6:], ["cat", "dog"] * 3)}
    with pytest.raises(InputError, match="several kinds: classification and regression"):
        oodzoo.ImageDomains(sources)


def test_the_fingerprint_has_the_task(photos: Path) -> None:
    files = paths(photos)
    numbers = [float(at % 4) for at in range(N)]
    as_classes = oodzoo.ImageDomains(files, labels=list(map(repr, numbers)), domains=DOMAINS)
    as_numbers = oodzoo.ImageDomains(files, labels=numbers, domains=DOMAINS, task="regression")
    assert as_classes.task.is_classification
    assert [s.label for s in as_classes] == [s.label for s in as_numbers]
    assert as_classes.fingerprint != as_numbers.fingerprint
