"""`oodzoo data`: counts, JSON, warnings and bad input."""

from __future__ import annotations

import csv
import os
import shutil
import sys
from pathlib import Path

import pytest
from PIL import Image
from tests.conftest import Run, WriteImage
from tests.s3 import Bucket

import oodzoo


def test_json_document(run: Run, photos: Path) -> None:
    outcome = run("data", photos, "--json")
    assert outcome.code == 0
    document = outcome.document
    assert document["images"] == 8
    assert document["domains"] == ["day", "night"]
    assert document["classes"] == ["cat", "dog"]
    assert document["counts"]["night"] == {"cat": 2, "dog": 2}
    assert document["fingerprint"] == oodzoo.ImageDomains(photos).fingerprint
    assert document["warnings"] == []


def test_table_of_images_with_groups(run: Run, photos: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    with table.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "domain", "label", "group"])
        rows.writerows([s.path, s.domain, s.label, s.label] for s in oodzoo.ImageDomains(photos))
    outcome = run("data", table, "--root", photos, "--json")
    assert outcome.document["groups"] == 2
    (warning,) = outcome.document["warnings"]
    assert "'cat', 'dog'" in warning["message"]
    assert warning["kind"] == "leak"


def test_every_oddity_is_a_warning_and_named(
    run: Run, photos: Path, write_image: WriteImage
) -> None:
    write_image(photos / "day/bird/1.png")
    write_image(photos / "dusk/cat/1.png")
    (photos / "day/cat/broken.JPG").write_text("this is no picture")
    shutil.copy(photos / "day/dog/1.png", photos / "night/dog/copy.png")
    (photos / "night/loop").symlink_to(photos)
    plain, machine = run("data", photos), run("data", photos, "--json")
    warnings = machine.document["warnings"]
    assert sorted(w["kind"] for w in warnings) == [
        *("leak", "link loop", "missing class", "one class", "unreadable")
    ]
    for outcome in (plain, machine):
        lines = [line for line in outcome.err.splitlines() if line.startswith("warning: ")]
        assert [f"warning: {w['message']}; {w['advice']}" for w in warnings] == lines
        assert outcome.code == 0
    (leak,) = [w for w in warnings if w["kind"] == "leak"]
    assert leak["message"].startswith("leak between domains")
    assert leak["paths"] == ["day/dog/1.png", "night/dog/copy.png"]


def test_quick_counts_without_opening(run: Run, photos: Path) -> None:
    (photos / "day/cat/empty.png").touch()
    outcome = run("data", photos, "--quick", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert (outcome.document["images"], outcome.document["fingerprint"]) == (9, None)


@pytest.mark.parametrize("side", [10_000, 20_000])
def test_image_bomb_is_one_warning(run: Run, photos: Path, side: int) -> None:
    Image.new("1", (side, side)).save(photos / "day/cat/bomb.png")
    outcome = run("data", photos)
    assert outcome.code == 0
    (line,) = outcome.err.splitlines()
    assert line.startswith("warning: 1 image cannot be read: 'day/cat/bomb.png': more than")


def test_names_are_shown_as_they_are(run: Run, photos: Path, write_image: WriteImage) -> None:
    name = "[red] :dog:  straße 猫"
    write_image(photos / name / "cat/1.png")
    (photos / name / "cat/:dog:.png").touch()
    outcome = run("data", photos)
    assert name in outcome.out
    assert f"domain {name!r} has" in outcome.err
    assert f"{name}/cat/:dog:.png" in outcome.err
    assert name in run("data", photos, "--json").document["domains"]


@pytest.mark.skipif(sys.platform == "win32", reason="such names are not allowed")
def test_control_characters_in_names_are_escaped(
    run: Run, photos: Path, write_image: WriteImage
) -> None:
    names = ("a\x1b[31mb", "x\u202ey", "two\nlines")
    for name in names:
        write_image(photos / name / "cat/1.png")
        (photos / name / "cat/2.png").touch()
    outcome = run("data", photos)
    for name in names:
        assert name not in outcome.out + outcome.err
        escaped = name.encode("unicode_escape").decode()
        assert escaped in outcome.out
        assert escaped in outcome.err
    assert not set("\x1b\u202e") & set(outcome.out + outcome.err)
    assert set(names) < set(run("data", photos, "--json").document["domains"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("path,domain\na,b\n", "has no column 'label'"),
        ("path,domain,label\n", "has no rows"),
        ("path,domain,label\n,day,cat\n", "line 2: no path in ',day,cat'"),
        ("path,domain,label\n../x.png,day,cat\n", ": '../x.png'"),
        ("path,domain,label\nx.png,day,cat\n", ": 'x.png'"),
        ('path,domain,label\n"x\ny.png",day,cat\n', r": 'x\ny.png'"),
        (b"path,domain,label\n\xff,day,cat\n", "not UTF-8"),
    ],
)
def test_bad_tables_are_one_line(run: Run, tmp_path: Path, text: str | bytes, words: str) -> None:
    table = tmp_path / "table.csv"
    table.write_bytes(text.encode() if isinstance(text, str) else text)
    complaint = run("data", table).complaint
    assert words in complaint
    assert "table.csv" in complaint


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes only on Linux")
def test_name_that_is_no_text(run: Run, photos: Path) -> None:
    shutil.copy(photos / "day/cat/1.png", photos / "day/cat" / os.fsdecode(b"caf\xe9.png"))
    assert r"b'caf\xe9.png'" in run("data", photos).complaint
    odd_root = photos.rename(photos.parent / os.fsdecode(b"caf\xe9"))
    (odd_root / "day/cat" / os.fsdecode(b"caf\xe9.png")).unlink()
    assert run("data", odd_root, "--json").document["images"] == 8


@pytest.fixture
def many_classes(photos: Path, write_image: WriteImage) -> Path:
    for n in range(28):
        write_image(photos / "day" / f"class_{n:02d}/1.png")
    write_image(photos / "day/class_27/2.png")
    return photos


def test_counts_of_many_classes_are_abbreviated(run: Run, many_classes: Path) -> None:
    outcome = run("data", many_classes, "--quick")
    cells = [line.split() for line in outcome.out.splitlines()]
    assert ["cat", "2", "2"] in cells  # the largest
    assert ["class_27", "2", "0"] in cells
    assert ["class_26", "1", "0"] in cells  # the last of the smallest
    assert ["…", "10", "more", "…", "…"] in cells
    assert ["all", "33", "4"] in cells
    assert "oodzoo data --counts shows the images of all 30 classes." in outcome.out
    assert outcome.out.count("class_") == 18
    full = run("data", many_classes, "--quick", "--counts").out
    assert full.count("class_") == 28
    assert "--counts" not in full


def test_columns_of_other_names(run: Run, photos: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [f"{s.path},{s.domain},{s.label}" for s in oodzoo.ImageDomains(photos)]
    table.write_text("\n".join(["file,site,y", *rows]))
    columns = "path=file,domain=site,label=y"
    document = run("data", table, "--root", photos, "--columns", columns, "--json").document
    assert document["fingerprint"] == oodzoo.ImageDomains(photos).fingerprint


def test_remote_images_are_counted_in_bytes_before_they_are_read(
    run: Run, photos: Path, s3: Bucket
) -> None:
    url = s3.upload(photos, "photos")
    n_bytes = sum(image.stat().st_size for image in photos.rglob("*.png"))
    quick = run("data", url, "--quick", "--json")
    assert (quick.document["total"]["n_bytes"], quick.err) == (n_bytes, "")
    outcome = run("data", url)
    assert outcome.err == f"Reading 8 images ({n_bytes} B) from {url!r}\n"
    assert outcome.out == run("data", photos).out


def test_remote_image_that_is_refused_is_one_warning(run: Run, photos: Path, s3: Bucket) -> None:
    url = s3.upload(photos, "photos")
    s3.proxy.refuse(r"^GET .*night/cat/2\.png")
    outcome = run("data", url, "--json")
    assert list(outcome.document["unreadable"]) == ["night/cat/2.png"]
    assert outcome.document["fingerprint"] is None
    (warning,) = outcome.document["warnings"]
    assert warning["message"].startswith("1 image cannot be read: 'night/cat/2.png': ")


# --- numbers and several labels ---------------------------------------------------------------


def labelled_table(photos: Path, header: str, labels: list[str]) -> Path:
    """A table of eight images in the folder of photos."""
    samples = oodzoo.ImageDomains(photos).samples
    rows = [f"{s.path},{s.domain},{label}" for s, label in zip(samples, labels, strict=True)]
    table = photos / "table.csv"
    table.write_text("\n".join([f"path,domain,{header}", *rows]))
    return table


def test_numbers(run: Run, photos: Path) -> None:
    table = labelled_table(photos, "age,height", [f"{20.5 + n},{n / 8}" for n in range(8)])
    outcome = run("data", table, "--columns", "label=age+height")
    assert outcome.code == 0
    assert "8 images, 2 domains, 2 numbers to predict: 'age', 'height'" in outcome.out
    assert "22 ± 1.12" in outcome.out
    assert "ranges of numbers hardly overlap: 'age' is 20.5 to 23.5 in 'day'" in outcome.err
    document = run("data", table, "--columns", "label=age", "--json").document
    assert (document["task"], document["classes"]) == ("regression", ["age"])
    assert document["total"]["numbers"]["age"]["largest"] == 27.5
    assert "'hight'" in run("data", table, "--columns", "label=age+hight").complaint


def test_several_labels(run: Run, photos: Path) -> None:
    table = labelled_table(photos, "label", ["cat|dog", "dog", "", "cat", "dog", "", "dog", ""])
    assert "say --task multilabel" in run("data", table).complaint
    outcome = run("data", table, "--task", "multilabel")
    assert "8 images, 2 domains, 2 labels" in outcome.out
    cells = [line.split() for line in outcome.out.splitlines()]
    for row in (["label", "day", "night"], ["cat", "2", "0"], ["dog", "2", "2"]):
        assert row in cells
    assert "domain 'night' has no images with the label 'cat'" in outcome.err
    assert "no label in" in run("data", table, "--task", "regression").complaint
