"""Features from elsewhere: three forms, and one line for everything that is not one of them."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.features.data import Stamps, Tree

from oodzoo.core.errors import InputError
from oodzoo.extraction.importing import import_features, read_feature_files
from oodzoo.extraction.outcome import Extraction
from oodzoo.store.checking import check_store
from oodzoo.store.feature_store import FeatureStore

N = 12
LABELS = np.array(["cat", "dog"] * 6)
DOMAINS = np.array(["day"] * 5 + ["night"] * 7)
FEATURES = np.random.default_rng(0).normal(size=(N, 4)).astype(np.float32)
LOGITS = np.random.default_rng(1).normal(size=(N, 3)).astype(np.float32)


def npz(path: Path, /, **arrays: Any) -> Path:
    """A sound file, with arrays added, changed, or (None) left out."""
    content = {"net": FEATURES, "labels": LABELS, "domains": DOMAINS} | arrays
    np.savez(path, **{name: array for name, array in content.items() if array is not None})
    return path


def table(path: Path, rows: Sequence[Sequence[object]] | None = None, header: str = "") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        default = list(zip(DOMAINS, LABELS, strict=True))
        head = (header or "domain,label").split(",")
        csv.writer(file).writerows([head, *(default if rows is None else rows)])
    return path


def parquet(path: Path, /, **columns: Any) -> Path:
    content = {"net": FEATURES.tolist(), "label": LABELS.tolist(), "domain": DOMAINS.tolist()}
    content |= columns
    pq.write_table(pa.table({k: v for k, v in content.items() if v is not None}), path)
    return path


def check(
    store: FeatureStore, name: str = "net", dtype: Any = np.float32, paths: Any = range(N)
) -> None:
    """The rows that went in come out, by domain and path."""
    assert store.domains == ("day", "night")
    assert store.classes == ("cat", "dog")
    assert store.n_images == N
    for domain in store.domains:
        there = sorted(np.flatnonzero(domain == DOMAINS), key=lambda row: paths[row])
        np.testing.assert_array_equal(store.features(name, domain), FEATURES[there].astype(dtype))
        assert [store.classes[at] for at in store.labels(domain)] == LABELS[there].tolist()
    assert check_store(store.path).damage == ()


def test_npz(tmp_path: Path) -> None:
    paths = np.array([f"{at}.jpg" for at in range(N)])
    groups = np.array(["g", ""] * 6)
    file = npz(tmp_path / "a.npz", **{"net.logits": LOGITS}, paths=paths, groups=groups)
    store = import_features([file], tmp_path / "s")
    check(store, paths=paths)
    assert store.paths("night") == ["10.jpg", "11.jpg", *(f"{at}.jpg" for at in range(5, 10))]
    np.testing.assert_array_equal(store.logits("net", "night"), LOGITS[[10, 11, *range(5, 10)]])
    assert store.groups("day") == ["g", None, "g", None, "g"]
    assert store.groups("night") == ["g", None, None, "g", None, "g", None]
    model = store.model("net")
    assert (model.source, model.feature_dim, model.n_logits) == ("import", 4, 3)


@pytest.mark.parametrize("kind", ["f2", "f8", "u1", ">f4"])
def test_numbers_of_any_type(tmp_path: Path, kind: str) -> None:
    features = np.arange(N * 4).reshape(N, 4).astype(kind)
    store = import_features([npz(tmp_path / "a.npz", net=features)], tmp_path / "s")
    np.testing.assert_array_equal(store.features("net", "day"), np.arange(20).reshape(5, 4))
    assert store.model("net").dtype == "float32"


@pytest.mark.parametrize("kind", [pa.list_, lambda t: pa.list_(t, 4), pa.large_list])
def test_parquet_of_lists(tmp_path: Path, kind: Any) -> None:
    lists = pa.array(FEATURES.tolist(), kind(pa.float32()))
    logits = {"net.logits": LOGITS.tolist()}
    store = import_features([parquet(tmp_path / "a.parquet", net=lists, **logits)], tmp_path / "s")
    check(store)
    np.testing.assert_allclose(store.logits("net", "day"), LOGITS[:5], rtol=1e-6)


LONGER = {
    "net": None,
    "two": np.ones((N + 1, 2)),
    "labels": [*LABELS, "cat"],
    "domains": [*DOMAINS, "day"],
}
SHORTER = {"net": None, "two": np.ones((N - 1, 2)), "labels": LABELS[1:], "domains": DOMAINS[1:]}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"labels": LABELS[::-1]}, "the store has the label 'cat' for 'row-0000000', .* has 'dog'"),
        ({"domains": DOMAINS[::-1]}, "not in the store"),
        ({"net": FEATURES + 1}, r"another model under the name 'net' \(fingerprint"),
        ({"net": FEATURES[:, :3]}, "another model under the name 'net'"),
        ({"net.logits": LOGITS}, "another model under the name 'net'"),
        ({"paths": [f"{at}.png" for at in range(N)]}, "another data set"),
        # the rows of the model that is there would end before the others'
        (LONGER, "1 row not in the store, the first is 'row-0000012' of 'day'"),
        (SHORTER, "not in th"),
    ],
)
def test_another_import_is_refused(
    tmp_path: Path, tree: Tree, change: dict[str, Any], complaint: str
) -> None:
    import_features([npz(tmp_path / "a.npz")], tmp_path / "s")
    before = tree(tmp_path / "s")
    with pytest.raises(InputError, match=complaint):
        import_features([npz(tmp_path / "b.npz", **change)], tmp_path / "s")
    assert tree(tmp_path / "s") == before


def described(store: Path, /, **changed: Any) -> dict[str, Any]:
    """The rows of an extracted store, in another order, with other features."""
    opened = FeatureStore(store)
    rows = [
        (path, domain, opened.classes[label])
        for domain in opened.domains
        for path, label in zip(opened.paths(domain), opened.labels(domain), strict=True)
    ]
    paths, domains, labels = np.array(rows[::-1]).T
    numbers = np.array([float(int(path[-8:-4])) for path in paths])
    content = {"paths": paths, "domains": domains, "labels": labels, "net": numbers[:, None]}
    return content | changed


def test_features_of_extracted_images_belong_to_them(
    tmp_path: Path, store: Path, tree: Tree, stamps: Stamps
) -> None:
    before, times = FeatureStore(store), stamps(store)
    index = (store / "images/00000.json").read_bytes()
    found = import_features([npz(tmp_path / "a.npz", **described(store))], store)
    assert found.models == ("mlp_glyphs_augmented", "net", "separable_shapes")
    assert stamps(store).items() > times.items()
    assert [path.name for path in (store / "images").iterdir()] == ["00000.json"]
    assert (store / "images/00000.json").read_bytes() == index
    assert found.data_fingerprint == before.data_fingerprint
    for domain in before.domains:
        assert found.images(domain) == before.images(domain)
        numbers = [[float(int(path[-8:-4]))] for path in found.paths(domain)]
        np.testing.assert_array_equal(found.features("net", domain), numbers)
    assert check_store(store).damage == ()
    done = tree(store)
    import_features([tmp_path / "a.npz"], store)
    assert tree(store) == done


def test_samples_of_one_image_cannot_have_two_features(
    tmp_path: Path,
    data: Path,
    extract: Callable[..., Extraction],
    make_model: Callable[..., Any],
    tree: Tree,
) -> None:
    shutil.copy(next((data / "marker/1").iterdir()), data / "marker/1/again0000.png")
    extract(data, [make_model()], tmp_path / "s")
    before = tree(tmp_path / "s")
    with pytest.raises(InputError, match=r"again0000.png' are the same image .* a new store"):
        import_features([npz(tmp_path / "a.npz", **described(tmp_path / "s"))], tmp_path / "s")
    assert tree(tmp_path / "s") == before


NAN = np.where(np.arange(N)[:, None] == 7, np.nan, FEATURES)
OBJECTS = np.array(["cat", 1] * 6, dtype=object)


RAGGED = [[1.0] * (3 + at % 2) for at in range(N)]


@pytest.mark.parametrize(
    ("form", "change", "complaint"),
    [
        (npz, {"labels": None}, "has no labels"),
        (npz, {"domains": None}, "has no domains"),
        (npz, {"labels": OBJECTS}, "cannot be read as plain arrays .* not as objects"),
        (npz, {"labels": LABELS[1:]}, "has 11 labels and 12 domains"),
        (npz, {"net": FEATURES[1:]}, "features of 'net' have 11 rows, but there are 12 labels"),
        (npz, {"net": NAN}, "features of 'net' contain NaN or infinity, first in row 7"),
        (npz, {"net.logits": NAN}, "logits of 'net' contain NaN or infinity, first in row 7"),
        (npz, {"net": FEATURES[:, 0]}, r"must be numbers \(n, d\), got float32 \(12,\)"),
        (npz, {"net": FEATURES[:, :0]}, r"must be numbers \(n, d\), got float32 \(12, 0\)"),
        (npz, {"net": FEATURES.astype(str)}, "must be numbers"),
        (npz, {"net": FEATURES.astype(float) * 1e300}, "values up to .* do not fit float32"),
        (npz, {"net": None}, "has no features"),
        (npz, {"other.logits": LOGITS}, "has logits of 'other' without its features"),
        (npz, {"domains": ["day"] * N}, "has one domain, 'day'; at least two"),
        (npz, {"labels": ["cat"] * N}, "has one class, 'cat'; at least two"),
        (npz, {"labels": [*LABELS[:-1], " "]}, "the label of row 11 is empty"),
        (npz, {"domains": ["", *DOMAINS[1:]]}, "the domain of row 0 is empty"),
        (npz, {"paths": ["a.jpg"] * N}, "lists the path 'a.jpg' twice"),
        (npz, {"labels": LABELS[:, None]}, r"labels must be \(n,\), got shape \(12, 1\)"),
        (npz, {"a/b": FEATURES}, "the name 'a/b' cannot be the name of a folder"),
        (parquet, {"net": RAGGED}, "the lists of column 'net' have between 3 and 4 numbers"),
        (parquet, {"net": [[1.0, None]] * N}, "contain NaN or infinity, first in row 0"),
        (parquet, {"net": [["a"]] * N}, "the lists of column 'net' contain other values"),
        (parquet, {"net": [[]] * N}, "must be numbers"),
        (parquet, {"label": [None, *LABELS[1:]]}, "the label of row 0 is empty"),
    ],
)
def test_bad_files_are_one_line(
    tmp_path: Path, form: Callable[..., Path], change: dict[str, Any], complaint: str
) -> None:
    file = form(tmp_path / f"a.{form.__name__}", **change)
    with pytest.raises(InputError, match=complaint) as caught:
        import_features([file], tmp_path / "s")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "s").exists()


def test_bad_arrays_and_tables_are_one_line(tmp_path: Path) -> None:
    array, rows = tmp_path / "net.npy", tmp_path / "rows.csv"
    np.save(array, FEATURES)
    tables: list[tuple[Any, str, str]] = [
        (None, "domain,class", "has no labels"),
        (None, "label,class", "has no domains"),
        ([], "domain,label", "has no row below its header"),
        (
            [("day", "cat"), ("night", "dog")],
            "domain,label",
            "have 12 rows, but there are 2 labels",
        ),
        ([("day", "cat"), ("night",)] * 6, "domain,label", "the label of row 1 is empty"),
        ([("day", "cat", "p")] * N, "domain,label,path", "lists the path 'p' twice"),
    ]
    for content, header, complaint in tables:
        with pytest.raises(InputError, match=complaint):
            import_features([array], tmp_path / "s", table=table(rows, content, header))
    rows.write_bytes(b"\xff\xfe\x00")
    for path in (rows, tmp_path / "absent.csv", tmp_path):
        with pytest.raises(InputError, match="cannot read the table"):
            import_features([array], tmp_path / "s", table=path)
    table(rows)
    np.save(tmp_path / "objects.npy", OBJECTS, allow_pickle=True)
    for given in (
        *(b"", b"\x93NUMPY\x01\x00", npz(tmp_path / "a.npz").read_bytes()),
        (tmp_path / "objects.npy").read_bytes(),
    ):
        array.write_bytes(given)
        with pytest.raises(InputError, match=r"net\.npy' is not a plain \.npy array") as caught:
            import_features([array], tmp_path / "s", table=rows)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "s").exists()


def test_npz_is_checked_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arrays may be thousands of times larger than the file."""
    file, memory = npz(tmp_path / "a.npz"), 3 * N * (4 * 4 + 4 * 3 + 16)
    monkeypatch.setattr("oodzoo.extraction.importing.available_memory", lambda: memory)
    with pytest.raises(InputError, match=r"takes .* kB, but 1\.6 kB of memory are available"):
        import_features([file], tmp_path / "s")


def test_files_that_do_not_go_together(tmp_path: Path) -> None:
    good = npz(tmp_path / "a.npz")
    rows = table(tmp_path / "rows.csv")
    for name in ("a/net.npy", "b/net.npy"):
        (tmp_path / name).parent.mkdir()
        np.save(tmp_path / name, FEATURES)
    twice = [tmp_path / "a/net.npy", tmp_path / "b/net.npy"]
    for files, options, complaint in (
        ([tmp_path / "absent.npz"], {}, "no such file"),
        ([tmp_path], {}, "no such file"),
        ([rows], {}, "has no features"),
        ([good, good], {}, "cannot read features from"),
        ([good, twice[0]], {}, "cannot read features from"),
        ([], {}, "cannot read features from"),
        ([twice[0]], {}, "needs a table of its rows: --table"),
        ([good], {"table": rows}, "only used with .npy files"),
        (twice, {"table": rows}, "names two models 'net'"),
        ([good], {"dtype": "float64"}, "unknown dtype 'float64'; expected one of"),
    ):
        with pytest.raises(InputError, match=complaint):
            import_features(files, tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


X = np.arange(6.0).reshape(3, 2)


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
