"""`oodzoo import`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.conftest import Run

import oodzoo

COLUMNS: dict[str, Any] = {
    "labels": ["cat", "dog"] * 6,
    "domains": ["day"] * 5 + ["night"] * 7,
}


def test_another_model_of_the_name_is_one_line(run: Run, tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2)):
        np.savez(tmp_path / f"{name}.npz", net=np.full((12, 4), value), **COLUMNS)
    assert run("import", tmp_path / "a.npz", "--store", tmp_path / "s", "-q").code == 0
    outcome = run("import", tmp_path / "b.npz", "--store", tmp_path / "s", "-q")
    assert f"remove the old one with `oodzoo store rm {tmp_path / 's'} net`" in outcome.complaint


def test_import_of_numbers_and_of_several_labels(run: Run, tmp_path: Path) -> None:
    numbers = np.arange(24).reshape(12, 2) / 4
    names = {"label_names": ["age", "height"], "domains": COLUMNS["domains"]}
    np.savez(tmp_path / "a.npz", net=np.ones((12, 4)), labels=numbers, **names)
    document = run("import", tmp_path / "a.npz", "--store", tmp_path / "a", "--json").document
    assert (document["task"], document["classes"]) == ("regression", ["age", "height"])
    store = oodzoo.FeatureStore(tmp_path / "a")
    assert np.concatenate([store.labels(d) for d in store.domains]).tolist() == numbers.tolist()
    rows = [f"{d},{'a|b' if at % 2 else 'b'}" for at, d in enumerate(COLUMNS["domains"])]
    (tmp_path / "rows.csv").write_text("\n".join(["site,what", *rows]))
    np.save(tmp_path / "net.npy", np.ones((12, 4)))
    given = ["--table", tmp_path / "rows.csv", "--columns", "label=what,domain=site"]
    arguments = ["import", tmp_path / "net.npy", "--store", tmp_path / "b", *given]
    assert "say which with --task" in run(*arguments).complaint
    assert run(*arguments, "--task", "multilabel").out == "1 model, 12 rows, 2 domains, 2 labels\n"
    assert oodzoo.FeatureStore(tmp_path / "b").labels("day").tolist() == [[0, 1], [1, 1]] * 2 + [
        [0, 1]
    ]
    np.savez(tmp_path / "a.npz", net=np.ones((12, 4)), **COLUMNS)
    complaint = run("import", tmp_path / "a.npz", "--store", tmp_path / "b").complaint
    assert "has labels for multilabel ('a', 'b'), the import for classification" in complaint
    assert "unknown task" in run(*arguments, "--task", "labels").complaint
