"""What a predictor takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oodzoo import InputError
from oodzoo.predictor import inputs
from oodzoo.predictor.images import FeatureChunk, image_files
from oodzoo.predictor.inputs import keep_first, listed_folder, require_list


def test_the_first_chunks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = FeatureChunk([None] * 5, list(range(5)), np.zeros((5, 10), np.float32), {})
    monkeypatch.setattr(inputs, "KEPT_BYTES", 2 * chunk.features.nbytes)
    kept: list[FeatureChunk] = []
    assert len(list(keep_first([chunk] * 4, kept))) == 4
    assert len(kept) == 2


def test_a_single_path_is_not_a_list() -> None:
    require_list(["a.png"], "image")
    with pytest.raises(InputError, match=r"images must be a list, got 'a.png'; .*give a folder"):
        require_list(Path("a.png"), "image")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^texts must be a list, got 'fine'; put it in a list$"):
        require_list("fine", "text")


def test_a_folder_stands_for_its_images(photos: Path) -> None:
    assert listed_folder(str(photos), "image") == image_files([photos])
    assert listed_folder(str(photos), "text") == str(photos)
    assert listed_folder("a.png", "image") == "a.png"
