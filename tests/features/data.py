"""Types of the fixtures, and changes to image files, for the tests of extraction and stores."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image

from oodzoo.extraction.outcome import Extraction
from oodzoo.store.feature_store import FeatureStore
from oodzoo.zoo import Model, ModelSpec

Extract = Callable[..., Extraction]
MakeModel = Callable[..., Model]
Run = Callable[..., Any]
Stamps = Callable[[Path], dict[str, tuple[int, int]]]
Tree = Callable[[Path], dict[str, str]]
Zoo = Callable[..., list[ModelSpec]]


def literal(spec: ModelSpec, file: Path) -> list[NDArray[Any]]:
    """Features and logits of one image, each step by hand."""
    with Image.open(file) as opened:
        image = opened.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
    mean, std = np.array(spec.mean), np.array(spec.std)
    tensor = ((np.asarray(image) / 255.0 - mean) / std).transpose(2, 0, 1)[None]
    session = onnxruntime.InferenceSession(str(spec.file), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    dtype = np.float16 if given.type == "tensor(float16)" else np.float32
    outputs = session.run([spec.features, spec.logits], {given.name: tensor.astype(dtype)})
    return [output[0] for output in outputs]


def require_same_rows(path: Path, other: Path) -> None:
    """Compare what readers get of two stores, whatever their files look like."""
    store, expected = FeatureStore(path), FeatureStore(other)
    for attribute in ("models", "domains", "classes", "skipped", "data_fingerprint"):
        assert getattr(store, attribute) == getattr(expected, attribute)
    for domain in expected.domains:
        for column in ("paths", "images", "groups"):
            assert getattr(store, column)(domain) == getattr(expected, column)(domain)
        np.testing.assert_array_equal(store.labels(domain), expected.labels(domain))
        for model in expected.models:
            for output in expected.model(model).widths:
                found, wanted = (getattr(s, output)(model, domain) for s in (store, expected))
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def spoil(path: Path) -> bytes:
    """Cut an image file in half; gives what it was."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return content


def one_of(data: Path, cell: str) -> Path:
    """The third digit of a domain and class."""
    return sorted((data / cell).glob("*.png"))[2]


def blacken(path: Path) -> None:
    Image.new("RGB", (32, 32)).save(path)


def write_table(
    data: Path, rows: Sequence[tuple[str, ...]], header: str = "path,domain,label"
) -> Path:
    """Write a CSV table next to the images."""
    table = data / "table.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return table


def dark_is_nan(batch: NDArray[np.float32]) -> Any:
    """As a model that divides by the brightness of an image: one image in the middle of a run."""
    features = batch.mean(axis=(2, 3))
    features[features.max(axis=1) <= -1] = np.nan
    return features
