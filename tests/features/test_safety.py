"""Stores survive odd names, damage and interruptions.

Behaviour of extraction, store, check and command together, through the public functions.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oodzoo
from oodzoo.demo import write_digits
from oodzoo.features.checking import check_store
from oodzoo.zoo.callable import model_from_callable
from oodzoo.zoo.model import Model
from oodzoo.zoo.preprocessing import square


def mean_colour(name: str) -> Model:
    shape = square(8, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))

    def features(batch: Any) -> Any:
        return batch.mean(axis=(2, 3))

    return model_from_callable(features, name=name, preprocessing=shape, version="1")


@pytest.fixture
def digits(tmp_path: Path) -> oodzoo.ImageDomains:
    return oodzoo.ImageDomains(write_digits(tmp_path / "digits")).sample(120)


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "x" * 300, "manifest.json"])
def test_no_name_leads_out_of_the_store(
    digits: oodzoo.ImageDomains, tmp_path: Path, name: str
) -> None:
    before = set(tmp_path.iterdir())
    with pytest.raises(oodzoo.InputError, match="no model could be used"):
        oodzoo.extract(digits, [mean_colour(name)], tmp_path / "store")
    assert set(tmp_path.iterdir()) - before <= {tmp_path / "store"}


def test_a_lost_index_is_no_reason_to_guess(digits: oodzoo.ImageDomains, tmp_path: Path) -> None:
    oodzoo.extract(digits, [mean_colour("a")], tmp_path / "store")
    (tmp_path / "store/images.json").unlink()
    with pytest.raises(oodzoo.InputError, match=r"has no images\.json"):
        oodzoo.extract(digits, [mean_colour("a")], tmp_path / "store")


def test_altered_labels_are_found(digits: oodzoo.ImageDomains, tmp_path: Path) -> None:
    store = oodzoo.extract(digits, [mean_colour("a")], tmp_path / "store")
    path = store.path / "images.json"
    index = json.loads(path.read_text())
    index["domains"][0]["label"].reverse()
    path.write_text(json.dumps(index))
    assert [damage.path for damage in check_store(store.path).damage] == ["images.json"]
    check_store(store.path, repair=True)
    assert path.exists()  # the next extraction knows the labels and writes them again
    oodzoo.extract(digits, [mean_colour("a")], store.path)
    assert check_store(store.path).damage == ()


def test_a_damaged_side_file_does_no_harm(digits: oodzoo.ImageDomains, tmp_path: Path) -> None:
    store = oodzoo.extract(digits, [mean_colour("a")], tmp_path / "store")
    assert store.milliseconds_per_image("a") is not None
    (store.path / "local.json").write_text("{not json")
    assert oodzoo.FeatureStore(store.path).milliseconds_per_image("a") is None
    assert oodzoo.rank(store).best == "a"
    oodzoo.extract(digits, [mean_colour("b")], store.path)


@pytest.mark.parametrize("change", [{"models": "x"}, {"data": {"images": 5}}, {"data": 7}])
def test_a_manifest_of_other_content_gets_one_line(
    digits: oodzoo.ImageDomains, tmp_path: Path, change: dict[str, Any]
) -> None:
    store = oodzoo.extract(digits, [mean_colour("a")], tmp_path / "store")
    path = store.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(oodzoo.InputError, match="is damaged"):
        oodzoo.extract(digits, [mean_colour("a")], store.path)


def test_a_small_addition_does_not_change_the_timing_much(tmp_path: Path) -> None:
    root = write_digits(tmp_path / "digits")
    data = oodzoo.ImageDomains(root)
    store = oodzoo.extract(data.sample(600), [mean_colour("a")], tmp_path / "store")
    facts = json.loads((store.path / "local.json").read_text())["models"]["a"]
    oodzoo.extract(data.sample(620), [mean_colour("a")], store.path)
    later = json.loads((store.path / "local.json").read_text())["models"]["a"]
    assert later["images"] == facts["images"] + 20
    assert later["seconds"] >= facts["seconds"]


@pytest.mark.skipif(os.name == "nt", reason="signals are other on Windows")
def test_ctrl_c_says_one_line_and_loses_nothing(tmp_path: Path) -> None:
    root = write_digits(tmp_path / "digits")
    # Tests may run where SIGINT is ignored, as in a background job of a shell.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from oodzoo.cli import main; main()"
    command = [sys.executable, "-c", program, "extract", str(root), "--zoo", "demo"]
    command += ["--store", str(tmp_path / "store"), "--quiet"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("store/*/*/*.npy")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 130
    lines = [line for line in messages.splitlines() if line.strip()]
    assert len(lines) == 1
    assert "interrupted" in lines[0]
    assert not list((tmp_path / "store").rglob(".tmp-*"))
    for shard in (tmp_path / "store").rglob("*.npy"):
        assert np.isfinite(np.load(shard)).all()
