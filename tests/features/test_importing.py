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

from oodzoo.errors import InputError
from oodzoo.features.checking import check_store
from oodzoo.features.config import Extraction
from oodzoo.features.importing import import_features
from oodzoo.features.store import FeatureStore

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


def check(store: FeatureStore, name: str = "net", dtype: Any = np.float32) -> None:
    """The rows that went in come out, by domain."""
    assert store.domains == ("day", "night")
    assert store.classes == ("cat", "dog")
    assert store.n_images == N
    for domain in store.domains:
        there = domain == DOMAINS
        np.testing.assert_array_equal(store.features(name, domain), FEATURES[there].astype(dtype))
        assert [store.classes[at] for at in store.labels(domain)] == LABELS[there].tolist()
    assert check_store(store.path).damage == ()


# --- the three forms --------------------------------------------------------------------------


def test_npz(tmp_path: Path) -> None:
    paths = np.array([f"{at}.jpg" for at in range(N)])
    groups = np.array(["g", ""] * 6)
    file = npz(tmp_path / "a.npz", **{"net.logits": LOGITS}, paths=paths, groups=groups)
    store = import_features([file], tmp_path / "s")
    check(store)
    np.testing.assert_array_equal(store.logits("net", "night"), LOGITS[5:])
    assert store.paths("night") == paths[5:].tolist()
    assert store.groups("day") == ["g", None, "g", None, "g"]
    model = store.model("net")
    assert (model.source, model.feature_dim, model.n_logits) == ("import", 4, 3)


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i2", "u1", ">f4"])
def test_numbers_of_any_type(tmp_path: Path, kind: str) -> None:
    features = np.arange(N * 4).reshape(N, 4).astype(kind)
    store = import_features([npz(tmp_path / "a.npz", net=features)], tmp_path / "s")
    np.testing.assert_array_equal(store.features("net", "day"), np.arange(20).reshape(5, 4))
    assert store.model("net").dtype == "float32"


@pytest.mark.parametrize("labels", [np.arange(N) % 2, (np.arange(N) % 2).astype("S")])
def test_labels_and_domains_may_be_numbers(tmp_path: Path, labels: Any) -> None:
    file = npz(tmp_path / "a.npz", labels=labels, domains=np.arange(N) // 6)
    store = import_features([file], tmp_path / "s")
    assert (store.classes, store.domains) == (("0", "1"), ("0", "1"))


def test_npy_and_csv(tmp_path: Path) -> None:
    for name in ("net", "double"):
        np.save(tmp_path / f"{name}.npy", FEATURES * (2 if name == "double" else 1))
    files = [tmp_path / "net.npy", tmp_path / "double.npy"]
    store = import_features(files, tmp_path / "s", table=table(tmp_path / "rows.csv"))
    check(store)
    np.testing.assert_array_equal(store.features("double", "day"), 2 * FEATURES[:5])


@pytest.mark.parametrize("kind", [pa.list_, lambda t: pa.list_(t, 4), pa.large_list])
def test_parquet_of_lists(tmp_path: Path, kind: Any) -> None:
    lists = pa.array(FEATURES.tolist(), kind(pa.float32()))
    logits = {"net.logits": LOGITS.tolist()}
    store = import_features([parquet(tmp_path / "a.parquet", net=lists, **logits)], tmp_path / "s")
    check(store)
    np.testing.assert_allclose(store.logits("net", "day"), LOGITS[:5], rtol=1e-6)


def test_parquet_of_numbers(tmp_path: Path) -> None:
    columns = {f"f{at}": FEATURES[:, at] for at in range(4)}
    store = import_features(
        [parquet(tmp_path / "mine.parquet", net=None, **columns)], tmp_path / "s"
    )
    check(store, "mine")


def test_the_forms_agree(tmp_path: Path, tree: Tree) -> None:
    np.save(tmp_path / "net.npy", FEATURES)
    import_features([npz(tmp_path / "a.npz")], tmp_path / "s1")
    import_features([parquet(tmp_path / "a.parquet")], tmp_path / "s2")
    rows = table(tmp_path / "rows.csv")
    import_features([tmp_path / "net.npy"], tmp_path / "s3", table=rows)
    assert tree(tmp_path / "s1") == tree(tmp_path / "s2") == tree(tmp_path / "s3")


def test_float16(tmp_path: Path) -> None:
    store = import_features([npz(tmp_path / "a.npz")], tmp_path / "s", dtype="float16")
    check(store, dtype=np.float16)


# --- a store that is there --------------------------------------------------------------------


def test_a_second_model_comes(tmp_path: Path, stamps: Stamps) -> None:
    import_features([npz(tmp_path / "a.npz")], tmp_path / "s")
    times = stamps(tmp_path / "s")
    store = import_features(
        [npz(tmp_path / "b.npz", net=None, two=FEATURES[:, :2])], tmp_path / "s"
    )
    assert store.models == ("net", "two")
    assert stamps(tmp_path / "s").items() > times.items()
    check(store)


def test_the_same_import_again_changes_nothing(tmp_path: Path, tree: Tree, stamps: Stamps) -> None:
    import_features([npz(tmp_path / "a.npz")], tmp_path / "s")
    before = tree(tmp_path / "s"), stamps(tmp_path / "s")
    import_features([tmp_path / "a.npz"], tmp_path / "s")
    assert (tree(tmp_path / "s"), stamps(tmp_path / "s")) == before


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


def test_an_extracted_store_is_refused(tmp_path: Path, store: Path, tree: Tree) -> None:
    before = tree(store)
    with pytest.raises(InputError, match="another data set"):
        import_features([npz(tmp_path / "a.npz")], store)
    assert tree(store) == before


def test_images_do_not_go_into_an_imported_store(
    tmp_path: Path, photos: Path, extract: Callable[..., Extraction], make_model: Callable[..., Any]
) -> None:
    import_features([npz(tmp_path / "a.npz")], tmp_path / "s")
    with pytest.raises(InputError, match="another data set"):
        extract(photos, [make_model()], tmp_path / "s")


# --- what is none of the forms ----------------------------------------------------------------

NAN = np.where(np.arange(N)[:, None] == 7, np.nan, FEATURES)
OBJECTS = np.array(["cat", 1] * 6, dtype=object)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"labels": None}, "has no labels"),
        ({"domains": None}, "has no domains"),
        ({"labels": OBJECTS}, "cannot be read as plain arrays .* not as objects"),
        ({"net": OBJECTS}, "cannot be read as plain arrays"),
        ({"labels": LABELS[1:]}, "has 11 labels and 12 domains"),
        ({"groups": ["g"] * 3}, "has 12 labels and 3 groups"),
        ({"net": FEATURES[1:]}, "features of 'net' have 11 rows, but there are 12 labels"),
        ({"net.logits": LOGITS[1:]}, "logits of 'net' have 11 rows"),
        ({"net": NAN}, "features of 'net' contain NaN or infinity, first in row 7"),
        ({"net.logits": NAN}, "logits of 'net' contain NaN or infinity, first in row 7"),
        ({"net": FEATURES[:, 0]}, r"must be numbers \(n, d\), got float32 \(12,\)"),
        ({"net": FEATURES[:, :0]}, r"must be numbers \(n, d\), got float32 \(12, 0\)"),
        ({"net": FEATURES[None]}, r"must be numbers \(n, d\), got float32 \(1, 12, 4\)"),
        ({"net": FEATURES.astype(str)}, "must be numbers"),
        ({"net": FEATURES.astype(complex)}, "must be numbers"),
        ({"net": FEATURES > 0}, "must be numbers"),
        ({"net": FEATURES.astype(float) * 1e300}, "values up to .* do not fit float32"),
        ({"net": None}, "has no features"),
        ({"other.logits": LOGITS}, "has logits of 'other' without its features"),
        ({"domains": ["day"] * N}, "has one domain, 'day'; at least two"),
        ({"labels": ["cat"] * N}, "has one class, 'cat'; at least two"),
        ({"labels": [*LABELS[:-1], " "]}, "the label of row 11 is empty"),
        ({"domains": ["", *DOMAINS[1:]]}, "the domain of row 0 is empty"),
        ({"paths": ["a.jpg"] * N}, "lists the path 'a.jpg' twice"),
        ({"labels": LABELS[:, None]}, r"labels must be \(n,\), got shape \(12, 1\)"),
        ({"labels": "cat"}, r"labels must be \(n,\), got shape \(\)"),
        ({"a/b": FEATURES}, "the name 'a/b' cannot be the name of a folder"),
        ({"skipped": FEATURES}, "cannot be named 'skipped'"),
    ],
)
def test_a_bad_npz_is_one_line(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    file = npz(tmp_path / "a.npz", **change)
    with pytest.raises(InputError, match=complaint) as caught:
        import_features([file], tmp_path / "s")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "s").exists()


RAGGED = [[1.0] * (3 + at % 2) for at in range(N)]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"label": None}, "has no labels"),
        ({"domain": None}, "has no domains"),
        ({"net": None}, "has no features"),
        ({"net": RAGGED}, "the lists of column 'net' have between 3 and 4 numbers"),
        ({"net": [None, *FEATURES[1:].tolist()]}, "between 0 and 4 numbers"),
        ({"net": [[1.0, None]] * N}, "contain NaN or infinity, first in row 0"),
        ({"net": [["a"]] * N}, "the lists of column 'net' contain other values"),
        ({"net": ["a"] * N}, "must be numbers"),
        ({"net": [[]] * N}, "must be numbers"),
        ({"label": [None, *LABELS[1:]]}, "the label of row 0 is empty"),
        ({"path": ["a"] * N}, "lists the path 'a' twice"),
        ({"x.logits": LOGITS.tolist()}, "has logits of 'x' without its features"),
    ],
)
def test_a_bad_parquet_is_one_line(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    file = parquet(tmp_path / "a.parquet", **change)
    with pytest.raises(InputError, match=complaint) as caught:
        import_features([file], tmp_path / "s")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("rows", "header", "complaint"),
    [
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
    ],
)
def test_a_bad_table_is_one_line(tmp_path: Path, rows: Any, header: str, complaint: str) -> None:
    np.save(tmp_path / "net.npy", FEATURES)
    file = table(tmp_path / "rows.csv", rows, header)
    with pytest.raises(InputError, match=complaint):
        import_features([tmp_path / "net.npy"], tmp_path / "s", table=file)
    assert not (tmp_path / "s").exists()


def test_a_table_that_is_no_text(tmp_path: Path) -> None:
    np.save(tmp_path / "net.npy", FEATURES)
    (tmp_path / "rows.csv").write_bytes(b"\xff\xfe\x00")
    for file in (tmp_path / "rows.csv", tmp_path / "absent.csv", tmp_path):
        with pytest.raises(InputError, match="cannot read the table"):
            import_features([tmp_path / "net.npy"], tmp_path / "s", table=file)


@pytest.mark.parametrize("content", [b"", b"text", b"\x93NUMPY\x01\x00", "npz", "objects"])
def test_a_bad_npy_is_one_line(tmp_path: Path, content: bytes | str) -> None:
    file = tmp_path / "net.npy"
    if content == "npz":
        shutil.copy(npz(tmp_path / "a.npz"), file)
    elif content == "objects":
        np.save(file, OBJECTS, allow_pickle=True)
    else:
        assert isinstance(content, bytes)
        file.write_bytes(content)
    with pytest.raises(InputError, match=r"net\.npy' is not a plain \.npy array") as caught:
        import_features([file], tmp_path / "s", table=table(tmp_path / "rows.csv"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04", b"PAR1"])
def test_bytes_of_no_form(tmp_path: Path, suffix: str, content: bytes) -> None:
    file = tmp_path / f"a{suffix}"
    file.write_bytes(content)
    with pytest.raises(
        InputError, match=r"cannot be read as plain|is not a Parquet file"
    ) as caught:
        import_features([file], tmp_path / "s")
    assert "\n" not in str(caught.value)


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
        ([rows], {}, "cannot import"),
        ([good, good], {}, "cannot import"),
        ([good, twice[0]], {}, "cannot import"),
        ([], {}, "cannot import"),
        ([twice[0]], {}, "needs a table of its rows: --table"),
        ([good], {"table": rows}, "only used with .npy files"),
        (twice, {"table": rows}, "names two models 'net'"),
        ([good], {"dtype": "float64"}, "unknown dtype 'float64'; expected one of"),
    ):
        with pytest.raises(InputError, match=complaint):
            import_features(files, tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_values_too_large_for_float16_write_nothing(tmp_path: Path) -> None:
    """Else a person who then takes float32, as they are told, would find the name taken."""
    file = npz(tmp_path / "a.npz", net=FEATURES * 1e6)
    with pytest.raises(InputError, match="do not fit float16; store them as float32"):
        import_features([file], tmp_path / "s", dtype="float16")
    assert not (tmp_path / "s").exists()


def test_a_foreign_folder(tmp_path: Path, photos: Path) -> None:
    with pytest.raises(InputError, match="is neither empty nor a feature store"):
        import_features([npz(tmp_path / "a.npz")], photos)
    assert not (photos / ".lock").exists()
