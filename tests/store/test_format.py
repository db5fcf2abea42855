"""The files of a store, as documented: names, index, manifest, shards, facts of a model."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.data import (
    Array,
    Race,
    compute,
    fill,
    flip,
    image,
    letters,
    literal,
    record,
    refusal,
    require_right,
    value,
    values,
)

from oodzoo.core.errors import InputError
from oodzoo.store.contents import read_model, registered_models, require_store
from oodzoo.store.coverage import Coverage, Coverages, Place, gather_rows
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.files import folder_size
from oodzoo.store.index import (
    SHARD_ROWS,
    ImageIndex,
    cut,
    segment_names,
    segment_of,
    segment_table,
)
from oodzoo.store.local import read_local, update_local
from oodzoo.store.manifest import IDENTITY, Manifest, read_manifest
from oodzoo.store.places import (
    file_name,
    is_file_name,
    mistaken_folder,
    model_folder,
    part_of_run,
    repair_advice,
    require_no_links,
)
from oodzoo.store.shards import (
    Shard,
    ShardFile,
    checksum,
    images_digest,
    list_file,
    open_shard,
    read_list,
    read_record,
    record_file,
    record_files,
    write_list,
    write_shard,
)
from oodzoo.store.writer import writing

# --- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc", "a\\b", ".tmp-x", ".lock", "x" * 300, "a\n", "C:"],
)
def test_a_model_name_that_is_no_folder_name_is_rejected(tmp_path: Path, name: str) -> None:
    message = refusal(lambda: model_folder(tmp_path, name))
    assert "cannot be the name of a folder" in message
    assert "\n" not in message


@given(st.text(max_size=20))
def test_the_folder_of_a_model_is_in_the_store(name: str) -> None:
    try:
        folder = model_folder(Path("store"), name)
    except InputError:
        return
    assert Path(os.path.normpath(folder)).parent == Path("store/models")


@pytest.mark.parametrize(
    "name",
    [
        *(f"{p}00000-00000.features.0123456789abcdef.npy" for p in ("../", "/", "x/")),
        "00000-00000.features.0123456789abcdef.npy\n",
        "00000-00000.features.0123456789ABCDEF.npy",
        "00000-00000.features.0123456789abcde.npy",
        "00000-0000٣.features.0123456789abcdef.npy",
        "00000-00000.labels.0123456789abcdef.npy",
        "00000-00000xfeatures.0123456789abcdef.npy",
        "00000-00000.features.0123456789abcdef.json",
        *("model.json", "..", ""),
    ],
)
def test_other_names_are_no_shard_files(name: str) -> None:
    assert not is_file_name(name)
    assert is_file_name(file_name("00003-00012", "features", image("a")))


@given(st.text(max_size=60) | st.from_regex(r"[0-9./-]{11}\.features\.[0-9a-f./]{16}\.npy"))
def test_a_shard_file_is_in_the_folder_of_its_model(name: str) -> None:
    if is_file_name(name):
        assert Path(os.path.normpath(Path("models/m") / name)).parent == Path("models/m")


@pytest.mark.parametrize("link", ["a", "a/b", "a/b/c"])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_anywhere_between_the_store_and_a_file_is_rejected(
    tmp_path: Path, link: str, dangling: bool
) -> None:
    store, outside = tmp_path / "store", tmp_path / "outside"
    (tmp_path / "real").mkdir()
    store.symlink_to("real")  # the store itself may be reached through a link
    (store / link).parent.mkdir(parents=True, exist_ok=True)
    assert require_no_links(store, store / "a/b/c") == store / "a/b/c"
    if not dangling:
        outside.mkdir()
    (store / link).symlink_to(outside)
    with pytest.raises(InputError, match=rf"{store / link}' is a symbolic link; .*remove it"):
        require_no_links(store, store / "a/b/c")


@pytest.mark.parametrize("name", ["store", "my store", "it's; rm -rf ~"])
def test_the_advice_is_a_command_that_a_shell_understands(name: str) -> None:
    command = repair_advice(Path(name)).split("`")[1]
    assert shlex.split(command) == ["oodzoo", "store", "check", name, "--repair"]


def test_the_folder_of_a_run_and_its_parts(tmp_path: Path) -> None:
    run = tmp_path / "job"
    parts = {"store": "manifest.json", "model": "predictor.json"}
    for part, name in parts.items():
        (run / part).mkdir(parents=True)
        assert part_of_run(run, part) == run  # not the folder of a run
        (run / part / name).touch()
    store, model = str(run / "store"), str(run / "model")
    meant = f"it is a predictor; did you mean {store!r}?"
    assert mistaken_folder(run / "model", "store") == meant
    meant = f"it is a feature store; did you mean {model!r}?"
    assert mistaken_folder(run / "store", "model") == meant
    assert mistaken_folder(run, "store") == ""
    (run / "run.json").touch()
    for part, name in parts.items():
        assert part_of_run(run, part) == part_of_run(run / part, part) == run / part
        (run / name).touch()
        assert part_of_run(run, part) == run
        (run / name).unlink()
    (run / "model/predictor.json").unlink()
    assert mistaken_folder(run / "store", "model").startswith(
        "it is a feature store; make a predictor of it with `oodzoo fit "
    )


def test_what_is_no_store(small: Path, tmp_path: Path, photos: Path) -> None:
    require_store(small)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for path, message, other in (
        ("nowhere", "no such feature store: .*oodzoo extract", "no such feature store"),
        ("file", "no such feature store", "no such feature store"),
        ("empty", "is not a feature store: it has no man", "is not a feature store: it has no man"),
        (photos, "is not a feature store: it has no manif", "is neither empty nor a feature store"),
    ):
        with pytest.raises(InputError, match=message):
            FeatureStore(tmp_path / path)
        with pytest.raises(InputError, match=other):
            require_store(tmp_path / path)


def test_the_size_of_a_folder(tmp_path: Path) -> None:
    for name, size in (("x/a", 3), ("x/b/c", 40), ("x/b/d/e", 500), ("large", 10_000)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    (tmp_path / "x/link").symlink_to(tmp_path / "large")
    assert folder_size(tmp_path / "x") == 543 + len(str(tmp_path / "large"))
    assert folder_size(tmp_path / "nowhere") == 0


# --- the index of images ---------------------------------------------------------------------


@given(st.lists(st.integers(0, 3 * SHARD_ROWS), max_size=4))
def test_shards_are_full_but_for_the_last_of_a_domain(sizes: list[int]) -> None:
    images = [(f"d{at}", f"{at}-{row}") for at, n in enumerate(sizes) for row in range(n)]
    shards = cut(images)
    assert [name for shard in shards for name in shard] == [name for _, name in images]
    expected = []
    for size in sizes:
        expected += [SHARD_ROWS] * (size // SHARD_ROWS)
        expected += [size % SHARD_ROWS] if size % SHARD_ROWS else []
    assert list(map(len, shards)) == expected


def test_the_format_of_the_index(tmp_path: Path) -> None:
    index = ImageIndex.read(tmp_path)
    assert index.add(tmp_path, [["a", "b"], ["c"]])
    assert index.add(tmp_path, [["d"]], "00003")
    for name in (".tmp-x", "notes.json", "00001.json.bak", "00002.txt", "0x.json"):
        (tmp_path / "images" / name).touch()
    assert segment_names(tmp_path) == ["00000", "00001"]
    assert [json.loads((tmp_path / f"images/0000{at}.json").read_text()) for at in (0, 1)] == [
        {"schema": 2, "table": None, "shards": [["a", "b"], ["c"]]},
        {"schema": 2, "table": "00003", "shards": [["d"]]},
    ]
    assert index.shards == {"00000-00000": ["a", "b"], "00000-00001": ["c"], "00001-00000": ["d"]}
    assert index.images() == {"a", "b", "c", "d"}
    assert segment_of("00001-00000") == "00001"
    assert [segment_table(tmp_path, name) for name in index.segments] == [None, "00003"]
    again = ImageIndex.read(tmp_path)
    assert (again.segments, again.shards) == (index.segments, index.shards)
    one = ImageIndex.read(tmp_path, {"00001": index.segments["00001"]})
    assert one.shards == {"00001-00000": ["d"]}


def test_what_another_writer_has_added_is_read_instead(tmp_path: Path) -> None:
    mine, other = ImageIndex.read(tmp_path), ImageIndex.read(tmp_path)
    assert other.add(tmp_path, [["a"], ["b"]])
    assert not mine.add(tmp_path, [["b"], ["c"]])
    assert mine.shards == other.shards
    assert mine.add(tmp_path, [["c"]])
    assert mine.shards == ImageIndex.read(tmp_path).shards
    rest = mine.without(["00000"])
    assert (list(rest.segments), rest.shards) == (["00001"], {"00001-00000": ["c"]})
    # it is not read again as a new one, and its name is not taken
    assert rest.add(tmp_path, [["a"]])
    assert rest.shards == {"00001-00000": ["c"], "00002-00000": ["a"]}
    assert rest.without(["00001"]).add(tmp_path, [["c"]])


_RACE = """
import sys
from pathlib import Path
from tests.store.data import compute, letters, record
from oodzoo.store.writer import writing

store, model = Path(sys.argv[1]), sys.argv[2]
with writing(store) as writer:
    writer.set_table(letters(**dict(pair.split("=") for pair in sys.argv[3:])))
    print("ready", flush=True)
    sys.stdin.readline()
    writer.add_images()
    writer.add_model(model, record())
    compute(writer, model)
"""


def test_processes_that_add_the_same_images(tmp_path: Path, race: Race) -> None:
    """Each wants other images, which overlap: no image is added twice, and all are readable."""
    given = ["a=abcdefgh", "a=abcd b=ijkl", "b=ijklmnop c=qrst", "c=qrstuvwx a=efgh"]
    race(
        _RACE,
        *([tmp_path / "store", f"m{at}", *domains.split()] for at, domains in enumerate(given)),
    )
    index = ImageIndex.read(tmp_path / "store")
    listed = [name for images in index.shards.values() for name in images]
    assert len(listed) == len(set(listed))
    assert set(listed) == {image(letter) for letter in "abcdefghijklmnopqrstuvwx"}
    # no shard is lost: every model becomes complete
    with writing(tmp_path / "store") as writer:
        writer.set_table(letters(a="abcdefgh", b="ijklmnop", c="qrstuvwx"))
        writer.add_images()
        writer.add_model("all", record())
        compute(writer, "m0", "m1", "m2", "m3", "all")
        writer.finish()
    assert require_right(tmp_path / "store").models == ("all", "m0", "m1", "m2", "m3")


# --- the manifest ----------------------------------------------------------------------------


def test_the_format_of_the_manifest(tmp_path: Path) -> None:
    example = Manifest(
        table="00007",
        samples=image("table"),
        segments={"00000": image("s")},
        models={"m": record().stored("m", image("list"), {image("a"): "truncated"})},
    )
    for manifest in (Manifest(), example):
        manifest.write(tmp_path)
        assert read_manifest(tmp_path) == manifest
    Manifest().create(tmp_path)  # nothing, as there is one
    document = json.loads((tmp_path / "manifest.json").read_text())
    stated = document.pop("sha256")
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert stated == hashlib.sha256(text.encode()).hexdigest()
    (model,) = document.pop("models").values()
    assert document == {
        "schema": 2,
        "table": "00007",
        "samples": image("table"),
        "segments": {"00000": image("s")},
    }
    assert (model["shards"], model["unreadable"]) == (image("list"), {image("a"): "truncated"})
    assert model["spec"] is None
    assert "name" not in model
    more = record().stored("n", image("list"), {image("b"): "empty", image("a"): "truncated"})
    both = Manifest(models={**example.models, "n": more, "none": record().stored("none")})
    assert both.skipped == {image("a"): "truncated", image("b"): "empty"}
    assert Manifest().skipped == {}


def test_the_identity_of_a_model_is_what_determines_its_features() -> None:
    known = record()
    other: dict[str, Any] = {
        "fingerprint": "g",
        "feature_dim": 4,
        "n_logits": None,
        "precision": "float16",
        "dtype": "float16",
        "preprocessing": {"mean": [0.0]},
    }
    assert set(other) == set(IDENTITY)
    found = {record(**{key: value}).identity for key, value in other.items()}
    assert len(found | {known.identity}) == 7
    rest = record(source="x", parameters=9, pretraining="y", licence="z", versions={"a": "1"})
    assert rest.identity == known.identity
    assert known.widths == {"features": 3, "logits": 2}
    assert record(n_logits=None).widths == {"features": 3}
    long = record(source="onnx/" + 99 * "x", feature_dim=1280)
    assert repr(long.stored("m")).startswith("StoredModel('m': 1,280 features, source 'onnx/xxx")
    assert len(repr(long.stored("m" * 99))) < 200


def test_a_model_is_registered_before_it_is_finished(small: Path) -> None:
    for file in (small / "models/m2").glob("0*"):
        file.unlink()
    assert registered_models(small) == ["m1", "m2"]
    assert read_model(small, "m2").feature_dim == read_manifest(small).models["m2"].feature_dim


# --- shards ----------------------------------------------------------------------------------

SHARD = "00000-00003"
IMAGES = [image(name) for name in "abcdef"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store/models/m"


def outputs(names: str = "abcd") -> dict[str, Array]:
    images = [image(name) for name in names]
    return {output: values("m", images, output) for output in ("features", "logits")}


def written(
    folder: Path, names: str = "abcd", model: str = "id", images: list[str] = IMAGES
) -> Shard:
    write_shard(folder, SHARD, images, model, outputs(names), {4: "truncated", 5: None})
    found = read_record(record_file(folder, SHARD))
    assert found is not None
    return found


def opened(folder: Path, file: ShardFile, width: int = 3) -> Array:
    return open_shard(folder.parents[1], folder / file.file, file, (4, width), "float32")


def test_the_format_of_a_shard(folder: Path) -> None:
    first = written(folder)
    document = json.loads((folder / f"{SHARD}.json").read_text())
    assert set(document) == {"shard", "model", "images", "absent", "features", "logits", "sha256"}
    stated = document.pop("sha256")
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert stated == hashlib.sha256(text.encode()).hexdigest()
    assert (document["shard"], document["model"]) == (SHARD, "id")
    assert document["images"] == hashlib.sha256("\n".join(IMAGES).encode()).hexdigest()[:16]
    assert document["absent"] == {"4": "truncated", "5": None}
    for output, array in outputs().items():
        stated = document[output]
        content = (folder / stated["file"]).read_bytes()
        assert stated["sha256"] == hashlib.sha256(content).hexdigest()
        assert stated["xxh3"] == checksum(content)
        assert stated["file"] == f"{SHARD}.{output}.{stated['sha256'][:16]}.npy"
        np.testing.assert_array_equal(np.load(folder / stated["file"]), array)
    rows = opened(folder, first.features)
    assert isinstance(rows, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        rows[0] = 0
    # of two processes, the first counts: another machine may compute other last digits
    files = sorted(folder.iterdir())
    inode = record_file(folder, SHARD).stat().st_ino
    for again in ("abcd", "wxyz"):
        assert written(folder, again) == first
        assert sorted(folder.iterdir()) == files
        assert record_file(folder, SHARD).stat().st_ino == inode
    for name in ("model.json", "shards.0123456789abcdef.json", "0-0.json", ".tmp-x"):
        (folder / name).touch()
    assert record_files(folder) == [record_file(folder, SHARD)]


def test_a_shard_without_logits(folder: Path) -> None:
    assert record_files(folder) == []
    write_shard(folder, SHARD, IMAGES[:4], "id", {"features": outputs()["features"]}, {})
    found = read_record(record_file(folder, SHARD))
    assert found is not None
    assert (set(found.files), found.absent) == ({"features"}, {})
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    "old",
    [
        *(b"", b"{", b'{"shard": "00000-00003"}'),  # damaged
        "other",  # another model had this name
        *(IMAGES[::-1], IMAGES[:-1], [*IMAGES, image("g")], []),  # a lost segment had this number
        None,  # a file is missing
    ],
)
def test_a_record_that_does_not_count_is_replaced(folder: Path, old: Any) -> None:
    first = written(
        folder,
        model=old if isinstance(old, str) else "id",
        images=old if isinstance(old, list) else IMAGES,
    )
    if isinstance(old, bytes):
        record_file(folder, SHARD).write_bytes(old)
        assert read_record(record_file(folder, SHARD)) is None
    if old is None:
        (folder / first.files["logits"].file).unlink()
    other = written(folder, "wxyz")
    assert (other.model, other.images) == ("id", images_digest(IMAGES))
    np.testing.assert_array_equal(opened(folder, other.features), outputs("wxyz")["features"])
    np.testing.assert_array_equal(
        opened(folder, other.files["logits"], 2), outputs("wxyz")["logits"]
    )


def test_links_are_not_followed_for_writing(folder: Path, tmp_path: Path) -> None:
    found = written(folder)
    outside = tmp_path / "outside"
    for name in (found.features.file, f"{SHARD}.json"):
        outside.write_text("mine")
        (folder / name).unlink()
        (folder / name).symlink_to(outside)
        with pytest.raises(InputError, match="is a symbolic link"):
            written(folder)
        assert outside.read_text() == "mine"
        (folder / name).unlink()


def test_a_list_is_read_as_it_was_written(folder: Path) -> None:
    shards = [written(folder)]
    digest = write_list(folder, shards)
    path = list_file(folder, digest)
    assert path.name == f"shards.{digest[:16]}.json"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert json.loads(path.read_text())["schema"] == 2
    inode = path.stat().st_ino
    assert write_list(folder, shards) == digest
    assert path.stat().st_ino == inode
    flip(path, 99)
    assert write_list(folder, shards) == digest
    assert read_list(folder.parents[1], folder, digest) == shards


def test_a_file_is_verified_once_and_again_when_it_changes(folder: Path) -> None:
    """Only what the content cannot show is skipped: here, a flip that keeps the time of change."""
    found = written(folder)
    path = folder / found.features.file
    opened(folder, found.features)
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x99")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert opened(folder, found.features)[-1, -1] != outputs()["features"][-1, -1]
    os.utime(path)
    with pytest.raises(InputError, match="is damaged"):
        opened(folder, found.features)


# --- where rows are --------------------------------------------------------------------------


def shard(name: str, absent: dict[int, str | None] | None = None) -> Shard:
    return Shard(name, ShardFile("f.npy", "0", "0"), absent=absent or {})


def test_the_places_of_images() -> None:
    """Positions in the list of shards of the model; rows are counted without absent images."""
    index = {"0-0": ["a", "b", "c", "d"], "0-1": ["e"], "1-0": ["f"]}
    found = Coverage(index, [shard("0-0", {0: "truncated", 2: None}), shard("1-0")])
    assert found.rows == {"b": Place(0, 0), "d": Place(0, 1), "f": Place(1, 0)}
    assert found.unreadable == {"a": "truncated"}
    assert found.missing(["f", "c", "a", "x", "c"]) == ["c", "x"]
    np.testing.assert_array_equal(found.places(["f", "b", "f"]), [[1, 0], [0, 0], [1, 0]])
    assert found.places([]).shape == (0, 2)
    with pytest.raises(KeyError, match="x"):
        found.places(["b", "x"])


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 9), st.sampled_from(["row", "absent", "bad"])), max_size=5
        ),
        max_size=5,
    )
)
def test_any_index(layout: list[list[tuple[int, str]]]) -> None:
    """Write the image itself as its row, and follow the coverage to it."""
    index = {f"0-{n}": [str(i) for i, _ in images] for n, images in enumerate(layout)}
    reasons = {"absent": None, "bad": "truncated"}
    shards = [
        shard(f"0-{n}", {at: reasons[how] for at, (_, how) in enumerate(images) if how != "row"})
        for n, images in enumerate(layout)
    ]
    files = [np.array([i for i, how in images if how == "row"]) for images in layout]
    found = Coverage(index, shards)
    flat = [entry for images in layout for entry in images]
    rows = {str(i) for i, how in flat if how == "row"}
    assert set(found.rows) == rows
    for name, place in found.rows.items():
        assert files[place.shard][place.row] == int(name)
        later = [n for n, images in enumerate(layout) if (int(name), "row") in images]
        assert place.shard == max(later)
    assert set(found.unreadable) == {str(i) for i, how in flat if how == "bad"} - rows
    assert found.missing(map(str, range(10))) == [
        str(i) for i in range(10) if str(i) not in rows and (i, "bad") not in flat
    ]


def test_models_with_the_same_shards_share_a_coverage() -> None:
    index = {"0-0": ["a", "b"], "0-1": ["c"]}
    coverages = Coverages()
    first = coverages.of(index, [shard("0-0"), shard("0-1")])
    assert coverages.of(index, [shard("0-0"), shard("0-1")]) is first
    absent: list[dict[int, str | None]] = [{0: None}, {1: None}, {0: "x"}]
    for other in (
        [shard("0-0")],
        [shard("0-1"), shard("0-0")],
        *([shard("0-0", which), shard("0-1")] for which in absent),
    ):
        found, alone = coverages.of(index, other), Coverage(index, other)
        assert found is not first
        assert (found.rows, found.unreadable) == (alone.rows, alone.unreadable)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shards: two domains, and a second extraction with one more image in each."""
    store = tmp_path_factory.mktemp("rows") / "store"
    fill(store, letters(day="bcd", night="fgh"), "m", undecodable=[image("c")])
    return fill(store, letters(day="abcd", night="efgh"), "m", undecodable=[image("c")])


@given(st.lists(st.sampled_from("abdefgh"), max_size=30), st.sampled_from(["features", "logits"]))
def test_any_rows_in_any_order(filled: Path, names: str, output: str) -> None:
    images = [image(name) for name in names]
    found = FeatureStore(filled).gather("m", images, output)
    assert found.dtype == np.float32
    by_hand = literal(filled, "m", output)
    width = {"features": 3, "logits": 2}[output]
    expected = np.array([by_hand[identity] for identity in images], np.float32)
    np.testing.assert_array_equal(found, expected.reshape(-1, width))
    np.testing.assert_array_equal(found, values("m", images, output).reshape(-1, width))


def test_places_are_followed(filled: Path) -> None:
    folder = filled / "models/m"
    shards = [read_record(path) for path in sorted(folder.glob("0*-0*.json"))]
    index = {"00000-00000": [""] * 3, "00000-00001": [""] * 3, "00001-00000": [""]}
    places = np.array([(1, 2), (0, 0), (0, 1), (1, 0), (2, 0), (2, 0)])  # shard and row
    known = [shard for shard in shards if shard is not None]
    found = gather_rows(filled, folder, record(), known, index, places, "features")
    np.testing.assert_array_equal(found, [value("m", image(name)) for name in "hbdfaa"])
    store = FeatureStore(filled)
    store.features("m", "day")[:] = 7  # a copy: a caller may change what it got
    np.testing.assert_array_equal(store.features("m", "day"), values("m", map(image, "abd")))


# --- facts of a model ------------------------------------------------------------------------


def test_facts_are_added_to_those_that_are_there(small: Path, tmp_path: Path) -> None:
    assert read_local(small, "m1") == {}
    before = FeatureStore(small).fingerprint
    update_local(small, "m1", {"seconds": 1.5, "images": 9, "of a later version": 1})
    update_local(small, "m1", {"images": 10, "milliseconds_per_image": 150.0})
    update_local(small, "m2", {"images": 7})
    expected = {"seconds": 1.5, "images": 10, "milliseconds_per_image": 150.0}
    found = FeatureStore(small)
    assert read_local(small, "m1") == found.local("m1") == expected
    assert found.milliseconds_per_image("m1") == 150.0
    assert found.milliseconds_per_image("m2") is None
    assert found.fingerprint == before
    outside = (small / "models/m1/local.json").rename(tmp_path / "outside.json")
    content = outside.read_text()
    (small / "models/m1/local.json").symlink_to(outside)
    assert read_local(small, "m1") == {}
    with pytest.raises(InputError, match="is a symbolic link"):
        update_local(small, "m1", {"seconds": 4})
    assert outside.read_text() == content
