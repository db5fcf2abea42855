"""The table of samples: content, changes, and its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.store.data import image, letters, refusal, unlabelled

from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.listing import Sample
from oodzoo.data.unlabelled import UnlabelledImages
from oodzoo.store.table import (
    SampleTable,
    TableDomain,
    add_table,
    read_table,
    table_file,
    table_numbers,
)
from oodzoo.tasks import CLASSIFICATION, Task

NAMES = ["a/b", "..", ".tmp-x", "höhle", "ho\u0308hle", "Day", "day", "x" * 300, "models", "50%"]


def samples(*rows: tuple[str, str, str]) -> list[tuple[Sample, str]]:
    return [(Sample(path, domain, label), image(path)) for path, domain, label in rows]


def test_samples_are_ordered_by_domain_and_path() -> None:
    rows = samples(("2", "b", "x"), ("9", "a", "y"), ("1", "b", "y"), ("10", "a", "x"))
    table = SampleTable.of_samples(rows)
    assert [(d.name, d.paths, d.labels) for d in table.domains] == [
        ("a", ["10", "9"], ["x", "y"]),
        ("b", ["1", "2"], ["y", "x"]),
    ]
    assert SampleTable.of_samples(reversed(rows)) == table
    assert list(table.images()) == [image(path) for path in ("10", "9", "1", "2")]


def test_the_table_of_a_data_set(images: Path, photos: Path) -> None:
    dataset = ImageDomains(images)
    target = UnlabelledImages(photos / "day/cat", "new")
    table = SampleTable.of(dataset, [target])
    assert [d.name for d in table.labelled] == list(dataset.domains)
    assert [d.name for d in table.unlabelled] == ["new"]
    rows = {
        (path, d.name, label, group, identity)
        for d in table.labelled
        for path, label, group, identity in zip(
            d.paths, d.labels or [], d.groups, d.images, strict=True
        )
    }
    expected = zip(dataset.samples, dataset.digests, strict=True)
    assert rows == {(*sample, digest) for sample, digest in expected}
    new = table.domain("new")
    assert (new.labels, new.groups) == (None, [None, None])
    given = dict(zip(target.paths, target.digests, strict=True))
    assert dict(zip(new.paths, new.images, strict=True)) == given
    # domains without labels do not belong to the fingerprint
    assert table.fingerprint == SampleTable.of(dataset).fingerprint == dataset.fingerprint


def test_every_column_is_in_the_fingerprint() -> None:
    table = letters(day="ab", night="c")
    day = table.domain("day")
    changes: list[dict[str, Any]] = [
        {"name": "DAY"},
        {"paths": ["day/a.png", "x"]},
        {"labels": ["even", "even"]},
        {"groups": ["g", None]},
        {"images": day.images[::-1]},
    ]
    tables = [SampleTable([replace(day, **c), table.domain("night")]) for c in changes]
    tasks = [NUMBERS, Task("regression", ("age", "size"))]
    tables += [replace(table, task=task) for task in tasks]
    assert len({t.fingerprint for t in [table, *tables]}) == 8


@pytest.mark.parametrize(
    "columns",
    [
        (["x"], [None, None], ["i", "j"]),
        (["x", "x"], [None], ["i", "j"]),
        (None, [None, None], ["i"]),
        (None, [None, None], ["i", "j"], {"camera": []}),
    ],
)
def test_columns_of_other_lengths_are_rejected(columns: tuple[list[str], ...]) -> None:
    with pytest.raises(ValueError, match="the columns of the domain 'd' differ in length"):
        TableDomain("d", ["1", "2"], *columns)  # type: ignore[arg-type]


# --- changes ---------------------------------------------------------------------------------


def test_domains_without_labels() -> None:
    table = letters(day="ab", night="c").replacing(unlabelled("z", "x"))
    table = table.replacing(unlabelled("b", "yz")).replacing(unlabelled("z", "w"))
    assert [d.name for d in table.domains] == ["day", "night", "b", "z"]
    assert table.domain("z").images == [image("w")]
    assert list(table.images(labelled=True)) == [image(name) for name in "abc"]
    assert list(table.images()) == [image(name) for name in "abcyzw"]
    with pytest.raises(InputError, match=r"named 'day', as a domain with labels; .*NAME=FOLDER"):
        table.replacing(unlabelled("day", "x"))
    with pytest.raises(InputError, match="unknown domain 'x'; expected one of 'day', 'night', 'b'"):
        table.domain("x")
    # old ones are kept, unless they are given, or have labels now
    new = letters(night="c").replacing(unlabelled("z", "v")).keeping_unlabelled(table)
    assert [(d.name, d.images) for d in new.domains] == [
        ("night", [image("c")]),
        ("b", [image("y"), image("z")]),
        ("z", [image("v")]),
    ]
    labelled = letters(b="xy").keeping_unlabelled(table)
    assert [(d.name, d.labels is None) for d in labelled.domains] == [("b", False), ("z", True)]


def test_the_samples_and_places_of_some_images() -> None:
    table = letters(day="abc", night="ad").replacing(unlabelled("u", "ef"))
    part = table.only({image("a"), image("c"), image("f")})
    assert [(d.name, d.paths) for d in part.domains] == [
        ("day", ["day/a.png", "day/c.png"]),
        ("night", ["night/a.png"]),
        ("u", ["u/f.png"]),
    ]
    assert part.domain("day").labels == ["odd", "odd"]
    assert part.places() == {  # the first of a repeated one
        image("a"): ("day", "day/a.png"),
        image("c"): ("day", "day/c.png"),
        image("f"): ("u", "u/f.png"),
    }


def test_proposed_domains_and_further_columns(tmp_path: Path) -> None:
    metadata = {"camera": {"1": "canon", "2": None, "9": "sony"}}
    rows = samples(("2", "b", "x"), ("9", "a", "y"), ("1", "b", "y"))
    table = SampleTable.of_samples(rows, metadata)
    assert [d.metadata["camera"] for d in table.domains] == [["sony"], ["canon", None]]
    proposed = table.regrouped({"1": "p", "2": "q", "9": "p"}, "camera")
    assert proposed.domains[0].metadata == {"camera": ["canon", "sony"], "domain": ["b", "a"]}
    assert add_table(tmp_path, None, proposed) == "00000"
    assert read_table(tmp_path, "00000") == proposed
    only = proposed.only({image("9")})
    assert (only.proposed, only.domains[0].metadata["camera"]) == ("camera", ["sony"])
    # domains of a data set that were proposed are not given ones
    proposed = replace(SampleTable.of_samples(samples(("1", "canon", "x"))), proposed="camera")
    assert proposed.given_domains() == {}
    assert proposed.regrouped({"1": "new"}, "clusters").domains[0].metadata == {}


# --- the file --------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(
    st.lists(
        st.tuples(TEXT | st.sampled_from(NAMES), TEXT, TEXT, st.none() | TEXT),
        unique_by=lambda row: row[:2],
    )
)
def test_any_table_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str, str | None]]
) -> None:
    store = tmp_path_factory.mktemp("store")
    table = SampleTable.of_samples(
        (Sample(path, domain, label, group), image(path)) for domain, path, label, group in rows
    ).replacing(unlabelled("without labels", "ab"))
    assert add_table(store, None, table) == "00000"
    assert read_table(store, "00000") == table
    assert {path.relative_to(store).parts[0] for path in store.rglob("*")} == {"samples"}


def test_the_format(tmp_path: Path) -> None:
    table = letters(day="ab").replacing(unlabelled("u", "c"))
    assert add_table(tmp_path, None, table) == "00000"
    day = {
        "name": "day",
        "path": ["day/a.png", "day/b.png"],
        "label": ["odd", "even"],
        "group": [None, None],
        "image": [image("a"), image("b")],
    }
    u = {"name": "u", "path": ["u/c.png"], "label": None, "group": [None], "image": [image("c")]}
    document = json.loads((tmp_path / "samples/00000.json").read_text())
    assert document == {"schema": 2, "domains": [day, u]}


def test_tables_are_numbered_and_never_replaced(tmp_path: Path) -> None:
    first, second = letters(day="ab"), letters(day="abc")
    assert table_numbers(tmp_path) == []
    assert add_table(tmp_path, None, first) == "00000"
    content = table_file(tmp_path, "00000").read_bytes()
    assert add_table(tmp_path, None, second) is None
    assert table_file(tmp_path, "00000").read_bytes() == content
    assert add_table(tmp_path, "00000", second) == "00001"
    assert add_table(tmp_path, "00000", first) is None
    assert add_table(tmp_path, "00009", first) == "00010"
    for name in (".tmp-x", "notes.json", "00001.json.bak", "00002.txt", "0x.json"):
        (tmp_path / "samples" / name).touch()
    assert table_numbers(tmp_path) == ["00000", "00001", "00010"]
    found = [read_table(tmp_path, number) for number in table_numbers(tmp_path)]
    assert found == [first, second, first]


@pytest.mark.parametrize("link", ["samples", "samples/00000.json"])
def test_links_are_not_followed(tmp_path: Path, link: str) -> None:
    outside, store = tmp_path / "outside", tmp_path / "store"
    add_table(outside, None, letters(day="ab"))
    before = sorted(outside.rglob("*"))
    (store / link).parent.mkdir(parents=True)
    (store / link).symlink_to(outside / link)
    assert "is a symbolic link" in refusal(lambda: read_table(store, "00000"))
    assert "is a symbolic link" in refusal(lambda: add_table(store, None, letters(day="ab")))
    assert ("is a symbolic link" in refusal(lambda: table_numbers(store))) == (link == "samples")
    assert sorted(outside.rglob("*")) == before


# --- the task --------------------------------------------------------------------------------

NUMBERS = Task("regression", ("age", "height"))
SEVERAL = Task("multilabel", ("cat", "dog"))


def with_task(task: Task, labels: list[str]) -> SampleTable:
    rows = [(f"{at}", "ab"[at % 2], label) for at, label in enumerate(labels)]
    return replace(SampleTable.of_samples(samples(*rows)), task=task)


@pytest.mark.parametrize(
    ("task", "labels"),
    [(NUMBERS, ["1.5 2.0", "-0.25 1e300"]), (SEVERAL, ['["cat", "dog"]', "[]"])],
)
def test_the_task_is_written_and_read(tmp_path: Path, task: Task, labels: list[str]) -> None:
    table = with_task(task, labels).replacing(unlabelled("new", "x"))
    add_table(tmp_path, None, table)
    found = read_table(tmp_path, "00000")
    assert (found, found.task) == (table, task)
    assert found.only({image("0"), image("x")}).task == task
    assert found.keeping_unlabelled(with_task(CLASSIFICATION, ["a", "b"])).task == task
    document = json.loads(table_file(tmp_path, "00000").read_bytes())
    assert document["task"] == {"kind": task.kind, "outputs": list(task.outputs)}


@pytest.mark.parametrize(
    "task",
    [
        {"kind": "ranking", "outputs": ["a"]},
        {"kind": "regression", "outputs": []},
        {"kind": "regression", "outputs": ["a", "a"]},
        {"kind": "classification", "outputs": ["a"]},
        {"kind": "multilabel", "outputs": "ab"},
        "regression",
    ],
)
def test_a_damaged_task_is_one_line(tmp_path: Path, task: object) -> None:
    add_table(tmp_path, None, with_task(NUMBERS, ["1.0 2.0", "2.0 3.0"]))
    file = table_file(tmp_path, "00000")
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"task": task}))
    message = refusal(lambda: read_table(tmp_path, "00000"))
    assert "is damaged" in message
    assert "\n" not in message
