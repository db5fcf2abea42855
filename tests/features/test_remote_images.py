"""Extraction from an object store: the same features as from local files, whatever fails."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.s3 import Bucket

import oodzoo
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.listing import Sample
from oodzoo.errors import InputError
from oodzoo.zoo import ModelSpec

MakeZoo = Callable[..., list[ModelSpec]]


def content_of(store: oodzoo.FeatureStore) -> str:
    """SHA-256 of all features, labels and paths."""
    total = hashlib.sha256()
    for model in store.models:
        for domain in (*store.domains, *store.unlabelled):
            total.update(store.features(model, domain).tobytes())
            total.update(repr((store.paths(domain), store.images(domain))).encode())
    return total.hexdigest()


@pytest.fixture
def local(digits: Path, zoo: MakeZoo, tmp_path: Path) -> str:
    return content_of(oodzoo.extract(digits, zoo(), tmp_path / "local", device="cpu"))


def test_equal_to_local_files(
    s3: Bucket, digits: Path, zoo: MakeZoo, tmp_path: Path, local: str
) -> None:
    url = s3.upload(digits, "digits")
    data = ImageDomains(url)
    assert data.fingerprint == ImageDomains(digits).fingerprint
    store = oodzoo.extract(data, zoo(), tmp_path / "store", device="cpu")
    assert content_of(store) == local
    n_requests = len(s3.proxy.asked(r"^GET .*\.png"))
    assert n_requests == len(data)  # hashing and decoding share what was fetched


def test_nothing_is_computed_again_from_another_source(
    s3: Bucket, digits: Path, zoo: MakeZoo, tmp_path: Path, local: str
) -> None:
    url = s3.upload(digits, "digits")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "local").rglob("*.npy")}
    store = oodzoo.extract(url, zoo(), tmp_path / "local", device="cpu")
    assert content_of(store) == local
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "local").rglob("*.npy")} == before


@pytest.mark.usefixtures("short_timeouts")
def test_requests_that_fail_stall_and_end_early(
    s3: Bucket, digits: Path, zoo: MakeZoo, tmp_path: Path, local: str
) -> None:
    url = s3.upload(digits, "digits")
    every = s3.keys()
    keys = [key for key in every if key.endswith(".png")]
    s3.proxy.fail(f"^GET .*/{keys[0]}", times=2)
    s3.proxy.stall(f"^GET .*/{keys[7]}", seconds=60)
    s3.proxy.truncate(f"^GET .*/{keys[19]}")
    s3.proxy.drop(f"^GET .*/{keys[30]}")
    assert content_of(oodzoo.extract(url, zoo(), tmp_path / "store", device="cpu")) == local


@pytest.mark.parametrize("change", ["replaced", "removed", "denied"])
def test_an_image_that_cannot_be_fetched_is_not_left_out(
    s3: Bucket, digits: Path, zoo: MakeZoo, tmp_path: Path, local: str, change: str
) -> None:
    """Rankings of fewer images would differ."""
    url = s3.upload(digits, "digits")
    data = ImageDomains(url)
    key = [key for key in s3.keys() if key.endswith(".png")][11]  # noqa: SIM118
    content = s3.get(key)
    if change == "replaced":
        s3.put(key, content[:-20] + bytes(40))
    elif change == "removed":
        s3.delete(key)
    else:
        s3.proxy.fail(f"^GET .*/{key}", status=403)
    name = key.partition("/")[2]
    with pytest.raises(InputError, match=f"^cannot fetch '{name}': '{s3.url}/{key}'") as caught:
        oodzoo.extract(data, zoo(), tmp_path / "store", device="cpu")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "store").exists()
    s3.put(key, content)
    assert content_of(oodzoo.extract(url, zoo(), tmp_path / "store", device="cpu")) == local


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_a_bucket_that_changes_while_it_is_read(
    s3: Bucket,
    digits: Path,
    zoo: MakeZoo,
    tmp_path: Path,
    local: str,
    change: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line, no half-written features, and the same command finishes when it is restored."""
    url = s3.upload(digits, "digits")
    data = ImageDomains(url)
    assert data.fingerprint
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path / "another cache"))
    every = s3.keys()
    key = next(key for key in every if key.endswith(".png"))
    content = s3.get(key)
    if change == "replaced":
        s3.put(key, content[:-20] + bytes(40))
    else:
        s3.delete(key)
    with pytest.raises(InputError, match="1 image could not be read after the data set") as caught:
        oodzoo.extract(data, zoo(), tmp_path / "store", device="cpu")
    assert key.partition("/")[2] in str(caught.value)
    assert "\n" not in str(caught.value)
    s3.put(key, content)
    assert content_of(oodzoo.extract(url, zoo(), tmp_path / "store", device="cpu")) == local


def test_an_image_that_was_not_fetched_for_a_summary_is_not_left_out(
    s3: Bucket, digits: Path, zoo: MakeZoo, tmp_path: Path
) -> None:
    url = s3.upload(digits, "digits")
    key = next(key for key in sorted(s3.keys()) if key.endswith(".png"))
    s3.proxy.refuse(f"^GET .*/{key}")
    data = ImageDomains(url)
    assert data.summary().total.unreadable == 1
    with pytest.raises(InputError, match="cannot fetch"):
        oodzoo.extract(data, zoo(), tmp_path / "store", device="cpu")
    assert not (tmp_path / "store").exists()


def test_processes_read_the_images_themselves(
    s3: Bucket, digits: Path, zoo: MakeZoo, tmp_path: Path, local: str
) -> None:
    url = s3.upload(digits, "digits")
    store = oodzoo.extract(url, zoo(), tmp_path / "store", device="cpu,cpu")
    assert content_of(store) == local


def test_images_in_memory_cannot_be_sent_to_processes(zoo: MakeZoo, tmp_path: Path) -> None:
    class Squares:
        samples = [  # noqa: RUF012
            Sample(f"{n}.ppm", f"d{n % 2}", f"c{n // 2 % 2}") for n in range(8)
        ]

        def open(self, i: int) -> bytes:
            return b"P6 1 1 255 " + bytes([i, i, i])

    with pytest.raises(InputError, match="'Squares' are Python objects, which the engine"):
        oodzoo.extract(ImageDomains(Squares()), zoo(), tmp_path / "store", device="cpu,cpu")
    store = oodzoo.extract(ImageDomains(Squares()), zoo(), tmp_path / "store", device="cpu")
    assert store.n_images == 8


def test_unlabelled_images_of_a_bucket(
    s3: Bucket, digits: Path, zoo: MakeZoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OODZOO_FOLLOW_LINKS", "1")
    domains = sorted(path.name for path in digits.iterdir())
    url = s3.upload(digits / domains[0], "new images")
    two = {name: digits / name for name in domains[1:]}
    for name, folder in two.items():
        (tmp_path / "two").mkdir(exist_ok=True)
        (tmp_path / "two" / name).symlink_to(folder)
    stores = [
        oodzoo.extract(
            tmp_path / "two", zoo(), tmp_path / str(at), device="cpu", unlabelled=[target]
        )
        for at, target in enumerate([f"web={url}", f"web={digits / domains[0]}"])
    ]
    assert stores[0].unlabelled == ("web",)
    assert content_of(stores[0]) == content_of(stores[1])
