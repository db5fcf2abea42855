"""Labelled samples: what is opened, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oodzoo
from oodzoo.assessment.samples import DataOptions, open_samples
from oodzoo.errors import InputError
from oodzoo.task import Task


def test_images_of_a_folder_are_not_read(predictor: oodzoo.Predictor, new_digits: Path) -> None:
    found = open_samples(predictor, str(new_digits), DataOptions())
    assert (found.noun, len(found.samples), found.task) == ("image", 36, Task())
    assert {sample.domain for sample in found.samples} == {"pencil", "tilted"}
    assert set(found.files) == {sample.path for sample in found.samples}
    assert [str(file) for file in found.inputs_at([3, 1])] == [
        str(new_digits / found.samples[at].path) for at in (3, 1)
    ]


def test_features_are_taken_for_images_too(
    predictor: oodzoo.Predictor, new_digits: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    features: dict[str, Any] = {
        model.name: rng.normal(size=(4, model.feature_dim)) for model in predictor.models
    }
    found = open_samples(predictor, features, DataOptions(labels=["0", "1", "0", "2"]))
    assert (found.noun, found.files) == ("sample", {})
    assert [sample.label for sample in found.samples] == ["0", "1", "0", "2"]
    first = next(iter(features))
    np.testing.assert_array_equal(found.inputs_at([2])[first], features[first][[2]].astype("f4"))
    file = tmp_path / "some.npz"
    np.savez(
        file, **features, labels=[0, 1, 0, 2], domains=["x", "x", "y", "y"], paths=list("abcd")
    )
    read = open_samples(predictor, file, DataOptions())
    assert [tuple(sample)[:3] for sample in read.samples] == [
        ("a", "x", "0"), ("b", "x", "1"), ("c", "y", "0"), ("d", "y", "2")
    ]  # fmt: skip


def test_a_predictor_of_features_takes_no_images(new_digits: Path, tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 2
    predictor = oodzoo.fit({"m": X}, y, np.arange(30) % 3, choose="single")
    with pytest.raises(InputError, match=r"have features only, but .* has images"):
        open_samples(predictor, oodzoo.ImageDomains(new_digits), DataOptions())
    table = tmp_path / "rows.csv"
    table.write_text(
        "a,b,label\n" + "\n".join(f"{r[0]},{r[1]},{c}" for r, c in zip(X, y, strict=True))
    )
    found = open_samples(predictor, table, DataOptions())
    np.testing.assert_allclose(found.inputs["m"], X, rtol=1e-6)
    assert [sample.label for sample in found.samples] == [str(c) for c in y]
    with pytest.raises(InputError, match="root= is not used with features"):
        open_samples(predictor, table, DataOptions(root=tmp_path))


def test_a_matrix_is_in_the_order_of_the_predictor() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 3)), rng.integers(0, 2, (40, 2))
    predictor = oodzoo.fit({"m": X}, Y, np.arange(40) % 2, task="multilabel", choose="single")
    found = open_samples(predictor, X, DataOptions(labels=Y))
    assert found.task == Task("multilabel", ("0", "1"))
    np.testing.assert_array_equal(found.task.decode([s.label for s in found.samples]), Y)
