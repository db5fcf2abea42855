"""Damaged files: each reader returns a valid object or raises an InputError of one line.

A file starts valid. Its structure is changed first (keys, values, rows, arrays), then its bytes.
Checksums are corrected after that, so that the checks behind them are reached.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.store.data import fill, flip, image, letters, refusal, unlabelled

import oodzoo
from oodzoo import testbed
from oodzoo.combining.selection import select_features
from oodzoo.core.io import json_bytes
from oodzoo.events import Events
from oodzoo.extraction.features import VERSION, as_source, read_cached, write_cached
from oodzoo.extraction.importing import read_features
from oodzoo.pipeline.stages import Recorder, Stages
from oodzoo.predictor.saved import read_document, read_folder, write_folder
from oodzoo.ranking.testbed.runner import read_values
from oodzoo.report import record
from oodzoo.report.record import Run, read_run
from oodzoo.store.checking import check_store
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import sealed, sealed_bytes
from oodzoo.store.shards import ShardFile, checksum, open_shard, read_record
from oodzoo.store.writer import update_local

# set the variable to try more files of each kind
EXAMPLES = int(os.environ.get("OODZOO_FUZZ", "60"))


_DEEP, _HUGE, _INFINITE = "<deep>", "<huge>", "<infinite>"
_LITERALS = {  # what json.dumps cannot write
    f'"{_DEEP}"': "[" * 10_000 + "]" * 10_000,
    f'"{_HUGE}"': "9" * 5_000,
    f'"{_INFINITE}"': "1e400",
}
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2, 1e308, -1e308, 1e-320, 0.5, 10**30, 10**400, 2**63,
    math.nan, math.inf, "", "\0", "\ud800", "a\nb", "x" * 100_000, "../../x", "/", "é" * 200, "1",
    "00000", "nan", [], [[]], [None], {}, {"": {}}, [0] * 3, _DEEP, _HUGE, _INFINITE,
    "<nested>",
]  # fmt: skip


def odd(number: int) -> Any:
    value = deepcopy(ODD[number % len(ODD)])
    if value == "<nested>":  # deep, but not too deep for the parser
        value = []
        for _ in range(300):
            value = [value]
    return value


Change = tuple[str, int, int]
"""A change of a structure: what to do, at which node, with which other number."""
Edit = tuple[str, float, bytes]
"""A change of bytes: what to do, where (as a share of the file), with which bytes."""
Damage = tuple[list[Change], list[Edit]]

changes = st.tuples(
    st.sampled_from(["delete", "rename", "replace", "replace", "copy", "swap"]),
    st.integers(0, 1 << 30),
    st.integers(0, 1 << 30),
)
edits = st.tuples(
    st.sampled_from(["flip", "truncate", "insert", "remove", "overwrite"]),
    st.floats(0, 1, exclude_max=True),
    st.binary(min_size=1, max_size=4)
    | st.sampled_from([b"[", b"{", b'"', b",", b"\n", b"\0", b"9"]),
)
damages: st.SearchStrategy[Damage] = st.one_of(
    st.tuples(st.lists(changes, min_size=1, max_size=3), st.just([])),
    st.tuples(st.just([]), st.lists(edits, min_size=1, max_size=3)),
    st.tuples(st.lists(changes, max_size=2), st.lists(edits, max_size=1)),
)


def node(container: Any, number: int) -> tuple[Any, Any]:
    """Choose a container and one of its keys; all levels are about equally likely."""
    keys = list(container) if isinstance(container, dict) else range(len(container))
    number, at = divmod(number, len(keys))
    inside = container[keys[at]]
    number, deeper = divmod(number, 4)
    if isinstance(inside, dict | list) and inside and deeper:
        return node(inside, number)
    return container, keys[at]


def changed(document: Any, steps: Sequence[Change]) -> Any:
    """Return a changed copy of a structure of dicts and lists."""
    document = deepcopy(document)
    for action, at, other in steps:
        if not document:
            break
        container, key = node(document, at)
        if action == "replace":
            container[key] = odd(other)
        elif action == "delete":
            del container[key]
        elif action == "swap":  # with another value of the document
            source, name = node(document, other)
            container[key] = deepcopy(source[name])
        elif isinstance(container, dict):
            new = odd(other) if isinstance(odd(other), str) else f"{key}x"
            container[new] = container[key] if action == "copy" else container.pop(key)
        else:
            container.insert(other % (len(container) + 1), deepcopy(container[key]))
    return document


def edited(content: bytes, steps: Sequence[Edit]) -> bytes:
    """Return changed bytes."""
    for action, at, new in steps:
        start = int(at * len(content))
        if action == "flip" and content:
            flipped = content[start] ^ (1 << new[0] % 8)
            content = content[:start] + bytes([flipped]) + content[start + 1 :]
        elif action == "truncate":
            content = content[:start]
        elif action == "insert":
            content = content[:start] + new + content[start:]
        elif action == "remove":
            content = content[:start] + content[start + len(new) :]
        else:
            content = content[:start] + new + content[start + len(new) :]
    return content


def to_json(document: Any) -> bytes:
    text = json.dumps(document)
    for name, literal in _LITERALS.items():
        text = text.replace(name, literal)
    return text.encode()


def to_toml(document: dict[str, Any]) -> bytes:
    lines = []
    for key, tables in document.items():
        for table in tables if isinstance(tables, list) else [tables]:
            if isinstance(table, dict):
                lines.append(f"[[{json.dumps(key)}]]")
                lines += [f"{json.dumps(k)} = {to_json(v).decode()}" for k, v in table.items()]
            else:
                lines.append(f"{json.dumps(key)} = {to_json(table).decode()}")
    return "\n".join(lines).replace("NaN", "nan").replace("Infinity", "inf").encode()


def to_csv(rows: Any) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    for row in rows if isinstance(rows, list) else [rows]:
        with_cells = row if isinstance(row, list) else [row]
        writer.writerow(["" if cell is None else cell for cell in with_cells])
    return text.getvalue().encode(errors="replace")


def as_array(value: Any) -> Any:
    """Make an array of a changed value: of numbers, strings or other shapes; never of objects."""
    if isinstance(value, dict):
        value = list(value)
    try:
        array = np.array(value)
    except (ValueError, OverflowError):  # ragged, too deep, or too large
        return np.array(str(value)[:100])
    return np.array(str(value)[:100]) if array.dtype.hasobject else array


def to_npz(document: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    arrays = {name.replace("\ud800", "?")[:200]: as_array(v) for name, v in document.items()}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def to_npy(value: list[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, as_array(value[0] if value else None), allow_pickle=False)
    return buffer.getvalue()


def to_parquet(document: dict[str, Any]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    columns = {}
    for name, values in document.items():
        with_rows = values if isinstance(values, list) else [values]
        try:
            columns[name.replace("\ud800", "?")] = pyarrow.array(with_rows)
        except (pyarrow.ArrowException, OverflowError, ValueError):  # mixed types
            columns[name.replace("\ud800", "?")] = pyarrow.array([repr(v)[:50] for v in with_rows])
    n = max(map(len, columns.values()), default=0)
    full = {k: v if len(v) == n else pyarrow.nulls(n, v.type) for k, v in columns.items()}
    buffer = io.BytesIO()
    try:
        parquet.write_table(pyarrow.table(full), buffer)
    except pyarrow.ArrowException:  # a type that Parquet does not have
        return b""
    return buffer.getvalue()


def to_safetensors(document: dict[str, Any]) -> bytes:
    from safetensors.numpy import save

    arrays = {}
    for name, values in document.items():
        array = as_array(values)
        array = np.zeros(1) if array.dtype.kind not in "fiub" else array
        arrays[name.replace("\ud800", "?")] = np.ascontiguousarray(array)
    return bytes(save(arrays))


def to_tar(document: dict[str, Any]) -> bytes:
    """Write an archive whose members are texts or JSON documents."""
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT, errors="surrogatepass"
    ) as archive:
        for name, value in document.items():
            info = tarfile.TarInfo(name)
            content = value.encode(errors="replace") if isinstance(value, str) else to_json(value)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


Read = Callable[[], object]


class Reader(NamedTuple):
    """A valid file, how to write it, and how to read it."""

    path: Path
    document: Any
    write: Callable[[Any], bytes]
    reads: list[Read]
    seal: Callable[[bytes], bytes] = bytes
    """Corrects checksums of the file."""


def parsed(content: bytes) -> Any:
    """Parse JSON; None if it is not a JSON object that can be written again."""
    try:
        document = json.loads(content)
        json_bytes(document)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def zoo_file(folder: Path) -> Reader:
    common = {"input_size": 224, "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.2, 0.3], "logits": "y"}
    models = [
        {"name": "a", "source": "onnx/a.onnx", "features": "x", "sha256": "0" * 64, **common},
        {"name": "b", "source": "timm/b", "feature_dim": 8, "parameters": 9, "licence": "MIT"},
    ]
    path = folder / "zoo.toml"
    return Reader(path, {"model": models}, to_toml, [partial(oodzoo.load_zoo, path)])


def data_table(folder: Path) -> Reader:
    rows = [["path", "domain", "label", "group"]]
    for number in range(4):
        Image.new("RGB", (2, 2), (number, 0, 0)).save(folder / f"{number}.png")
        rows.append([f"{number}.png", f"d{number // 2}", f"c{number % 2}", "g"])
    path = folder / "table.csv"
    return Reader(path, rows, to_csv, [lambda: oodzoo.ImageDomains(path, root=folder).fingerprint])


def read_data(path: Path) -> None:
    """List images and read all of them."""
    data = oodzoo.ImageDomains(path)
    json_bytes([data.samples, data.name, data.unreadable])
    assert len(data.digests) == len(data)


def tar_data(folder: Path) -> Reader:
    document: dict[str, Any] = {}
    for number in range(4):
        document[f"a/{number}.ppm"] = f"P3 1 1 255 {number} 0 0"
        document[f"a/{number}.cls"] = f"c{number % 2}"
        document[f"a/{number}.json"] = {"domain": f"d{number // 2}", "group": number}
    path = folder / "images.tar"
    return Reader(path, document, to_tar, [partial(read_data, path)])


def parquet_data(folder: Path) -> Reader:
    pytest.importorskip("pyarrow")
    document = {
        "image": [f"P3 1 1 255 {number} 0 0".encode() for number in range(4)],
        "label": ["a", "b", "a", "b"],
        "domain": [0, 0, 1, 1],
        "group": ["g", None, None, "h"],
        "path": ["1", "2", "3", "4"],
    }
    path = folder / "images.parquet"
    return Reader(path, document, to_parquet, [partial(read_data, path)])


FEATURES = {
    "m": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]],
    "m.logits": [[1, 0, 0]] * 4,
    "labels": ["a", "b", "a", "b"],
    "domains": ["x", "x", "y", "y"],
    "groups": ["g", "", "h", "h"],
    "paths": ["1", "2", "3", "4"],
}


def imported(files: list[Path], table: Path | None = None) -> None:
    found = read_features(files, table)
    for arrays in (found.features, found.logits):
        for array in arrays.values():
            assert array.shape[0] == len(found.samples)
            assert np.isfinite(array).all()
    for sample in found.samples:
        json_bytes(sample)
        "".join([sample.path, sample.domain, sample.label]).encode()


def import_reader(folder: Path, kind: str) -> Reader:
    rows = [["label", "domain", "group", "path"]]
    rows += [["a", "x", "g", "1"], ["b", "x", "", "2"], ["a", "y", "h", "3"], ["b", "y", "h", "4"]]
    array, table = folder / "m.npy", folder / "rows.csv"
    np.save(array, np.array(FEATURES["m"]))
    table.write_bytes(to_csv(rows))
    if kind == "table":
        return Reader(table, rows, to_csv, [lambda: imported([array], table)])
    if kind == "npy":
        return Reader(array, [FEATURES["m"]], to_npy, [lambda: imported([array], table)])
    path, document, write = folder / f"features.{kind}", FEATURES, to_npz
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        document = {k.removesuffix("s") if k != "m.logits" else k: v for k, v in FEATURES.items()}
        write = to_parquet
    return Reader(path, document, write, [lambda: imported([path])])


def cache(folder: Path) -> Reader:
    path = folder / "cache.npz"
    document = {"key": f"{VERSION} key", "a": [1.0, 2.0], "b": [[1]]}

    def read() -> None:
        arrays = read_cached(path, "key") or {}
        assert not any(array.dtype.hasobject for array in arrays.values())

    return Reader(path, document, to_npz, [read], sealed_bytes)


def new_store(folder: Path) -> Path:
    table = letters(day="abc", night="de").replacing(unlabelled("target", "xy"))
    store = fill(folder / "store", table, "m1", undecodable={image("c")})
    update_local(store, "m1", {"seconds": 1.5, "images": 6, "milliseconds_per_image": 2.5})
    return store


def read_store(store: Path) -> None:
    """Read everything in a store."""
    opened = FeatureStore(store)
    assert len(opened.fingerprint) == len(opened.data_fingerprint) == 64
    assert opened.is_complete() in (True, False)
    json_bytes([repr(opened), opened.skipped])
    for model in opened.models:
        json_bytes([opened.local(model), opened.model(model).identity])
        for domain in (*opened.domains, *opened.unlabelled):
            if opened.has_features(model, domain):
                for output in opened.model(model).widths:
                    rows = opened.gather(model, opened.images(domain), output)
                    assert len(rows) == len(opened.paths(domain)) == len(opened.groups(domain))
        for domain in opened.domains:
            assert len(opened.labels(domain)) == len(opened.images(domain))


def in_copy(store: Path, change: Callable[[Path], object]) -> None:
    """Change a copy of a store."""
    with tempfile.TemporaryDirectory() as folder:
        change(shutil.copytree(store, Path(folder) / "store", copy_function=os.link))


def reseal_manifest(store: Path, change: Callable[[Any], object]) -> None:
    path = store / "manifest.json"
    path.write_bytes(resealed(path.read_bytes(), change))


def resealed(content: bytes, change: Callable[[Any], object] = lambda _: None) -> bytes:
    """Correct the checksum in a document."""
    document = parsed(content)
    if document is None:
        return content
    document.pop("sha256", None)
    change(document)
    return sealed(document)


STORED = {
    "manifest": "manifest.json",
    "samples": "samples/00000.json",
    "images": "images/00000.json",
    "list of shards": "models/m1/shards.*.json",
    "record of a shard": "models/m1/00000-00000.json",
    "model.json": "models/m1/model.json",
    "local.json": "models/m1/local.json",
}


def store_reader(folder: Path, kind: str) -> Reader:
    store = new_store(folder)
    (path,) = store.glob(STORED[kind])

    def seal(content: bytes) -> bytes:
        digest = hashlib.sha256(content).hexdigest()
        if kind in ("manifest", "record of a shard"):
            return resealed(content)
        if kind == "samples":
            reseal_manifest(store, lambda m: m.update(samples=digest))
        elif kind == "images":
            reseal_manifest(store, lambda m: m["segments"].update({"00000": digest}))
        elif kind == "list of shards":
            for old in path.parent.glob("shards.*.json"):
                old.unlink()
            path.with_name(f"shards.{digest[:16]}.json").write_bytes(content)
            reseal_manifest(store, lambda m: m["models"]["m1"].update(shards=digest))
        return content

    repair = partial(in_copy, store, partial(check_store, repair=True))
    others: dict[str, list[Read]] = {
        "manifest": [partial(read_store, store), repair],
        "record of a shard": [partial(read_record, path), repair],
        "model.json": [repair],
    }
    reads = others.get(kind, [partial(read_store, store), partial(check_store, store)])
    return Reader(path, json.loads(path.read_bytes()), to_json, reads, seal)


def shard(folder: Path) -> Reader:
    path = folder / "00000-00000.features.0123456789abcdef.npy"

    def read() -> None:
        content = path.read_bytes()
        file = ShardFile(path.name, hashlib.sha256(content).hexdigest(), checksum(content))
        array = open_shard(folder, path, file, (4, 2), "float64")
        assert array.shape == (4, 2)
        assert array.dtype == np.float64
        array.copy()

    return Reader(path, [FEATURES["m"]], to_npy, [read])


def source() -> Any:
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 30), np.repeat(["a", "b", "c"], 20)
    clear = np.stack([y, 1 - y], 1)
    features = {f"m{k}": clear + k * rng.normal(size=(60, 2)) for k in (1, 2, 3)}
    return as_source(features, y, domains)


def run_record(folder: Path) -> Reader:
    features = source()
    examples: dict[str, tuple[record.Example, ...]] = {"a": (record.Example("a/0/x.png", "0"),)}
    counts = {"a": {"0": 20, "1": 20}}
    parts = {
        "data": record.DataSummary("p", "f", 60, ("0", "1"), counts, 1, examples),
        "extraction": record.ExtractionSummary(("m1",), {"m9": "no"}, (), 60, {"x": "y"}, "s"),
        "ranking": oodzoo.rank(features),
        "selection": select_features(features, ["m1", "m2"]).summary(),
        "evaluation": oodzoo.evaluate(features, top_k=1),
        "predictor": record.PredictorSummary("model", ("m1", "m2"), "digest"),
        "testbed": testbed.run(features, resamples=50),
    }

    def resume() -> None:
        recorder = Recorder(folder, "oodzoo run", {"seed": 0})
        stages = Stages(recorder.earlier, Events(recorder))
        for name in ("ranking", "evaluation"):
            stages.stage(name, None, partial(lambda part, _: part, parts[name]))
        for name in parts.keys() - {"ranking", "evaluation"}:
            recorder.add(name, parts[name])
        recorder.finish()

    def read() -> None:
        found = read_run(folder)
        again = Run.from_dict(json.loads(json_bytes(found.to_dict())))
        assert again == found
        assert all(map(str, (repr(found), found.ranking, found.evaluation)))

    resume()
    path = folder / record.NAME
    return Reader(path, json.loads(path.read_bytes()), to_json, [read, resume], resealed)


def result(folder: Path) -> Reader:
    path = folder / "result.json"
    bed = testbed.run(source(), resamples=20)
    scores = dict(list(bed.scores.items())[:3])
    document = replace(bed, scores=scores, indistinguishable=()).to_dict()

    def read() -> None:
        found = testbed.load(path)
        json_bytes(found.to_dict())
        testbed.compare({found.name: found})

    return Reader(path, json.loads(json_bytes(document)), to_json, [read])


def external_scores(folder: Path) -> Reader:
    path = folder / "scores.csv"
    rows = [["model", "size", "accuracy"], ["m1", "1", "2.5"], ["m2", "", "1e3"], ["m3", "3", "4"]]

    def read() -> None:
        for values in read_values(path).values():
            assert all(value is None or math.isfinite(value) for value in values.values())

    return Reader(path, rows, to_csv, [read])


def predictor_reader(folder: Path, file: str, saved: Path) -> Reader:
    model = shutil.copytree(saved, folder / "model")
    parts = read_folder(model)

    def read() -> None:
        found = read_folder(model)
        rows = np.zeros((2, len(found.columns)))
        with np.errstate(all="ignore"):
            assert found.head.probabilities(rows).shape == (2, len(found.classes))
            assert found.gaussian.distances(rows).shape == (2,)

    def seal(content: bytes) -> bytes:
        if file != "predictor.json":
            document = json.loads((model / "predictor.json").read_bytes())
            document["files"][file] = hashlib.sha256(content).hexdigest()
            (model / "predictor.json").write_bytes(resealed(to_json(document)))
            return content
        return resealed(content)

    if file == "predictor.json":
        replaced = partial(in_copy, model, partial(write_folder, parts))
        document = json.loads((model / file).read_bytes())
        return Reader(model / file, document, to_json, [read, replaced], seal)
    from safetensors.numpy import load_file

    document = {name: array.tolist() for name, array in load_file(model / file).items()}
    return Reader(model / file, document, to_safetensors, [read], seal)


Kept = tuple[Path, Callable[[], Any]]
"""A file with a checksum, and how to read it: nothing if it is damaged, and computed again."""


def kept(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Kept:
    if kind == "cache":
        path = tmp_path / "cache.npz"
        write_cached(path, "key", {"a": np.arange(9.0), "b": np.ones((2, 2))})
        return path, lambda: str(read_cached(path, "key") or "")
    if kind == "checkpoint":
        torch = pytest.importorskip("torch")
        from oodzoo.tuning.runs import CHECKPOINT, read_tensors, write_tensors

        file = tmp_path / CHECKPOINT
        write_tensors(file, {"weights": {"a": torch.arange(9.0), "b": torch.ones(2)}}, {"step": 1})
        return file, lambda: str(read_tensors(file) or "")
    if kind == "predictor.json":
        model = shutil.copytree(request.getfixturevalue("saved"), tmp_path / "model")
        return model / kind, lambda: read_document(model)
    run_record(tmp_path)
    return tmp_path / kind, lambda: read_run(tmp_path)


@pytest.mark.parametrize("kind", ["cache", "checkpoint", "run.json", "predictor.json"])
def test_a_flipped_bit_gives_the_same_or_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path, read = kept(kind, tmp_path, request)
    whole, expected = path.read_bytes(), read()
    assert expected
    for bit in np.random.default_rng(0).integers(8 * len(whole), size=EXAMPLES).tolist():
        flip(path, bit)
        found: list[Any] = []
        problem = refusal(lambda found=found: found.append(read()))  # type: ignore[misc]
        assert len(problem.splitlines()) <= 1
        assert problem or not found[0] or found == [expected]
        path.write_bytes(whole)


BUILD: dict[str, Callable[..., Reader]] = {
    "zoo file": zoo_file,
    "data table": data_table,
    "images in a tar": tar_data,
    "images in a Parquet file": parquet_data,
    **{
        f"{kind} of an import": partial(import_reader, kind=kind)
        for kind in ("table", "npy", "npz", "parquet")
    },
    "cache": cache,
    **{kind: partial(store_reader, kind=kind) for kind in STORED},
    "shard": shard,
    "run.json": run_record,
    "test bed": result,
    "external scores": external_scores,
    **{
        f"predictor: {file}": partial(predictor_reader, file=file)
        for file in ("predictor.json", "head.safetensors", "gaussian.safetensors")
    },
}


@pytest.fixture(scope="module", params=BUILD)
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader of a valid file, which is read."""
    given = {"saved": request.getfixturevalue("saved")} if "predictor" in request.param else {}
    reader = BUILD[request.param](tmp_path_factory.mktemp("fuzz"), **given)
    reader.path.write_bytes(reader.seal(reader.write(reader.document)))
    for read in reader.reads:
        read()
    return reader


# found: recursion, infinity behind a checksum, a name that is not UTF-8, an error of two lines
@example(([("replace", 0, ODD.index(_DEEP))], []))
@example(([("replace", 0, ODD.index(_INFINITE))], []))
@example(([("rename", 0, ODD.index("\ud800"))], []))
@example(([], [("insert", 0.0, b"\0")]))
@given(damages)
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@pytest.mark.filterwarnings("ignore:Reading `.npy`:UserWarning")  # a header as of Python 2
def test_a_damaged_file_is_read_or_refused_in_one_line(reader: Reader, damage: Damage) -> None:
    steps, bytes_steps = damage
    content = edited(reader.write(changed(reader.document, steps)), bytes_steps)
    reader.path.write_bytes(reader.seal(content))
    for read in reader.reads:
        problem = refusal(read)
        assert len(problem.splitlines()) <= 1
        assert len(problem) <= 2_001
