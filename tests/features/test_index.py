"""Which image is which row: the order only ever grows at its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.data.listing import Sample
from oodzoo.errors import InputError
from oodzoo.features.index import SHARD_ROWS, DomainIndex, ImageIndex

EMPTY = ImageIndex([])


def samples(*paths: str, domain: str = "d", label: str = "x") -> list[Sample]:
    return [Sample(path, domain, label) for path in paths]


def grown(
    index: ImageIndex, given: Sequence[Sample], digests: dict[str, str] | None = None, rows: int = 2
) -> ImageIndex:
    """Digests are those of the paths unless told otherwise."""
    known = digests or {}
    return index.grown(given, [known.get(s.path, s.path) for s in given], set(), rows)


# --- folders ----------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
ODD = ["a/b", "..", ".", "a.", ".a", "a ", "ä", "日本", "a%2Fb", "model.json", "C:", "nul\0", "\n"]


@given(NAMES | st.sampled_from(ODD))
def test_any_domain_has_a_folder_that_any_file_system_takes(name: str) -> None:
    folder = DomainIndex.empty(name).folder
    assert folder.isascii()
    assert folder.isprintable()
    assert not set(folder) & set('/\\:*?"<>|')
    assert 0 < len(folder) < 255 - len("shard-00000.features.npy")
    assert folder[0] not in ". "
    assert folder[-1] not in ". "
    assert folder != "model.json"  # which lies beside it


@given(st.lists(NAMES | st.sampled_from(ODD) | NAMES.map(lambda n: n * 50), unique=True))
def test_domains_do_not_share_a_folder(names: list[str]) -> None:
    assert len({DomainIndex.empty(name).folder for name in names}) == len(names)


def test_plain_names_stay_readable() -> None:
    for name in ("photo", "art painting", "Camera (2)", "v1.5", "a_b-c"):
        assert DomainIndex.empty(name).folder == name


def test_a_long_name_fits(tmp_path: Path) -> None:
    (tmp_path / DomainIndex.empty("地" * 200).folder).mkdir()


# --- growing ----------------------------------------------------------------------------------


def test_rows_keep_their_places_when_images_come() -> None:
    first = grown(EMPTY, samples("b", "d", "f"))
    (domain,) = first.domains
    assert (domain.paths, domain.shards) == (["b", "d", "f"], [2, 1])
    (domain,) = grown(first, samples("a", "b", "c", "d", "e", "f")).domains
    assert domain.paths == ["b", "d", "f", "a", "c", "e"]
    assert domain.shards == [2, 1, 2, 1]
    assert [list(domain.shard_range(s)) for s in range(4)] == [[0, 1], [2], [3, 4], [5]]


def test_a_domain_comes() -> None:
    first = grown(EMPTY, samples("b/1", domain="b"))
    both = grown(first, [*samples("a/1", domain="a"), *samples("b/1", domain="b")])
    assert both.counts() == {"a": 1, "b": 1}
    assert both.domain("b") == first.domain("b")
    with pytest.raises(InputError, match="unknown domain 'c'; expected one of 'a', 'b'"):
        both.domain("c")


def test_labels_and_groups_are_those_of_today() -> None:
    first = grown(EMPTY, samples("1", "2"))
    second = grown(first, [Sample("1", "d", "new", "g"), Sample("2", "d", "x")])
    assert second.domain("d").labels == ["new", "x"]
    assert second.domain("d").groups == ["g", None]
    assert second.domain("d").paths == first.domain("d").paths
    assert first.domain("d").labels == ["x", "x"]


def test_an_image_that_went_or_changed_is_named() -> None:
    first = grown(EMPTY, samples("1", "2", "3"))
    with pytest.raises(InputError, match=r"1 of the 3 images .*'2' \(removed\)"):
        grown(first, samples("1", "3"))
    with pytest.raises(InputError, match=r"1 of the 3 images .*'2' \(changed\)"):
        grown(first, samples("1", "2", "3"), {"2": "other content"})
    with pytest.raises(InputError, match="another data set"):
        grown(first, samples("7", "8"))
    # its folder would be another one
    with pytest.raises(InputError, match="removed or changed"):
        grown(first, [*samples("1", "3"), *samples("2", domain="e")])


def test_a_skipped_image_may_be_mended_once() -> None:
    first = grown(EMPTY, samples("1", "2"), {"2": "bad"})
    skipped = {("d", "2", "bad")}
    mended = first.grown(samples("1", "2"), ["1", "good"], skipped, 2)
    assert mended.domain("d").paths == ["1", "2", "2"]
    assert mended.domain("d").shards == [2, 1]
    # it has a row now, and so it must stay as it is
    with pytest.raises(InputError, match="changed"):
        mended.grown(samples("1", "2"), ["1", "other"], skipped, 2)
    with pytest.raises(InputError, match="removed"):
        mended.grown(samples("1"), ["1"], skipped, 2)
    # a skipped image may also go
    assert first.grown(samples("1"), ["1"], skipped, 2) == first


@given(
    st.lists(st.integers(0, 30), unique=True, min_size=1),
    st.lists(st.integers(0, 30), unique=True),
    st.integers(1, 5),
)
def test_growing_is_adding_at_the_end(old: list[int], new: list[int], rows: int) -> None:
    first = grown(EMPTY, samples(*map(str, old)), rows=rows)
    second = grown(first, samples(*map(str, {*old, *new})), rows=rows)
    before, after = first.domain("d"), second.domain("d")
    assert after.paths[: len(before.paths)] == before.paths
    assert after.shards[: len(before.shards)] == before.shards
    assert set(after.paths) == set(map(str, {*old, *new}))
    assert sum(after.shards) == len(after.paths)
    assert max(after.shards) <= rows
    # readers see the old state until the new one is finished
    assert second.truncated(first.counts()) == first
    # growing again changes nothing, and neither does the disk
    assert grown(second, samples(*map(str, {*old, *new})), rows=rows) == second
    assert msgspec.json.decode(msgspec.json.encode(second), type=ImageIndex) == second


def test_shards_are_of_a_handy_size() -> None:
    index = EMPTY.grown(samples(*map(str, range(600))), [None] * 600, set())
    assert index.domain("d").shards == [SHARD_ROWS, SHARD_ROWS, 600 - 2 * SHARD_ROWS]
