"""Which source a path, a URL or an object is."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest
from tests.fixtures import draw_digits
from tests.s3 import Bucket

from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import InputError


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> ImageDomains:
    return ImageDomains(draw_digits(tmp_path_factory.mktemp("digits"), 2))


@pytest.fixture
def tars(digits: ImageDomains, tmp_path: Path) -> Path:
    """One tar for each domain, and a note."""
    (tmp_path / "tars").mkdir()
    for domain in digits.domains:
        with tarfile.open(tmp_path / "tars" / f"{domain}.tar", "w") as archive:
            archive.add(Path(digits.name) / domain, arcname=domain)
    (tmp_path / "tars" / "readme.md").write_text("one for each domain")
    return tmp_path / "tars"


def test_a_folder_of_tars(digits: ImageDomains, tars: Path) -> None:
    assert set(ImageDomains(tars).digests) == set(digits.digests)


def test_a_remote_folder_of_tars(digits: ImageDomains, tars: Path, s3: Bucket) -> None:
    assert set(ImageDomains(s3.upload(tars, "tars")).digests) == set(digits.digests)


def test_images_beside_a_tar_are_a_folder(digits: ImageDomains, tars: Path, s3: Bucket) -> None:
    """An archive of the images often lies beside them."""
    shutil.copytree(digits.name, tars, dirs_exist_ok=True)
    for source in (tars, s3.upload(tars, "both")):
        assert ImageDomains(source).samples == digits.samples


def test_text_and_path(digits: ImageDomains) -> None:
    assert ImageDomains(Path(digits.name)).samples == digits.samples
    assert ImageDomains(f"file://{digits.name}").samples == digits.samples


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere", "no such file or folder: 'nowhere'; give a folder of domains, a table"),
        ("notes.txt", "'notes.txt' is a file; give a folder root/domain/class/image, a table"),
        ("photos-{0..3}.tar", "no such file: 'photos-0.tar', which 'photos-{0..3}.tar' means"),
        ("", "DATA is empty; give a folder, a file or a URL"),
        (3, "cannot read images from an object of type int; give a path, a URL"),
        (Path("s3://bucket/photos"), "s3:/bucket/photos"),
        ("nope://bucket/photos", "nope"),
        ("https://server/photos", "a web server gives no list of files; give the URLs of files"),
        ("hf://ada/photos", "does not name a data set; did you mean hf://datasets/ada/photos?"),
    ],
)
def test_what_is_no_source(
    source: object, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(InputError) as caught:
        ImageDomains(source)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_must_be_a_dict(digits: ImageDomains) -> None:
    with pytest.raises(InputError, match="columns= must be a dict"):
        ImageDomains(digits.name, columns="label=y")  # type: ignore[arg-type]


def test_the_name_of_a_column_is_not_that_of_all_images() -> None:
    images = [b"1", b"2", b"3", b"4"]
    with pytest.raises(InputError, match="domains= is one string, 'site'"):
        ImageDomains(images, labels=[0, 1, 0, 1], domains="site")


def test_options_that_are_not_used(digits: ImageDomains, tars: Path) -> None:
    with pytest.raises(InputError, match="columns= is not used with"):
        ImageDomains(digits.name, columns={"label": "y"})
    with pytest.raises(InputError, match="root= is not used with"):
        ImageDomains(tars, root=tars)
