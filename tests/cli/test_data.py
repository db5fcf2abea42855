"""`oodzoo data`: documents, tables that are wrong, names that are no text, images at URLs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.s3 import Bucket

import oodzoo


def test_json_document(run: Run, photos: Path) -> None:
    document = run("data", photos, "--json").document
    assert document["images"] == 8
    assert document["domains"] == ["day", "night"]
    assert document["classes"] == ["cat", "dog"]
    assert document["counts"]["night"] == {"cat": 2, "dog": 2}
    assert document["fingerprint"] == oodzoo.ImageDomains(photos).fingerprint
    assert document["warnings"] == []
    rows = [f"{s.path},{s.domain},{s.label}" for s in oodzoo.ImageDomains(photos)]
    (photos / "table.csv").write_text("\n".join(["file,site,y", *rows]))
    columns = ("--columns", "path=file,domain=site,label=y", "--json")
    table = run("data", photos / "table.csv", *columns).document
    assert table["fingerprint"] == document["fingerprint"]
    (photos / "day/cat/empty.png").touch()
    quick = run("data", photos, "--quick", "--json")
    assert (quick.code, quick.err) == (0, "")
    assert (quick.document["images"], quick.document["fingerprint"]) == (9, None)


def test_warnings_name_the_images(run: Run, photos: Path) -> None:
    (photos / "day/cat/broken.JPG").write_text("this is no picture")
    shutil.copy(photos / "day/dog/1.png", photos / "night/dog/copy.png")
    outcome = run("data", photos, "--json")
    warnings = outcome.document["warnings"]
    assert {w["kind"]: w["paths"] for w in warnings} == {
        "leak": ["day/dog/1.png", "night/dog/copy.png"],
        "unreadable": ["day/cat/broken.JPG"],
    }
    lines = outcome.err.splitlines()
    assert lines == [f"warning: {w['message']}; {w['advice']}" for w in warnings]


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes only on Linux")
def test_name_that_is_no_text(run: Run, photos: Path) -> None:
    shutil.copy(photos / "day/cat/1.png", photos / "day/cat" / os.fsdecode(b"caf\xe9.png"))
    assert r"b'caf\xe9.png'" in run("data", photos).complaint
    odd_root = photos.rename(photos.parent / os.fsdecode(b"caf\xe9"))
    (odd_root / "day/cat" / os.fsdecode(b"caf\xe9.png")).unlink()
    assert run("data", odd_root, "--json").document["images"] == 8


def test_images_at_a_url(run: Run, photos: Path, s3: Bucket) -> None:
    """They are counted in bytes before they are read; one that is refused is a warning."""
    url = s3.upload(photos, "photos")
    n_bytes = sum(image.stat().st_size for image in photos.rglob("*.png"))
    quick = run("data", url, "--quick", "--json")
    assert (quick.document["total"]["n_bytes"], quick.err) == (n_bytes, "")
    outcome = run("data", url)
    assert outcome.err == f"Reading 8 images ({n_bytes} B) from {url!r}\n"
    assert outcome.out == run("data", photos).out
    s3.upload(photos, "others")
    s3.proxy.refuse(r"^GET .*night/cat/2\.png")
    refused = run("data", f"{s3.url}/others", "--json").document
    assert list(refused["unreadable"]) == ["night/cat/2.png"]
    assert refused["fingerprint"] is None
    (warning,) = refused["warnings"]
    assert warning["message"].startswith("1 image cannot be read: 'night/cat/2.png': ")
