"""What a predictor takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oodzoo import InputError
from oodzoo.predictor import inputs
from oodzoo.predictor.images import FeatureChunk, image_files
from oodzoo.predictor.inputs import as_list, keep_first


def test_the_first_chunks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = FeatureChunk([None] * 5, list(range(5)), np.zeros((5, 10), np.float32), {})
    monkeypatch.setattr(inputs, "KEPT_BYTES", 2 * chunk.features.nbytes)
    kept: list[FeatureChunk] = []
    assert len(list(keep_first([chunk] * 4, kept))) == 4
    assert len(kept) == 2


def test_one_input_is_a_list_of_one(photos: Path, unseen: list[Path]) -> None:
    assert as_list(["a.png"], "image") == ["a.png"]
    assert as_list(str(photos), "image") == image_files([photos])
    assert as_list(unseen[0], "image") == image_files([unseen[0]])
    image = np.zeros((8, 8, 3), np.uint8)
    for one in (image, image[..., 0], Image.fromarray(image)):
        assert as_list(one, "image") == [one]
    assert as_list(image[None], "image").shape == (1, 8, 8, 3)  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"no such file or folder: 'a.png'"):
        as_list(Path("a.png"), "image")
    with pytest.raises(InputError, match=r"^texts must be a list, got 'fine'; put it in a list$"):
        as_list("fine", "text")
