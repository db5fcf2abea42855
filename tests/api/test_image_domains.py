"""`ImageDomains`: fingerprint, checks, and the problems that are found."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from PIL import Image

from oodzoo import ImageDomains


def test_fingerprint_is_that_of_its_definition() -> None:
    contents, domains = [bytes([n]) for n in range(4)], ["day", "day", "näht", "näht"]
    data = ImageDomains(contents, labels=[["ä"], ["b"], [], ["b"]], domains=domains)
    lines = [json.dumps(["multilabel", "b", "ä"])]
    for sample in data:
        digest = hashlib.sha256(contents[int(sample.path)]).hexdigest()
        lines.append(json.dumps([*sample, digest]))
    expected = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    assert data.fingerprint == expected


def test_unreadable_images_are_named_with_their_reasons(photos: Path) -> None:
    folder = photos / "day/cat"
    for name in ("truncated.jpg", "truncated.png"):
        Image.effect_noise((64, 64), 80).convert("RGB").save(folder / name)
        (folder / name).write_bytes((folder / name).read_bytes()[:-400])
    (folder / "empty.jpg").touch()
    (folder / "text.jpg").write_text("this is no picture")
    Image.new("F", (2, 2)).save(folder / "float.tiff")
    (folder / "dangling.png").symlink_to("nowhere.png")
    os.mkfifo(folder / "pipe.png")
    unread = {
        "day/cat/dangling.png": "No such file or directory",
        "day/cat/pipe.png": "not a regular file",
    }
    names = ("empty.jpg", "text.jpg", "truncated.jpg", "truncated.png", "float.tiff")
    bad = sorted([*(f"day/cat/{name}" for name in names), *unread])
    data = ImageDomains(photos)
    assert data.summary(quick=True).issues == ()  # which opens no image
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


def test_check_reads_the_files_again_once(photos: Path) -> None:
    data = ImageDomains(photos)
    before, fingerprint = data.digests, data.fingerprint
    (photos / "day/cat/1.png").unlink()
    assert (data.digests, data.unreadable) == (before, {})  # read once
    data.check()
    assert data.digests == (None, *before[1:])
    assert data.unreadable == {"day/cat/1.png": "No such file or directory"}
    damaged = data.fingerprint
    shutil.copy(photos / "day/cat/2.png", photos / "day/cat/1.png")
    calls = []

    def progress(done: int, total: int) -> None:
        calls.append((done, total))
        shutil.rmtree(photos)

    quick = data.summary(quick=True)
    data.check(progress)
    assert calls == [(8, 8)]  # one call, after all images
    assert data.unreadable == {}
    assert None not in data.digests
    assert len({fingerprint, damaged, data.fingerprint}) == 3
    assert data.summary(quick=True) == quick
    assert data._repr_html_() == quick._repr_html_()
    assert (quick.unreadable, quick.total.n_bytes, quick.total.images) == (None, None, 8)
