"""`oodzoo data`: documents, tables that are wrong, names that are no text, images at URLs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.s3 import Bucket


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
