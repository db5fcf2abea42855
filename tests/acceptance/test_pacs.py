"""Real networks on real images, from the command line.

Run by `make acceptance` (all networks) and `.ci/run` (six small ones); the images and networks
cannot be part of the project, so everything here is skipped where they are absent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("ZOOD_SHARED", "../shared")).resolve()
DATA = SHARED / "data" / "pacs_mini"
ZOO = SHARED / "zoo" / "zoo.toml"
SMALL = (
    "doodlenet_quickdraw",
    "mobilenet_v1_025_128_imagenet",
    "mobilenet_v1_025_96_vww",
    "mobilenet_v1_050_160_imagenet",
    "pplcnet_doc_orientation",
    "resnet20_cifar10",
)

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"there is no {DATA.name} beside us")


def zood(*arguments: str | Path) -> Any:
    """The JSON document of a command that ends well."""
    command = [str(Path(sys.executable).parent / "zood"), *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All networks, or a zoo file of six small ones."""
    if os.environ.get("ZOOD_NETWORKS", "small") == "all":
        return ZOO
    tables = ZOO.read_text(encoding="utf-8").split("[[model]]")[1:]
    chosen = [t for t in tables if any(f'name = "{name}"' in t for name in SMALL)]
    path = tmp_path_factory.mktemp("zoo") / "six.toml"
    text = "".join(f"[[model]]{table}" for table in chosen)
    path.write_text(text.replace('"onnx/', f'"onnx/{ZOO.parent.as_posix()}/'), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def store(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "store"
    document = zood("extract", DATA, "--zoo", zoo, "--store", path)
    n_models = zoo.read_text(encoding="utf-8").count("[[model]]")
    assert len(document["models"]) == n_models
    assert not document["failed"]
    assert document["images"] == document["decoded"] == 1400
    return path


def test_data_counts() -> None:
    document = zood("data", DATA)
    assert len(document["domains"]) == 4
    assert len(document["classes"]) == 7
    assert {n for row in document["counts"].values() for n in row.values()} == {50}
    assert document["warnings"] == []


def test_a_second_extraction_has_nothing_to_do(zoo: Path, store: Path) -> None:
    document = zood("extract", DATA, "--zoo", zoo, "--store", store)
    assert document["decoded"] == document["shards_written"] == 0


def test_the_store_is_sound(store: Path) -> None:
    document = zood("store", "check", store)
    assert document["files"] > 0
    assert document["damaged"] == document["unfinished"] == []
