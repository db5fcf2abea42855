"""From images to features, and listing image files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.s3 import Bucket

import oodzoo
from oodzoo import InputError
from oodzoo.data.files import LocalFile
from oodzoo.predictor.images import (
    compute_features,
    image_files,
    iter_features,
    preprocess_images,
)
from oodzoo.zoo.model import Outputs


def test_chunks_have_the_features_of_the_models(
    predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    images = unseen * 3  # more than one chunk
    models, columns = predictor.loaded(), predictor.columns
    chunks = list(iter_features(images, models, columns, 16))
    assert len(chunks) == 2
    assert [path for chunk in chunks for path in chunk.paths] == [str(path) for path in images]
    geometry = predictor.loadable_models[0].preprocessing.geometry
    expected = compute_features({geometry: preprocess_images(images, geometry)}, models, columns)
    found = np.concatenate([chunk.features for chunk in chunks])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_positions_skip_unreadable_images(
    predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    images: list[Any] = [unseen[0], bad, Image.open(unseen[1])]
    (chunk,) = iter_features(images, predictor.loaded(), predictor.columns, 16)
    assert chunk.paths == [str(unseen[0]), str(bad), None]
    assert chunk.positions == [0, 2]
    assert chunk.features.shape == (2, len(predictor.columns))
    assert chunk.problems == {1: "not an image that Pillow can identify"}
    with pytest.raises(InputError, match=r"cannot read the image .*bad.png"):
        preprocess_images(images, predictor.loadable_models[0].preprocessing.geometry)


def test_infinite_features_are_a_problem(
    predictor: oodzoo.Predictor, unseen: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = predictor.loaded()
    model = next(iter(models.values()))
    collect = model.collect

    def infinite(launched: Any) -> Outputs:
        outputs = collect(launched)
        features = outputs.features.copy()
        features[1] = np.inf
        return Outputs(features, None)

    monkeypatch.setattr(model, "collect", infinite)
    (chunk,) = iter_features(unseen[:3], models, predictor.columns, 16)
    assert chunk.positions == [0, 2]
    assert chunk.problems == {1: "a model returns NaN or infinite features for it"}


def test_files_images_and_arrays_are_equivalent(
    predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    geometry = predictor.loadable_models[0].preprocessing.geometry
    expected = preprocess_images(unseen[:5], geometry)
    images = [Image.open(path) for path in unseen[:5]]
    arrays = [np.asarray(image) for image in images]
    for given in ([str(path) for path in unseen[:5]], images, arrays):
        np.testing.assert_array_equal(preprocess_images(given, geometry), expected)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (3, "an image must be a path, a URL, a Pillow image or a uint8 array, got int '3'"),
        (np.zeros((4, 4)), r"must be uint8 .*, got float64 \(4, 4\)"),
        (np.zeros((2, 4, 4, 3), np.uint8), r"must be uint8 .*, got uint8 \(2, 4, 4, 3\)"),
    ],
)
def test_anything_else_is_rejected(predictor: oodzoo.Predictor, image: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        preprocess_images([image], predictor.loadable_models[0].preprocessing.geometry)
    with pytest.raises(InputError, match=message):
        predictor.predict([image])


def test_folders_are_walked_in_order(tmp_path: Path, write_image: Callable[[Path], Path]) -> None:
    for name in ("b/2.png", "b/1.PNG", "a/z/1.jpg", "c.png", ".hidden/1.png", "b/.2.png"):
        write_image(tmp_path / name)
    (tmp_path / "b" / "notes.txt").write_text("no image")
    found = [str(file).removeprefix(f"{tmp_path}/") for file in image_files([tmp_path])]
    assert found == ["a/z/1.jpg", "b/1.PNG", "b/2.png", "c.png"]
    notes = tmp_path / "b" / "notes.txt"
    assert image_files([notes]) == [LocalFile(str(notes))]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty' has no images"):
        image_files([tmp_path / "empty"])
    with pytest.raises(InputError, match=r"no such file or folder: .*nowhere'"):
        image_files([tmp_path, tmp_path / "nowhere"])
    with pytest.raises(InputError, match=r"got an empty path; name an image or a folder"):
        image_files([tmp_path, ""])


def test_links_that_are_ignored_are_named(
    tmp_path: Path, write_image: Callable[[Path], Path]
) -> None:
    folder = tmp_path / "photos"
    write_image(folder / "1.png")
    write_image(tmp_path / "elsewhere" / "2.png")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "loop").symlink_to(folder)
    (folder / "broken").symlink_to(tmp_path / "nowhere")
    with pytest.warns(UserWarning, match="ignored") as warned:
        found = image_files([folder])
    assert list(map(str, found)) == [f"{folder}/1.png"]
    advice = "set the variable OODZOO_FOLLOW_LINKS=1 to follow them"
    assert sorted(str(warning.message) for warning in warned) == [
        f"{str(folder)!r} has 1 link to folders outside of it, ignored: linked; {advice}",
        f"in {str(folder)!r}: 'broken' is a broken link; ignored",
        f"in {str(folder)!r}: 'loop' links to a folder above it; ignored",
    ]


def test_images_of_a_bucket(s3: Bucket, predictor: oodzoo.Predictor, unseen: list[Path]) -> None:
    """One by one or as a folder, and in order, although many are fetched at the same time."""
    for at, path in enumerate(unseen):
        s3.put(f"new/{at:03d}.png", path.read_bytes())
    s3.proxy.slow(r"^GET .*/000\.png", seconds=0.5)
    found = image_files([f"{s3.url}/new"])
    assert [str(file) for file in found] == [
        f"{s3.url}/new/{at:03d}.png" for at in range(len(unseen))
    ]
    expected = predictor.predict_proba(unseen)
    np.testing.assert_array_equal(predictor.predict_proba(found), expected)
    one = f"{s3.url}/new/001.png"
    assert image_files([one]) == found[1:2]
    np.testing.assert_allclose(predictor.predict_proba([one]), expected[1:2], rtol=1e-5)
    with pytest.raises(InputError, match=r"no such file: .s3://.*/nothing\.png"):
        predictor.predict([f"{s3.url}/nothing.png"])
    s3.put("text/readme.txt", b"text")
    with pytest.raises(InputError, match=r"text' has no images \("):
        image_files([f"{s3.url}/text"])


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_read(tmp_path: Path, write_image: Callable[[Path], Path]) -> None:
    write_image(tmp_path / "a" / "1.png")
    (tmp_path / "b").mkdir(mode=0)
    with pytest.raises(InputError, match=r"cannot read '.*/b': Permission denied"):
        image_files([tmp_path])


def test_an_error_while_listing_is_one_line(
    tmp_path: Path, write_image: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, also for root."""
    write_image(tmp_path / "a" / "1.png")
    iterdir = Path.iterdir

    def denied(path: Path) -> Any:
        if path.name == "a":
            raise PermissionError(13, "Permission denied", str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(InputError, match=r"cannot read '.*/a': Permission denied"):
        image_files([tmp_path])
