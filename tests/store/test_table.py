"""The table of samples: content, changes, and its file."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.store.data import flip, image, letters, nested, unlabelled

from oodzoo.data.dataset import ImageDomains
from oodzoo.data.listing import Sample
from oodzoo.data.unlabelled import UnlabelledImages
from oodzoo.errors import InputError
from oodzoo.store.table import (
    SampleTable,
    TableDomain,
    add_table,
    read_table,
    table_file,
    table_numbers,
)
from oodzoo.task import CLASSIFICATION, Task

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


def test_the_table_of_a_data_set(digits: Path, photos: Path) -> None:
    dataset = ImageDomains(digits)
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
    assert dict(zip(new.paths, new.images, strict=True)) == dict(
        zip(target.paths, target.digests, strict=True)
    )


def test_the_fingerprint_is_that_of_the_data_set(digits: Path, photos: Path) -> None:
    dataset = ImageDomains(digits)
    table = SampleTable.of(dataset)
    assert table.fingerprint == dataset.fingerprint
    assert SampleTable.of(ImageDomains(photos)).fingerprint != table.fingerprint
    # domains without labels do not belong to it
    assert table.replacing(unlabelled("new", "ab")).fingerprint == table.fingerprint


def test_every_column_is_in_the_fingerprint() -> None:
    table = letters(day="ab", night="c")
    day = table.domain("day")
    changes = [
        TableDomain("DAY", day.paths, day.labels, day.groups, day.images),
        TableDomain("day", ["day/a.png", "x"], day.labels, day.groups, day.images),
        TableDomain("day", day.paths, ["even", "even"], day.groups, day.images),
        TableDomain("day", day.paths, day.labels, ["g", None], day.images),
        TableDomain("day", day.paths, day.labels, day.groups, day.images[::-1]),
    ]
    tables = [SampleTable([change, table.domain("night")]) for change in changes]
    assert len({t.fingerprint for t in [table, *tables]}) == 6


def test_columns_of_other_lengths_are_rejected() -> None:
    with pytest.raises(ValueError, match="the columns of the domain 'd' differ in length"):
        TableDomain("d", ["1", "2"], ["x"], [None, None], ["i", "j"])
    with pytest.raises(ValueError, match="differ in length"):
        TableDomain("d", ["1", "2"], ["x", "x"], [None], ["i", "j"])
    with pytest.raises(ValueError, match="differ in length"):
        TableDomain("d", ["1", "2"], None, [None, None], ["i"])


# --- changes ---------------------------------------------------------------------------------


def test_a_domain_without_labels_is_added_and_replaced() -> None:
    table = letters(day="ab", night="c").replacing(unlabelled("z", "x"))
    table = table.replacing(unlabelled("b", "yz")).replacing(unlabelled("z", "w"))
    assert [d.name for d in table.domains] == ["day", "night", "b", "z"]
    assert table.domain("z").images == [image("w")]
    assert list(table.images(labelled=True)) == [image(name) for name in "abc"]
    assert list(table.images()) == [image(name) for name in "abcyzw"]


def test_a_domain_without_labels_has_its_own_name() -> None:
    with pytest.raises(InputError, match=r"named 'day', as a domain with labels; .*NAME=FOLDER"):
        letters(day="ab").replacing(unlabelled("day", "x"))


def test_old_domains_without_labels_are_kept() -> None:
    old = letters(day="ab").replacing(unlabelled("u", "x")).replacing(unlabelled("v", "y"))
    new = letters(night="c").replacing(unlabelled("v", "z"))
    kept = new.keeping_unlabelled(old)
    assert [(d.name, d.images) for d in kept.domains] == [
        ("night", [image("c")]),
        ("u", [image("x")]),
        ("v", [image("z")]),
    ]
    # a domain that has labels now is no longer one without
    labelled = letters(u="xy").keeping_unlabelled(old)
    assert [(d.name, d.labels is None) for d in labelled.domains] == [("u", False), ("v", True)]


def test_the_samples_of_some_images() -> None:
    table = letters(day="abc", night="d").replacing(unlabelled("u", "ef"))
    part = table.only({image("a"), image("c"), image("f")})
    assert [(d.name, d.paths) for d in part.domains] == [
        ("day", ["day/a.png", "day/c.png"]),
        ("u", ["u/f.png"]),
    ]
    assert part.domain("day").labels == ["odd", "odd"]


def test_places_are_the_first_ones() -> None:
    table = letters(day="ab", night="a")
    assert table.places() == {image("a"): ("day", "day/a.png"), image("b"): ("day", "day/b.png")}


def test_an_unknown_domain() -> None:
    with pytest.raises(InputError, match="unknown domain 'x'; expected one of 'day', 'night'"):
        letters(day="a", night="b").domain("x")


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
    assert json.loads((tmp_path / "samples/00000.json").read_text()) == {
        "schema": 2,
        "domains": [
            {
                "name": "day",
                "path": ["day/a.png", "day/b.png"],
                "label": ["odd", "even"],
                "group": [None, None],
                "image": [image("a"), image("b")],
            },
            {
                "name": "u",
                "path": ["u/c.png"],
                "label": None,
                "group": [None],
                "image": [image("c")],
            },
        ],
    }


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
    assert table_numbers(tmp_path) == ["00000", "00001", "00010"]
    found = [read_table(tmp_path, number) for number in table_numbers(tmp_path)]
    assert found == [first, second, first]
    assert sorted(file.name for file in (tmp_path / "samples").iterdir()) == [
        "00000.json",
        "00001.json",
        "00010.json",
    ]


def test_other_files_are_no_tables(tmp_path: Path) -> None:
    add_table(tmp_path, None, letters(day="ab"))
    for name in (".tmp-x", "notes.json", "00001.json.bak", "00002.txt", "0x.json"):
        (tmp_path / "samples" / name).touch()
    assert table_numbers(tmp_path) == ["00000"]


def test_a_flipped_bit_of_any_byte_is_noticed(tmp_path: Path) -> None:
    add_table(tmp_path, None, letters(day="ab").replacing(unlabelled("u", "c")))
    path = table_file(tmp_path, "00000")
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    advice = f"; restore it with `oodzoo store sync {tmp_path} DATA`"
    for bit in range(0, 8 * len(content), 3):  # one or more of each byte
        path.write_bytes(content)
        flip(path, bit)
        with pytest.raises(InputError, match=r"^the table of samples .* is damaged: ") as caught:
            read_table(tmp_path, "00000", sha256)
        assert "\n" not in str(caught.value)
        assert str(caught.value).endswith(advice)
    path.write_bytes(content)
    assert read_table(tmp_path, "00000", sha256) == read_table(tmp_path, "00000")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(nested(), id="nested"),
        '{"schema": 2, "domains": NaN}',
        '{"schema": 2, "domains": 7}',
        '{"schema": 2, "domains": [{"name": "d"}]}',
        '{"schema": 2, "domains": [{"name":"d","path":[""],"label":null,"group":[],"image":[]}]}',
        '{"schema": 2}',
    ],
)
def test_other_content(tmp_path: Path, content: str) -> None:
    path = table_file(tmp_path, "00000")
    path.parent.mkdir()
    path.write_text(content)
    for sha256 in (None, hashlib.sha256(content.encode()).hexdigest()):
        with pytest.raises(InputError, match=rf"the table of samples '{path}' is dam") as caught:
            read_table(tmp_path, "00000", sha256)
        assert "\n" not in str(caught.value)


def test_a_missing_table(tmp_path: Path) -> None:
    store = tmp_path / "my store"
    with pytest.raises(InputError, match=r"cannot read the table of samples .*00007") as caught:
        read_table(store, "00007", image("a"))
    assert str(caught.value).endswith(f"`oodzoo store sync '{store}' DATA`")


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    add_table(outside, None, letters(day="ab"))
    before = sorted(outside.rglob("*"))
    for link in ("samples", "samples/00000.json"):
        store = tmp_path / link.replace("/", "-")
        (store / link).parent.mkdir(parents=True)
        (store / link).symlink_to(outside / link)
        for attempt in (
            lambda store: read_table(store, "00000"),
            lambda store: add_table(store, None, letters(day="ab")),
        ):
            with pytest.raises(InputError, match="is a symbolic link"):
                attempt(store)
    assert sorted(outside.rglob("*")) == before
    with pytest.raises(InputError, match="is a symbolic link"):
        table_numbers(tmp_path / "samples")


# --- many processes --------------------------------------------------------------------------

_RACE = """
import sys
from pathlib import Path
from tests.store.data import letters
from oodzoo.store.table import add_table

table = letters(day=sys.argv[2])
for line in sys.stdin:
    print(add_table(Path(sys.argv[1]), line.strip() or None, table), flush=True)
"""


def test_of_processes_that_write_the_same_number_one_wins(
    tmp_path: Path, process: Callable[..., subprocess.Popen[str]]
) -> None:
    names = "abcdefgh"
    children = [process(_RACE, tmp_path, name) for name in names]
    last = ""
    for number in [f"{at:05d}" for at in range(25)]:
        for child in children:
            assert child.stdin is not None
            child.stdin.write(f"{last}\n")
            child.stdin.flush()
        answers = [child.stdout.readline().strip() for child in children if child.stdout]
        assert sorted(answers) == [number] + 7 * ["None"]
        winner = names[answers.index(number)]
        assert read_table(tmp_path, number) == letters(day=winner)
        last = number
    files = [file.name for file in (tmp_path / "samples").iterdir()]
    assert sorted(files) == [f"{at:05d}.json" for at in range(25)]


def test_a_table_without_proposals_is_written_as_before(tmp_path: Path) -> None:
    table = letters(day="ab")
    (tmp_path / "samples").mkdir()
    number = add_table(tmp_path, None, table)
    assert number is not None
    document = json.loads(table_file(tmp_path, number).read_bytes())
    assert document.keys() == {"schema", "domains"}
    assert document["domains"][0].keys() == {"name", "path", "label", "group", "image"}


def test_further_columns_are_written_and_read(tmp_path: Path) -> None:
    metadata = {"camera": {"1": "canon", "2": None, "9": "sony"}}
    rows = samples(("2", "b", "x"), ("9", "a", "y"), ("1", "b", "y"))
    table = SampleTable.of_samples(rows, metadata)
    assert [d.metadata for d in table.domains] == [
        {"camera": ["sony"]},
        {"camera": ["canon", None]},
    ]
    proposed = table.regrouped({"1": "p", "2": "q", "9": "p"}, "camera")
    assert proposed.domains[0].metadata == {"camera": ["canon", "sony"], "domain": ["b", "a"]}
    (tmp_path / "samples").mkdir()
    number = add_table(tmp_path, None, proposed)
    assert number is not None
    assert read_table(tmp_path, number) == proposed
    assert proposed.only({image("9")}).proposed == "camera"
    assert proposed.only({image("9")}).domains[0].metadata["camera"] == ["sony"]


def test_domains_of_a_data_set_that_were_proposed_are_not_given_ones() -> None:
    table = SampleTable.of_samples(samples(("1", "canon", "x")))
    assert SampleTable(table.domains, proposed="camera").given_domains() == {}
    again = SampleTable(table.domains, proposed="camera").regrouped({"1": "new"}, "clusters")
    assert again.domains[0].metadata == {}


def test_further_columns_have_a_value_for_each_sample() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        TableDomain("d", ["1"], ["x"], [None], [image("1")], {"camera": []})


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
    number = add_table(tmp_path, None, table)
    assert number is not None
    found = read_table(tmp_path, number)
    assert found == table
    assert found.task == task
    assert found.only({image("0"), image("x")}).task == task
    assert found.keeping_unlabelled(with_task(CLASSIFICATION, ["a", "b"])).task == task
    document = json.loads(table_file(tmp_path, number).read_bytes())
    assert document["task"] == {"kind": task.kind, "outputs": list(task.outputs)}


def test_a_table_of_classes_does_not_name_its_task(tmp_path: Path) -> None:
    number = add_table(tmp_path, None, SampleTable.of_samples(samples(("1", "a", "x"))))
    assert number is not None
    assert set(json.loads(table_file(tmp_path, number).read_bytes())) == {"schema", "domains"}
    assert read_table(tmp_path, number).task == CLASSIFICATION


def test_the_fingerprint_has_the_task() -> None:
    labels = ["1.5 2.0", "2.5 3.0"]
    tasks = [CLASSIFICATION, NUMBERS, Task("regression", ("age", "size"))]
    assert len({with_task(task, labels).fingerprint for task in tasks}) == 3


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
    number = add_table(tmp_path, None, with_task(NUMBERS, ["1.0 2.0", "2.0 3.0"]))
    assert number is not None
    file = table_file(tmp_path, number)
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"task": task}))
    with pytest.raises(InputError) as caught:
        read_table(tmp_path, number)
    assert "\n" not in str(caught.value)
