"""A predictor as a document and arrays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from oodzoo import InputError
from oodzoo.predictor.document import (
    GAUSSIAN,
    HEAD,
    parse_document,
    to_document,
    to_parts,
    to_tensors,
)
from oodzoo.predictor.folder import read_folder
from oodzoo.store.documents import unsealed

NAMES = {HEAD: "the head", GAUSSIAN: "the Gaussian"}


def test_document_and_arrays_are_those_of_the_folder(saved: Path) -> None:
    parts = read_folder(saved)
    written = unsealed(json.loads((saved / "predictor.json").read_text()), "the predictor")
    document = parse_document(written, "the predictor")
    made = to_document(parts, document.models, document.files)
    assert json.loads(json.dumps(made)) == written
    again = to_parts(document, parts.models, to_tensors(parts), NAMES)  # type: ignore[arg-type]
    assert again.provenance == parts.provenance
    assert again.models == parts.models
    np.testing.assert_array_equal(again.head.weights, parts.head.weights)


def test_arrays_that_do_not_fit(saved: Path) -> None:
    parts = read_folder(saved)
    document = parse_document(json.loads((saved / "predictor.json").read_text()), "the predictor")
    models = [entry.model(saved) for entry in document.models]
    tensors = to_tensors(parts)
    tensors[GAUSSIAN] = {name: array[:-1] for name, array in tensors[GAUSSIAN].items()}
    with pytest.raises(InputError, match="the Gaussian is damaged: the shape of"):
        to_parts(document, models, tensors, NAMES)
    tensors = to_tensors(parts)
    tensors[HEAD]["bias"] = np.full(3, np.nan)
    with pytest.raises(InputError, match="the head is damaged: 'bias' contains NaN; fit again"):
        to_parts(document, models, tensors, NAMES)


def test_no_models(saved: Path) -> None:
    content = json.loads((saved / "predictor.json").read_text())
    with pytest.raises(InputError, match="must have either models or models that only have"):
        parse_document(content | {"models": []}, "the predictor")
