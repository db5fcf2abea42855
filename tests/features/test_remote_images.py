"""Extraction from an object store: the same features as from local files, whatever fails."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.s3 import Bucket

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.listing import Sample
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
def local(made: Path) -> str:
    return content_of(oodzoo.FeatureStore(made))


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
