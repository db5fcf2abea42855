"""Decoding the images of a shard, in every size, in the background."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oodzoo._io import file_digest
from oodzoo.data.files import LocalFile, TextFile, UnreadableImageError
from oodzoo.features.pixels import Decoding, HashedFile
from oodzoo.zoo.preprocessing import Geometry, square

SMALL, LARGE = (square(side, (0.5,) * 3, (0.5,) * 3).geometry for side in (4, 6))


def write(folder: Path, n: int) -> dict[int, Path]:
    """Images of one colour each, by position; every third position is left out."""
    files: dict[int, Path] = {}
    for position in range(n):
        if position % 3 != 2:
            files[position] = folder / f"{position}.png"
            Image.new("RGB", (8, 8), (position, 0, 0)).save(folder / f"{position}.png")
    return files


def local(paths: dict[int, Path]) -> dict[int, LocalFile]:
    return {position: LocalFile(str(path)) for position, path in paths.items()}


def reds(pixels: np.ndarray) -> list[int]:
    return [int(image[0, 0, 0]) for image in pixels]


def test_every_image_in_every_size(tmp_path: Path) -> None:
    files = write(tmp_path, 11)
    chunk = Decoding(local(files), [SMALL, LARGE]).result()
    assert chunk.positions == list(files)
    assert chunk.problems == {}
    for geometry, side in ((SMALL, 4), (LARGE, 6)):
        assert chunk.pixels[geometry].shape == (len(files), side, side, 3)
        assert reds(chunk.pixels[geometry]) == list(files)


def test_unreadable_images_have_no_row(tmp_path: Path) -> None:
    files = write(tmp_path, 11)
    (tmp_path / "3.png").write_bytes(b"")
    chunk = Decoding(local(files), [SMALL]).result()
    ((position, error),) = chunk.problems.items()
    assert (position, str(error)) == (3, "the file is empty (0 bytes)")
    assert not error.transient
    assert chunk.positions == [position for position in files if position != 3]
    assert reds(chunk.pixels[SMALL]) == chunk.positions


def test_files_that_are_not_as_they_were_listed(tmp_path: Path) -> None:
    """Whether they can be decoded or not: nothing is known of the image that was listed."""
    paths = list(write(tmp_path, 11).values())
    files = {
        at: HashedFile(LocalFile(str(path)), file_digest(path)) for at, path in enumerate(paths)
    }
    paths[1].unlink()
    paths[2].write_bytes(paths[3].read_bytes())
    paths[4].write_bytes(b"")
    chunk = Decoding(files, [SMALL]).result()
    assert {position: str(error) for position, error in chunk.problems.items()} == {
        1: "No such file or directory",
        2: "the file has changed since it was listed",
        4: "the file has changed since it was listed",
    }
    assert all(error.transient for error in chunk.problems.values())
    assert chunk.positions == [0, 3, 5, 6, 7]
    assert reds(chunk.pixels[SMALL]) == [int(paths[at].stem) for at in chunk.positions]


def test_images_in_memory(tmp_path: Path) -> None:
    image = Image.new("L", (8, 8), 7)
    chunk = Decoding({5: image}, [SMALL]).result()
    assert (chunk.positions, reds(chunk.pixels[SMALL])) == ([5], [7])


def test_no_images() -> None:
    geometry: Geometry = SMALL
    chunk = Decoding({}, [geometry]).result()
    assert (chunk.positions, chunk.pixels[geometry].shape) == ([], (0, 4, 4, 3))


def test_cancel(tmp_path: Path) -> None:
    Decoding(local(write(tmp_path, 11)), [SMALL]).cancel()


def test_an_image_that_cannot_be_resized_is_its_own_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: dict[int, Path] = {}
    for at, width in enumerate((8, 9, 10)):
        files[at] = tmp_path / f"{at}.png"
        Image.new("RGB", (width, 8), "red").save(files[at])

    def apply(self: Geometry, image: Image.Image) -> Any:
        if image.width == 9:
            raise UnreadableImageError("no memory", transient=True)
        return np.zeros((*self.crop, 3), np.uint8)

    monkeypatch.setattr(Geometry, "apply", apply)
    chunk = Decoding(local(files), [SMALL]).result()
    assert chunk.positions == [0, 2]
    assert {at: str(error) for at, error in chunk.problems.items()} == {1: "no memory"}


def test_texts() -> None:
    files = {at: TextFile(f"text {at}", f"row {at}") for at in (0, 1, 3)}
    hashed = {at: HashedFile(f, hashlib.sha256(f.read()).hexdigest()) for at, f in files.items()}
    hashed[1] = HashedFile(files[1], "0" * 64)
    chunk = Decoding(hashed, [None]).result()
    assert chunk.positions == [0, 3]
    assert chunk.pixels == {None: ["text 0", "text 3"]}
    assert str(chunk.problems[1]) == "the file has changed since it was listed"
    image = Decoding({0: Image.new("RGB", (4, 4))}, [None]).result()
    assert str(image.problems[0]) == "an image, not a text"
