"""Data sets: order, counts, fingerprint, and what is said to be odd."""

from __future__ import annotations

import csv
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

from oodzoo import ImageDomains, InputError
from oodzoo.data.listing import Issue
from oodzoo.data.unlabelled import UnlabelledImages
from oodzoo.errors import NoDomainsError

WriteImage = Callable[[Path], Path]
Row = tuple[str, str, str, str]


def shared_data() -> Path:
    repository = Path(__file__).parents[2]
    return Path(os.environ.get("OODZOO_SHARED", repository.parent / "shared")) / "data"


def messages(issues: list[Issue], kind: str) -> list[str]:
    return [issue.message for issue in issues if issue.kind == kind]


def write_table(table: Path, rows: list[Row]) -> Path:
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "domain", "label", "group"), *rows])
    return table


# --- order, classes, counts -------------------------------------------------------------------


def test_samples_are_ordered_by_domain_class_and_path(photos: Path) -> None:
    data = ImageDomains(photos)
    assert list(data) == sorted(data, key=lambda s: (s.domain, s.label, s.path))
    assert (data.domains, data.classes, len(data)) == (("day", "night"), ("cat", "dog"), 8)
    assert repr(data).endswith("8 images, 2 domains, 2 classes)")
    assert all(data.open(i) for i in range(len(data)))


def test_order_does_not_come_from_the_file_system(photos: Path, tmp_path: Path) -> None:
    images = sorted(p for p in photos.rglob("*.png"))
    for copy, order in (("ahead", images), ("back", images[::-1])):
        for image in order:
            target = tmp_path / copy / image.relative_to(photos)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(image, target)
    assert ImageDomains(tmp_path / "ahead").samples == ImageDomains(tmp_path / "back").samples


def test_classes_are_shared_by_all_domains(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / "day/bird/1.png")
    data = ImageDomains(photos)
    assert data.classes == ("bird", "cat", "dog")
    assert data.counts()["night"] == {"bird": 0, "cat": 2, "dog": 2}


def test_source_may_be_text(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos.parent)
    assert ImageDomains("photos").samples == ImageDomains(photos).samples


# --- fingerprint ------------------------------------------------------------------------------


def test_fingerprint_does_not_depend_on_the_place(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "elsewhere/renamed")
    assert (
        ImageDomains(photos).fingerprint == ImageDomains(tmp_path / "elsewhere/renamed").fingerprint
    )


def test_fingerprint_of_a_folder_and_of_the_same_table(photos: Path, tmp_path: Path) -> None:
    data = ImageDomains(photos)
    table = write_table(tmp_path / "t.csv", [(s.path, s.domain, s.label, "") for s in data])
    assert ImageDomains(table, root=photos).fingerprint == data.fingerprint


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


def test_fingerprint_changes_with_one_byte(photos: Path) -> None:
    before = ImageDomains(photos).fingerprint
    with (photos / "day/cat/1.png").open("ab") as image:
        image.write(b"\0")
    assert ImageDomains(photos).fingerprint != before


def test_fingerprint_is_the_same_before_and_after_a_check(photos: Path) -> None:
    (photos / "day/cat/broken.png").symlink_to("nowhere.png")
    fresh, checked = ImageDomains(photos), ImageDomains(photos)
    checked.check()
    assert fresh.fingerprint == checked.fingerprint


# --- files that cannot be read ----------------------------------------------------------------


def test_unreadable_files_have_a_reason_and_no_digest(photos: Path) -> None:
    for name in ("dangling.png", "pipe.png", "text.jpg"):
        damage(photos / "day/cat" / name)
    data = ImageDomains(photos)
    assert data.unreadable == {
        "day/cat/dangling.png": "No such file or directory",
        "day/cat/pipe.png": "not a regular file",
    }
    without = [s.path for s, digest in zip(data, data.digests, strict=True) if digest is None]
    assert without == list(data.unreadable)


def test_check_names_all_problems_but_unreadable_only_files(photos: Path) -> None:
    for name in ("dangling.png", "text.jpg"):
        damage(photos / "day/cat" / name)
    data = ImageDomains(photos)
    (issue,) = data.check()
    assert issue.paths == ("day/cat/dangling.png", "day/cat/text.jpg")
    assert data.unreadable == {"day/cat/dangling.png": "No such file or directory"}


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
    data = ImageDomains(photos)
    # the only call, after all eight images
    assert data.check(lambda *_: (photos / "day/cat/1.png").unlink()) == []
    assert not (photos / "day/cat/1.png").exists()
    assert data.unreadable == {}


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


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_without_permission(photos: Path) -> None:
    (photos / "day/cat/1.png").chmod(0)
    assert ImageDomains(photos).unreadable == {"day/cat/1.png": "Permission denied"}


# --- properties of tables ---------------------------------------------------------------------

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


# --- what is odd ------------------------------------------------------------------------------


def test_nothing_is_odd_about_a_sound_data_set(photos: Path) -> None:
    assert ImageDomains(photos).check() == []


def test_class_missing_in_a_domain(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / "day/bird/1.png")
    data = ImageDomains(photos)
    assert messages(data.quick_check(), "missing class") == [
        "domain 'night' has no images of class 'bird'"
    ]


def test_domain_with_one_class(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / "dusk/cat/1.png")
    (message,) = messages(ImageDomains(photos).quick_check(), "one class")
    assert "'dusk'" in message
    assert "'cat'" in message


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


BAD = ["empty.jpg", "text.jpg", "truncated.jpg", "truncated.png", "float.tiff", "dangling.png"]


def test_each_unreadable_image_is_named_with_its_reason(photos: Path) -> None:
    bad = [*BAD, "pipe.png"]
    for name in bad:
        damage(photos / "day/cat" / name)
    data = ImageDomains(photos)
    summary = data.summary()
    (issue,) = summary.issues
    assert (issue.kind, sorted(issue.paths)) == ("unreadable", sorted(f"day/cat/{n}" for n in bad))
    assert issue.message.startswith("7 images cannot be read: 'day/cat/")
    assert "\n" not in str(issue)
    assert summary.unreadable is not None
    assert tuple(summary.unreadable) == issue.paths
    assert summary.unreadable["day/cat/empty.jpg"] == "the file is empty (0 bytes)"


def test_quick_check_opens_no_image(photos: Path) -> None:
    for name in BAD:
        damage(photos / "day/cat" / name)
    assert ImageDomains(photos).quick_check() == []


def test_identical_images_in_two_domains_are_a_leak(photos: Path) -> None:
    shutil.copy(photos / "day/cat/1.png", photos / "night/cat/copy.png")
    (leak,) = ImageDomains(photos).check()
    assert leak.kind == "leak"
    assert leak.paths == ("day/cat/1.png", "night/cat/copy.png")
    assert leak.message.startswith("leak between domains: 2 images are identical to images of")


def test_domain_linked_to_another_is_a_leak(photos: Path) -> None:
    (photos / "dusk").symlink_to("day")
    (leak,) = [issue for issue in ImageDomains(photos).check() if issue.kind == "leak"]
    assert len(leak.paths) == 8


def test_identical_images_with_two_labels(photos: Path) -> None:
    shutil.copy(photos / "day/cat/1.png", photos / "day/dog/copy.png")
    (issue,) = ImageDomains(photos).check()
    assert (issue.kind, issue.paths) == ("two labels", ("day/cat/1.png", "day/dog/copy.png"))
    shutil.move(photos / "day/dog/copy.png", photos / "night/dog/copy.png")
    leak, issue = ImageDomains(photos).check()
    assert (leak.kind, issue.kind) == ("leak", "two labels")
    assert "'day/cat/1.png' ('cat') = 'night/dog/copy.png' ('dog')" in issue.message


def test_copies_within_a_class_and_unreadable_files_are_no_leak(photos: Path) -> None:
    shutil.copy(photos / "day/cat/1.png", photos / "day/cat/copy.png")
    for domain in ("day", "night"):
        (photos / domain / "cat/empty.png").touch()
        (photos / domain / "cat/text.png").write_text("this is no picture")
    data = ImageDomains(photos)
    unreadable, copies = data.check()
    assert (unreadable.kind, len(unreadable.paths)) == ("unreadable", 4)
    assert (copies.kind, copies.paths) == ("copies", ("day/cat/1.png", "day/cat/copy.png"))


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
    shutil.copy(photos / "day/cat/1.png", photos / "night/cat/copy.png")
    (tmp_path / "new").mkdir()
    shutil.copy(photos / "day/cat/1.png", tmp_path / "new")
    leaks = ImageDomains(photos).leaks([UnlabelledImages(tmp_path / "new")])
    assert [leak.paths for leak in leaks] == [("day/cat/1.png", "night/cat/copy.png")] * 2


def test_unread_and_empty_files_are_no_leak_into_unlabelled_domains(
    photos: Path, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    for folder in (photos / "day/cat", tmp_path / "new"):
        for name in ("dangling.png", "empty.jpg"):
            damage(folder / name)
    assert ImageDomains(photos).leaks([UnlabelledImages(tmp_path / "new")]) == []


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


def test_progress_reaches_the_end(photos: Path) -> None:
    calls: list[tuple[int, int]] = []
    ImageDomains(photos).check(lambda done, total: calls.append((done, total)))
    assert calls[-1] == (8, 8)


def test_another_seed_is_another_sample(photos: Path) -> None:
    data = ImageDomains(photos)
    samples = [data.sample(6, seed=seed).samples for seed in (0, 0, 1, 2, 3)]
    assert samples[0] == samples[1]
    assert len(set(samples)) > 1


# --- summary ----------------------------------------------------------------------------------


def test_summary_keeps_the_digests_that_it_has_read(photos: Path) -> None:
    data, again = ImageDomains(photos), ImageDomains(photos)
    data.summary()
    shutil.rmtree(photos)
    assert None not in data.digests
    assert again.digests == (None,) * 8


def test_quick_summary_opens_no_image(photos: Path) -> None:
    data = ImageDomains(photos)
    before = data.summary(quick=True)
    shutil.rmtree(photos)
    assert data.summary(quick=True) == before
    assert (before.unreadable, before.total.n_bytes, before.total.images) == (None, None, 8)


def test_summary_of_a_sample(photos: Path) -> None:
    sample = ImageDomains(photos).sample(6)
    assert sample.summary().total.images == 6


# --- bad input --------------------------------------------------------------------------------


def refusal(source: Path, root: Path | None = None) -> str:
    with pytest.raises(InputError) as caught:
        ImageDomains(source, root=root)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_path_that_does_not_exist(tmp_path: Path) -> None:
    assert "no such file or folder: '" in refusal(tmp_path / "nowhere")
    # Python before 3.12 has an error of its own for a name too long
    assert "x" * 300 in refusal(tmp_path / ("x" * 300))


def test_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert "no such file or folder: '" in refusal(tmp_path / "loop")


def test_file_where_a_folder_is_due(photos: Path) -> None:
    assert "1.png' is a file; give a folder" in refusal(photos / "day/cat/1.png")


def test_folder_with_the_name_of_a_table(photos: Path) -> None:
    renamed = photos.rename(photos.with_name("photos.csv"))
    assert len(ImageDomains(renamed)) == 8


def test_root_goes_with_a_table(photos: Path) -> None:
    assert "root= is not used with" in refusal(photos, root=photos)


def test_one_domain(photos: Path) -> None:
    shutil.rmtree(photos / "night")
    assert "has one domain, 'day'; at least two" in refusal(photos)


def test_one_domain_beside_an_empty_one(photos: Path) -> None:
    shutil.rmtree(photos / "night/cat")
    for image in (photos / "night/dog").iterdir():
        image.unlink()
    assert "has one domain, 'day'" in refusal(photos)


def test_one_class(photos: Path) -> None:
    for domain in ("day", "night"):
        shutil.rmtree(photos / domain / "dog")
    assert "has one class, 'cat'; at least two" in refusal(photos)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("mode", [0o000, 0o444])  # 444: names can be listed, not looked at
def test_folder_without_permission(photos: Path, mode: int) -> None:
    closed = photos / "day/cat"
    closed.chmod(mode)
    try:
        assert "Permission denied" in refusal(photos)
    finally:
        closed.chmod(0o755)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_image_without_permission_is_named(photos: Path) -> None:
    (photos / "day/cat/1.png").chmod(0)
    (issue,) = ImageDomains(photos).check()
    assert issue.paths == ("day/cat/1.png",)
    assert issue.message == "1 image cannot be read: 'day/cat/1.png': Permission denied"


# --- a real one -------------------------------------------------------------------------------


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


def test_a_notebook_shows_the_summary(photos: Path) -> None:
    data = ImageDomains(photos)
    assert data._repr_html_() == data.summary(quick=True)._repr_html_()


def test_folder_above_the_domains(photos: Path) -> None:
    with pytest.raises(NoDomainsError, match=r"8 of its 8 images are one level .* too low") as said:
        ImageDomains(photos.parent)
    assert str(said.value).endswith(f"give {str(photos)!r}?")
