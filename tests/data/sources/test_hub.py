"""Data sets of the Hugging Face Hub, from a server process on this machine."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from oodzoo import InputError
from oodzoo.data.sources.huggingface import HubName, parse_hub_url
from oodzoo.remote.location import Url

datasets = pytest.importorskip("datasets")

CASES = {
    "all": "hf://datasets/ada/photos",
    "split": "hf://datasets/ada/photos?split=train",
    "commit": "hf://datasets/ada/photos@0123456789abcdef0123456789abcdef01234567",
    "revision": "hf://datasets/ada/photos@v2",
    "config": "hf://datasets/ada/photos?config=large",
    "no such split": "hf://datasets/ada/photos?split=val",
    "configs": "hf://datasets/ada/sizes",
    "one config": "hf://datasets/ada/sizes?config=small",
    "unknown": "hf://datasets/ada/fotos",
    "gated": "hf://datasets/ada/gated",
    "script": "hf://datasets/ada/script",
    "empty": "hf://datasets/ada/empty",
}
OPEN = """
import json, sys
import oodzoo
for url in json.loads(sys.argv[1]):
    try:
        data = oodzoo.ImageDomains(url)
        print(json.dumps([len(data), *data.domains, *data.classes, *data.digests]))
    except oodzoo.InputError as error:
        print(json.dumps(str(error)))
"""


def content(n: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (6, 5), (n, n, n)).save(buffer, "PNG")
    return buffer.getvalue()


def write_parquet(path: Path, numbers: range) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {
        "image": [{"bytes": content(n), "path": f"{n}.png"} for n in numbers],
        "label": [n % 2 for n in numbers],
        "domain": [("day", "night")[n // 2 % 2] for n in numbers],
    }
    features = datasets.Features(
        image=datasets.Image(),
        label=datasets.ClassLabel(names=["cat", "dog"]),
        domain=datasets.Value("string"),
    )
    datasets.Dataset.from_dict(rows, features=features).to_parquet(path)


def write_data_sets(root: Path) -> None:
    write_parquet(root / "ada/photos/data/train-0.parquet", range(8))
    write_parquet(root / "ada/photos/data/test-0.parquet", range(8, 12))
    for size in ("small", "big"):
        write_parquet(root / f"ada/sizes/{size}/train.parquet", range(8))
    card = "\n".join(
        ["---", "configs:"]
        + [
            f"- config_name: {size}\n  data_files: {size}/train.parquet"
            for size in ("small", "big")
        ]
        + ["---"]
    )
    (root / "ada/sizes/README.md").write_text(card, encoding="utf-8")
    for name in ("gated", "script", "empty"):
        (root / "ada" / name).mkdir()
    (root / "ada/gated/.gated").touch()
    (root / "ada/empty/README.md").write_text("Nothing.", encoding="utf-8")
    (root / "ada/script/script.py").write_text("open('ran', 'w')", encoding="utf-8")


def open_urls(folder: Path, urls: list[str], **environment: str) -> list[Any]:
    """Open URLs in a process of its own: the address of the Hub is read once."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", OPEN, json.dumps(urls)],
        cwd=folder,
        env={**os.environ, "HF_HOME": str(folder / "home"), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("hub")
    write_data_sets(root)
    command = [sys.executable, "-m", "tests.sources.hub_server", str(root)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        cwd=Path(__file__).parents[3],
    ) as server:  # fmt: skip
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        server.kill()


@pytest.fixture(scope="module")
def opened(hub: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What opening each of the cases leads to: a description, or the message of an error."""
    folder = tmp_path_factory.mktemp("work")
    results = open_urls(folder, list(CASES.values()), HF_ENDPOINT=hub, HF_HUB_OFFLINE="0")
    assert sorted(path.name for path in folder.iterdir()) == ["home"]
    return dict(zip(CASES, results, strict=True))


def test_images_have_the_bytes_of_the_files(opened: dict[str, Any]) -> None:
    from hashlib import sha256

    expected = {sha256(content(n)).hexdigest() for n in range(12)}
    assert opened["all"][:5] == [12, "day", "night", "cat", "dog"]
    assert set(opened["all"][5:]) == expected
    assert opened["commit"] == opened["all"]
    assert opened["split"][0] == opened["one config"][0] == 8


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("revision", ["'ada/photos' has no revision 'v2'"]),
        ("config", ["BuilderConfig 'large' not found", "choose one with ?config=NAME"]),
        ("configs", ["'small', 'big'", "choose one with ?config=NAME"]),
        ("no such split", ['Unknown split "val"', "'train', 'test'", "?split=NAME"]),
        ("unknown", ["'ada/fotos' does not exist on the Hugging Face Hub, or is private"]),
        ("gated", ["'ada/gated' is gated", "hf auth login"]),
        ("script", ["'ada/script' needs its own script", "refused", "@refs%2Fconvert%2Fparquet"]),
        ("empty", ["cannot load the data set 'ada/empty'"]),
    ],
)
def test_what_cannot_be_loaded(opened: dict[str, Any], case: str, words: list[str]) -> None:
    message = opened[case]
    assert isinstance(message, str)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_without_a_connection(tmp_path: Path) -> None:
    url = "hf://datasets/ada/photos"
    (message,) = open_urls(tmp_path / "a", [url], HF_HUB_OFFLINE="1")
    assert message.startswith("cannot reach the Hugging Face Hub for the data set 'ada/photos'")
    (tmp_path / "b/ada/photos").mkdir(parents=True)
    (message,) = open_urls(tmp_path / "b", [url], HF_HUB_OFFLINE="1")
    assert message.startswith("datasets would read the local folder 'ada/photos' instead of")


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ada/photos", HubName("ada/photos")),
        ("ada/photos/?split=a", HubName("ada/photos", None, None, "a")),
        ("ada/photos@refs%2Fpr%2F1", HubName("ada/photos", "refs/pr/1")),
        ("ada/photos?config=a&split=train%2Btest", HubName("ada/photos", None, "a", "train+test")),
        ("ada/photos@v1?split=train+test", HubName("ada/photos", "v1", None, "train+test")),
    ],
)
def test_names(url: str, expected: HubName) -> None:
    assert parse_hub_url(Url(f"hf://datasets/{url}")) == expected


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("photos", "does not name a data set; expected hf://datasets/OWNER/NAME"),
        ("ada/photos/data", "does not name a data set"),
        ("ada/@v1", "does not name a data set"),
        ("ada/photos?splits=train", "unknown option 'splits=train' .* did you mean split"),
        ("ada/photos?split", "unknown option 'split' .* expected NAME=VALUE"),
        ("ada/photos?x=1", r"unknown option 'x=1' .* expected hf://datasets/OWNER/NAME\["),
    ],
)
def test_bad_names(url: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_hub_url(Url(f"hf://datasets/{url}"))
