"""Evaluation and fitting on two nodes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from tests.cluster.conftest import Command
from tests.raylets import Node

import oodzoo


def test_an_evaluation_is_that_of_one_process(
    store: oodzoo.FeatureStore, tmp_path: Path, join: Callable[..., Node], command: Command
) -> None:
    join()
    results = []
    for ray in (False, True):
        copy = tmp_path / f"ray={ray}" / "store"
        shutil.copytree(store.path, copy)
        log = tmp_path / f"log{ray}"
        done = command("evaluate", copy, "--json", "--log-file", log, ray=ray)
        assert done.code == 0, done.err
        assert ("on 2 workers (ray)" in log.read_text()) == ray
        results.append(done.document)
    assert _differences(*results) == []


def test_a_fit_is_that_of_one_process(
    store: oodzoo.FeatureStore, tmp_path: Path, join: Callable[..., Node], command: Command
) -> None:
    join()
    heads = []
    for ray in (False, True):
        copy, out = tmp_path / f"store{ray}", tmp_path / f"predictor{ray}"
        shutil.copytree(store.path, copy)
        done = command("fit", copy, "--out", out, ray=ray)
        assert done.code == 0, done.err
        heads.append(load_file(out / "head.safetensors"))
    assert heads[0].keys() == heads[1].keys()
    for name, expected in heads[0].items():
        np.testing.assert_allclose(heads[1][name], expected, rtol=0, atol=1e-10)


def _differences(expected: Any, found: Any, where: str = "") -> list[str]:
    """List where two documents differ, numbers by more than 1e-10."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        pairs = [(str(key), expected[key], found[key]) for key in expected]
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = [(str(n), a, b) for n, (a, b) in enumerate(zip(expected, found, strict=True))]
    elif isinstance(expected, float) and isinstance(found, float):
        near = math.isclose(expected, found, rel_tol=1e-10, abs_tol=1e-10)
        return [] if near else [f"{where}: {expected} and {found}"]
    else:
        return [] if expected == found else [f"{where}: {expected!r} and {found!r}"]
    return [line for key, a, b in pairs for line in _differences(a, b, f"{where}/{key}")]
