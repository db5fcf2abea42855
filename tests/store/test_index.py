"""The index of images: segments that are written once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.data import (
    Race,
    compute,
    fill,
    flip,
    image,
    letters,
    nested,
    record,
    require_right,
)

from oodzoo.errors import InputError
from oodzoo.store.index import (
    SHARD_ROWS,
    ImageIndex,
    cut,
    has_lost_manifest,
    segment_names,
    segment_of,
    segment_table,
)
from oodzoo.store.writer import writing

# --- cutting ---------------------------------------------------------------------------------


def test_shards_have_images_of_one_domain() -> None:
    images = [("a", "1"), ("a", "2"), ("b", "3"), ("", "4"), ("", "5")]
    assert cut(images) == [["1", "2"], ["3"], ["4", "5"]]
    assert cut([]) == []


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


# --- segments --------------------------------------------------------------------------------


def test_the_format(tmp_path: Path) -> None:
    index = ImageIndex.read(tmp_path)
    assert index.add(tmp_path, [["a", "b"], ["c"]])
    assert index.add(tmp_path, [["d"]], "00003")
    documents = [json.loads(path.read_text()) for path in sorted((tmp_path / "images").iterdir())]
    assert segment_names(tmp_path) == ["00000", "00001"]
    assert documents == [
        {"schema": 2, "table": None, "shards": [["a", "b"], ["c"]]},
        {"schema": 2, "table": "00003", "shards": [["d"]]},
    ]
    assert index.shards == {"00000-00000": ["a", "b"], "00000-00001": ["c"], "00001-00000": ["d"]}
    assert index.images() == {"a", "b", "c", "d"}
    assert segment_of("00001-00000") == "00001"
    assert [segment_table(tmp_path, name) for name in index.segments] == [None, "00003"]
    again = ImageIndex.read(tmp_path)
    assert (again.segments, again.shards) == (index.segments, index.shards)


def test_segments_with_their_checksums(tmp_path: Path) -> None:
    index = ImageIndex.read(tmp_path)
    index.add(tmp_path, [["a"]])
    index.add(tmp_path, [["b"]])
    first = {"00000": index.segments["00000"]}
    assert ImageIndex.read(tmp_path, first).shards == {"00000-00000": ["a"]}
    advice = rf"`oodzoo store check {tmp_path} --repair`"
    with pytest.raises(InputError, match=rf"is damaged: its checksum differs; .*{advice}"):
        ImageIndex.read(tmp_path, {"00001": index.segments["00000"]})
    with pytest.raises(InputError, match=r"cannot read .*00007\.json.*No such file.*--repair"):
        ImageIndex.read(tmp_path, {"00007": None})


def test_a_flipped_bit_of_any_byte_is_noticed(tmp_path: Path) -> None:
    index = ImageIndex.read(tmp_path)
    index.add(tmp_path, [[image("a"), image("b")], [image("c")]])
    path = tmp_path / "images/00000.json"
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 3):  # one or more of each byte
        path.write_bytes(content)
        flip(path, bit)
        with pytest.raises(InputError, match=rf"`oodzoo store check {tmp_path} --rep") as caught:
            ImageIndex.read(tmp_path, index.segments)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"schema": 2}',
        b'{"schema": 2, "shards": [1]}',
        b'{"schema": 2, "shards": [[1]]}',
        b'{"schema": 2, "shards": NaN}',
        pytest.param(nested().encode(), id="nested"),
    ],
)
def test_a_damaged_segment(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/00000.json").write_bytes(content)
    with pytest.raises(InputError, match="is damaged") as caught:
        ImageIndex.read(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_segment_has_the_table_before_its_images(tmp_path: Path) -> None:
    """The newest one when the images were added; the next one has them."""
    fill(tmp_path, letters(day="ab"), "m")
    fill(tmp_path, letters(day="abc"), "m")
    fill(tmp_path, letters(day="abcd"), "m")
    tables = [segment_table(tmp_path, name) for name in segment_names(tmp_path)]
    assert tables == [None, "00000", "00001"]


def test_other_files_are_no_segments(tmp_path: Path) -> None:
    ImageIndex.read(tmp_path).add(tmp_path, [["a"]])
    for name in (".tmp-x", "notes.json", "00001.json.bak", "00002.txt", "0x.json"):
        (tmp_path / "images" / name).touch()
    assert segment_names(tmp_path) == ["00000"]


def test_a_lost_manifest(tmp_path: Path) -> None:
    assert not has_lost_manifest(tmp_path / "nowhere")
    assert not has_lost_manifest(tmp_path)
    with writing(tmp_path) as writer:
        assert not has_lost_manifest(tmp_path)
        writer.set_table(letters(day="ab"))
        writer.add_images()
    assert not has_lost_manifest(tmp_path)
    (tmp_path / "manifest.json").unlink()
    assert has_lost_manifest(tmp_path)


def test_what_another_writer_has_added_is_read_instead(tmp_path: Path) -> None:
    mine, other = ImageIndex.read(tmp_path), ImageIndex.read(tmp_path)
    assert other.add(tmp_path, [["a"], ["b"]])
    assert not mine.add(tmp_path, [["b"], ["c"]])
    assert mine.shards == other.shards
    assert mine.add(tmp_path, [["c"]])
    assert mine.shards == ImageIndex.read(tmp_path).shards
    assert segment_names(tmp_path) == ["00000", "00001"]


def test_a_segment_is_left_out(tmp_path: Path) -> None:
    index = ImageIndex.read(tmp_path)
    index.add(tmp_path, [["a"]])
    index.add(tmp_path, [["b"]])
    rest = index.without(["00000"])
    assert (list(rest.segments), rest.shards) == (["00001"], {"00001-00000": ["b"]})
    # it is not read again as a new one, and its name is not taken
    assert rest.add(tmp_path, [["a"]])
    assert rest.shards == {"00001-00000": ["b"], "00002-00000": ["a"]}
    assert rest.without(["00001"]).add(tmp_path, [["c"]])


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    ImageIndex.read(outside).add(outside, [["a"]])
    before = sorted(outside.rglob("*"))
    for link in ("images", "images/00000.json"):
        store = tmp_path / link.replace("/", "-")
        (store / link).parent.mkdir(parents=True)
        (store / link).symlink_to(outside / link)
        with pytest.raises(InputError, match="is a symbolic link"):
            ImageIndex.read(store)
        with pytest.raises(InputError, match="is a symbolic link"):
            ImageIndex({}, {}).add(store, [["b"]])
    assert sorted(outside.rglob("*")) == before


# --- many processes --------------------------------------------------------------------------

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
