"""Data sets: order, counts, fingerprint, and the problems that are found."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from oodzoo import ImageDomains
from oodzoo.data.listing import Issue
from oodzoo.data.unlabelled import UnlabelledImages

WriteImage = Callable[[Path], Path]
Row = tuple[str, str, str, str]


def shared_data() -> Path:
    repository = Path(__file__).parents[2]
    return Path(os.environ.get("OODZOO_SHARED", repository.parent / "shared")) / "data"


def write_table(table: Path, rows: list[Row]) -> Path:
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "domain", "label", "group"), *rows])
    return table


# --- order, classes, fingerprint ------------------------------------------------------------------


def test_order_and_fingerprint_do_not_depend_on_the_place(
    photos: Path, tmp_path: Path, write_image: WriteImage
) -> None:
    write_image(photos / "day/bird/1.png")
    images = sorted(p for p in photos.rglob("*.png"))
    for copy, order in (("ahead", images), ("back", images[::-1])):
        for image in order:
            target = tmp_path / copy / image.relative_to(photos)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(image, target)
    ahead, back = ImageDomains(tmp_path / "ahead"), ImageDomains(tmp_path / "back")
    assert ahead.samples == back.samples
    assert ahead.fingerprint == back.fingerprint
    assert (ahead.domains, ahead.classes) == (("day", "night"), ("bird", "cat", "dog"))
    assert ahead.counts()["night"] == {"bird": 0, "cat": 2, "dog": 2}
    assert ahead._repr_html_() == ahead.summary(quick=True)._repr_html_()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("day/cat/1.png", "day/cat/9.png", id="name"),
        pytest.param("day/cat/1.png", "day/cat/10.png", id="name, same order"),
        pytest.param("day/cat/1.png", "day/cat/deep/1.png", id="folder"),
        pytest.param("day/cat/1.png", "day/dog/9.png", id="label of one"),
        pytest.param("day/cat/1.png", "night/cat/9.png", id="domain of one"),
        pytest.param("day/cat", "day/cats", id="label"),
        pytest.param("day", "days", id="domain"),
    ],
)
def test_fingerprint_changes_with_a_move(photos: Path, old: str, new: str) -> None:
    before = ImageDomains(photos).fingerprint
    (photos / new).parent.mkdir(exist_ok=True)
    (photos / old).rename(photos / new)
    assert ImageDomains(photos).fingerprint != before


def test_fingerprint_is_that_of_its_definition() -> None:
    contents, domains = [bytes([n]) for n in range(4)], ["day", "day", "näht", "näht"]
    data = ImageDomains(contents, labels=[["ä"], ["b"], [], ["b"]], domains=domains)
    lines = [json.dumps(["multilabel", "b", "ä"])]
    for sample in data:
        digest = hashlib.sha256(contents[int(sample.path)]).hexdigest()
        lines.append(json.dumps([*sample, digest]))
    expected = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    assert data.fingerprint == expected


def test_fingerprint_changes_with_one_byte(photos: Path) -> None:
    (photos / "day/cat/broken.png").symlink_to("nowhere.png")
    before, checked = ImageDomains(photos).fingerprint, ImageDomains(photos)
    checked.check()
    assert checked.fingerprint == before
    with (photos / "day/cat/1.png").open("ab") as image:
        image.write(b"\0")
    assert ImageDomains(photos).fingerprint != before


# --- files that cannot be read --------------------------------------------------------------------


def damage(path: Path) -> None:
    picture = Image.effect_noise((64, 64), 80).convert("RGB")
    match path.stem:
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("this is no picture")
        case "truncated":
            picture.save(path)
            path.write_bytes(path.read_bytes()[:-400])
        case "float":
            Image.new("F", (2, 2)).save(path)
        case "dangling":
            path.symlink_to("nowhere.png")
        case "pipe":
            os.mkfifo(path)


def test_unreadable_images_are_named_with_their_reasons(photos: Path) -> None:
    names = ["empty.jpg", "text.jpg", "truncated.jpg", "truncated.png", "float.tiff"]
    unread = {
        "day/cat/dangling.png": "No such file or directory",
        "day/cat/pipe.png": "not a regular file",
    }
    bad = sorted([*(f"day/cat/{name}" for name in names), *unread])
    for path in bad:
        damage(photos / path)
    data = ImageDomains(photos)
    assert data.quick_check() == []  # which opens no image
    summary = data.summary()
    (issue,) = summary.issues
    assert (issue.kind, sorted(issue.paths)) == ("unreadable", bad)
    assert issue.message.startswith("7 images cannot be read: 'day/cat/")
    assert "\n" not in str(issue)
    assert summary.unreadable is not None
    assert tuple(summary.unreadable) == issue.paths
    assert summary.unreadable["day/cat/empty.jpg"] == "the file is empty (0 bytes)"
    assert data.unreadable == ImageDomains(photos).unreadable == unread
    without = [s.path for s, digest in zip(data, data.digests, strict=True) if digest is None]
    assert without == list(unread)


def test_check_reads_the_files_again(photos: Path) -> None:
    data = ImageDomains(photos)
    before, fingerprint = data.digests, data.fingerprint
    assert data.unreadable == {}
    (photos / "day/cat/1.png").unlink()
    assert (data.digests, data.unreadable) == (before, {})  # read once
    data.check()
    assert data.digests == (None, *before[1:])
    assert data.unreadable == {"day/cat/1.png": "No such file or directory"}
    assert data.fingerprint != fingerprint
    damaged = data.fingerprint
    shutil.copy(photos / "day/cat/2.png", photos / "day/cat/1.png")
    data.check()
    assert data.unreadable == {}
    assert data.fingerprint not in (fingerprint, damaged)


def test_check_reads_the_files_once(photos: Path) -> None:
    data, again, calls = ImageDomains(photos), ImageDomains(photos), []

    def progress(done: int, total: int) -> None:
        calls.append((done, total))
        shutil.rmtree(photos)

    quick = data.summary(quick=True)
    assert data.check(progress) == []
    assert calls == [(8, 8)]  # one call, after all images
    assert data.unreadable == {}
    assert None not in data.digests
    assert again.digests == (None,) * 8
    assert data.summary(quick=True) == quick
    assert (quick.unreadable, quick.total.n_bytes, quick.total.images) == (None, None, 8)


def test_sample_has_digests_and_reasons_of_its_own(photos: Path) -> None:
    (photos / "day/cat/1.png").unlink()
    for name in ("1.png", "3.png"):
        (photos / "day/cat" / name).symlink_to("nowhere.png")
    data = ImageDomains(photos)
    assert len(data.unreadable) == 2
    parts = [data.sample(5, seed=seed) for seed in range(5)]
    for part in parts:
        digest_of = dict(zip((s.path for s in data), data.digests, strict=True))
        assert part.digests == tuple(digest_of[sample.path] for sample in part)
        inside = {sample.path for sample in part}
        assert part.unreadable == {p: why for p, why in data.unreadable.items() if p in inside}
    assert {len(part.unreadable) for part in parts} != {2}
    assert {part.summary().total.images for part in parts} == {5}
    assert parts[0].samples == data.sample(5, seed=0).samples
    assert len({part.samples for part in parts}) > 1


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_image_without_permission_is_named(photos: Path) -> None:
    (photos / "day/cat/1.png").chmod(0)
    (issue,) = ImageDomains(photos).check()
    assert issue.paths == ("day/cat/1.png",)
    assert issue.message == "1 image cannot be read: 'day/cat/1.png': Permission denied"


# --- properties of tables -------------------------------------------------------------------------

NAMES = [f"{i}.png" for i in range(8)]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight images that tables of any kind may name."""
    folder = tmp_path_factory.mktemp("pool")
    for i, name in enumerate(NAMES):
        Image.new("L", (2, 2), i).save(folder / name)
    return folder


words = st.text(
    # no surrogates, which no file can hold; no NUL, which CSV readers dislike
    st.characters(codec="utf-8", exclude_characters="\0"),
    min_size=1,
    max_size=5,
).filter(lambda word: word == word.strip())


@st.composite
def tables(draw: st.DrawFn) -> list[Row]:
    domains = draw(st.lists(words, min_size=2, max_size=3, unique=True))
    labels = draw(st.lists(words, min_size=2, max_size=3, unique=True))
    groups = st.just("") | words
    # two of each, or it is no data set
    rows = [(NAMES[i], domains[i], labels[i], draw(groups)) for i in range(2)]
    for name in draw(st.lists(st.sampled_from(NAMES[2:-1]), unique=True)):
        domain, label = draw(st.sampled_from(domains)), draw(st.sampled_from(labels))
        rows.append((name, domain, label, draw(groups)))
    return rows


def opened(pool: Path, rows: list[Row]) -> ImageDomains:
    """The data set of a table; of labels such as "a", "b" and "a;b", one must say what they are."""
    return ImageDomains(write_table(pool / "table.csv", rows), task="classification")


@settings(max_examples=30, deadline=None)
@given(rows=tables(), random=st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(pool: Path, rows: list[Row], random: Random) -> None:
    data = opened(pool, rows)
    shuffled = random.sample(rows, len(rows))
    again = opened(pool, shuffled)
    assert again.samples == data.samples
    assert (again.domains, again.classes) == (data.domains, data.classes)
    assert again.fingerprint == data.fingerprint
    assert again.check() == data.check()


@settings(max_examples=60, deadline=None)
@given(rows=tables())
def test_counts_add_up(pool: Path, rows: list[Row]) -> None:
    data = opened(pool, rows)
    counts = data.counts()
    assert list(counts) == sorted({row[1] for row in rows})
    assert all(list(row) == sorted({row[2] for row in rows}) for row in counts.values())
    assert sum(sum(row.values()) for row in counts.values()) == len(rows) == len(data)
    found = {(d, c): n for d, row in counts.items() for c, n in row.items() if n}
    assert found == Counter((row[1], row[2]) for row in rows)


@settings(max_examples=30, deadline=None)
@given(rows=tables(), change=st.sampled_from(["domain", "label", "group"]), value=words)
def test_fingerprint_changes_with_each_cell(
    pool: Path, rows: list[Row], change: str, value: str
) -> None:
    _, domain, label, _ = rows[0]
    last = (NAMES[-1], domain, label, "")
    changed = (
        NAMES[-1],
        domain + value * (change == "domain"),
        label + value * (change == "label"),
        value * (change == "group"),
    )
    before = opened(pool, [*rows, last]).fingerprint
    after = opened(pool, [*rows, changed]).fingerprint
    assert before != after


# --- leaks and copies -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("copy", "kinds"),
    [
        ("night/cat/copy.png", ["leak"]),
        ("day/dog/copy.png", ["two labels"]),
        ("night/dog/copy.png", ["leak", "two labels"]),
        ("day/cat/copy.png", ["copies"]),
    ],
)
def test_identical_images(photos: Path, copy: str, kinds: list[str]) -> None:
    assert ImageDomains(photos).check() == []
    shutil.copy(photos / "day/cat/1.png", photos / copy)
    for folder in ("day/cat", "night/cat"):  # which are not identical
        (photos / folder / "empty.png").touch()
    unreadable, *issues = ImageDomains(photos).check()
    assert (unreadable.kind, len(unreadable.paths)) == ("unreadable", 2)
    assert [issue.kind for issue in issues] == kinds
    assert {issue.paths for issue in issues} == {tuple(sorted(("day/cat/1.png", copy)))}


def test_labelled_images_in_an_unlabelled_domain_are_a_leak(
    photos: Path, tmp_path: Path, write_image: WriteImage
) -> None:
    for folder in ("apart", "mixed", "one"):
        write_image(tmp_path / folder / "own.png")
    shutil.copy(photos / "day/cat/1.png", tmp_path / "mixed/a.png")
    shutil.copy(photos / "night/dog/2.png", tmp_path / "mixed/b.png")
    shutil.copy(photos / "day/cat/1.png", tmp_path / "one/1.png")
    unlabelled = [UnlabelledImages(tmp_path / folder) for folder in ("apart", "mixed", "one")]
    data = ImageDomains(photos)
    assert data.leaks() == data.leaks(unlabelled[:1]) == []
    mixed, one = data.leaks(unlabelled)
    assert mixed == Issue(
        "leak",
        "leak between domains: unlabelled domain 'mixed' also contains 2 images "
        "('day/cat/1.png', 'night/dog/2.png'); predictions on it will look better than they are",
        ("day/cat/1.png", "night/dog/2.png"),
    )
    assert one.paths == ("day/cat/1.png",)
    assert "domain 'one' also contains image 'day/cat/1.png'; predictions" in one.message


def test_leaks_between_labelled_domains_are_listed_with_unlabelled_ones(
    photos: Path, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    for folder in (photos / "day/cat", tmp_path / "new"):
        for name in ("dangling.png", "empty.jpg"):
            damage(folder / name)
    unlabelled = UnlabelledImages(tmp_path / "new")
    assert ImageDomains(photos).leaks([unlabelled]) == []
    shutil.copy(photos / "day/cat/1.png", photos / "night/cat/copy.png")
    shutil.copy(photos / "day/cat/1.png", tmp_path / "new")
    leaks = ImageDomains(photos).leaks([UnlabelledImages(tmp_path / "new")])
    assert [leak.paths for leak in leaks] == [("day/cat/1.png", "night/cat/copy.png")] * 2


def test_group_in_two_domains_is_a_leak(photos: Path) -> None:
    rows = [
        ("day/cat/1.png", "day", "cat", "mimi"),
        ("day/dog/1.png", "day", "dog", "rex"),
        ("night/cat/1.png", "night", "cat", "mimi"),
        ("night/dog/1.png", "night", "dog", ""),
        ("day/dog/2.png", "day", "dog", ""),
    ]
    (leak,) = ImageDomains(write_table(photos / "table.csv", rows)).quick_check()
    assert leak.kind == "leak"
    assert "'mimi'" in leak.message
    assert "rex" not in leak.message


# --- a real one -----------------------------------------------------------------------------------


@pytest.mark.skipif(
    not (shared_data() / "pacs_mini").is_dir(),
    reason="needs data/pacs_mini in $OODZOO_SHARED or beside the repository in shared/",
)
def test_pacs_mini() -> None:
    data = ImageDomains(shared_data() / "pacs_mini")
    assert data.domains == ("art_painting", "cartoon", "photo", "sketch")
    assert data.classes == ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    assert {n for row in data.counts().values() for n in row.values()} == {50}
    assert data.check() == []
