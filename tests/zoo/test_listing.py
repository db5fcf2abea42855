"""What is known about models that are not loaded; a hub on this machine describes repositories."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.sources.hub_server import Handler, serving
from tests.text_models import sentence_transformers
from tests.zoo.data import SQUASH, VIT, save_checkpoint

from oodzoo.core.errors import InputError
from oodzoo.zoo import load_zoo
from oodzoo.zoo.listing import Download, ListedModel, plan_download, select_models
from oodzoo.zoo.model import ModelSize
from oodzoo.zoo.sources import torch as measuring
from oodzoo.zoo.sources.torch import remembered
from oodzoo.zoo.spec import ModelSpec


def test_models_that_meet_constraints() -> None:
    known = ModelSpec("known", "onnx/x.onnx", licence="MIT")
    others = [ModelSpec(f"net{i}", f"onnx/{i}.onnx") for i in range(5)]
    expected = (
        "--licence mit leaves out 5 models whose licence is unknown: net0, net1, net2 and 2 more"
    )
    with pytest.warns(UserWarning, match="unknown") as caught:
        assert select_models([known, *others], licence="mit") == [ListedModel(known)]
    assert [str(each.message) for each in caught] == [expected]
    specs = load_zoo("demo")  # which need no warning
    kept = select_models(specs, licence="apache-2.0", max_parameters="40K")
    assert [m.spec for m in kept] == [s for s in specs if (s.parameters or 0) <= 40_000]
    with pytest.raises(InputError, match="no model meets --max-parameters 1K: the smallest"):
        select_models(specs, max_parameters="1K")


# --- sizes, which are computed once ---------------------------------------------------------------


def never() -> ModelSize:
    raise AssertionError("it is known already")


def test_sizes_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path))
    file, spec = tmp_path / "sizes" / f"numpy-{version('numpy')}.jsonl", ModelSpec("n", "timm/n")
    for source in ("hf/./folder", "timm/local-dir:x", "timm/hf-hub:me/x"):  # which may change
        remembered("numpy", ModelSpec("n", source), "a", lambda: ModelSize(3))
    assert not file.exists()
    assert remembered("numpy", spec, "a", lambda: ModelSize(3, 12)) == ModelSize(3, 12)
    assert remembered("numpy", spec, "b", lambda: ModelSize(4)) == ModelSize(4)
    assert remembered("numpy", spec, "a", never) == ModelSize(3, 12)
    lines = '["a", 3, 12]\n["b", 4, null]\n'
    assert file.read_text() == lines
    with file.open("a") as more:  # damaged lines are ignored
        more.write('["c", "x", 4]\n{}\nnull\n["d", 5, 2')
    measuring._read.cache_clear()  # as another process, which has not read any file
    assert remembered("numpy", spec, "a", never) == ModelSize(3, 12)
    assert remembered("numpy", spec, "b", never) == ModelSize(4)
    for name in "cd":
        assert remembered("numpy", spec, name, lambda: ModelSize(7)) == ModelSize(7)


# --- weights in caches, and those that must be downloaded -----------------------------------------


def test_what_is_not_cached(
    timm: Any, torchvision: Any, tmp_path: Path, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    specs = load_zoo("timm/test_vit.r160_in1k,torchvision/resnet18,hf/me/net,demo/cnn_photos")
    plan = plan_download(specs)
    assert 46_830_000 < plan.size < 50_000_000
    assert str(plan) == (
        "3 models to download, about 48.3 MB, size of 1 model unknown (1 more on this machine)"
    )
    models = [spec.name for spec in specs[:3]]
    expected = {"models": models, "size": plan.size, "unknown": ["hf-me-net"], "cached": 1}
    assert plan.to_dict() == expected
    layers = load_zoo("timm/test_vit.r160_in1k@all")
    assert len(layers) > 2
    assert plan_download(layers) == plan_download(specs[:1])  # which are one network
    assert plan_download(layers[1:]).models == (layers[1].name,)
    random = [replace(spec, pretrained=False) for spec in layers]
    plan = plan_download(random)
    assert (plan.models, plan.size, plan.n_local) == ((), 0, 1)
    assert [ListedModel(spec).is_local for spec in (random[0], specs[0])] == [True, False]


def download(size: int, *folders: Path) -> Download:
    return Download(("a", "b"), size * len(folders), (), 0, dict.fromkeys(folders, size))


def test_space_of_a_disk_which_folders_may_share(tmp_path: Path) -> None:
    most = shutil.disk_usage(tmp_path).free * 2 // 3
    download(most, tmp_path / "a").require_space()
    with pytest.raises(InputError, match="need about"):
        download(most, tmp_path / "a", tmp_path / "b").require_space()
    with pytest.raises(InputError, match=r"but the disk of '.*/not/there' has .* GB free; set HF_"):
        download(10**18, tmp_path / "not" / "there").require_space()


# --- online: another process asks a server on this machine ----------------------------------------

REPOSITORIES: dict[str, dict[str, Any]] = {
    "me/net": {
        "pipeline_tag": "image-feature-extraction",
        "cardData": {"license": "apache-2.0"},
        "siblings": {"config.json": 9, "model.safetensors": 1000, "pytorch_model.bin": 1100},
    },
    "me/old": {
        "pipeline_tag": "image-classification",
        "cardData": {"license": "other", "license_name": "my-licence"},
        "siblings": {"pytorch_model.bin": 77, "onnx/model.bin": 5},
    },
    "me/words": {"pipeline_tag": "text-generation", "cardData": {}, "siblings": {}},
}
ABSENT = (
    "timm/resnet10t.c3_in1k",
    "timm/hf-hub:owner/name",
    "hf/facebook/dinov2-small",
    "open_clip/ViT-B-32/laion2b_s34b_b79k",
    "sentence-transformers/all-MiniLM-L6-v2",
)
PROGRAM = """
import sys
import time
import oodzoo
from oodzoo.zoo import ModelSpec, hub, load_model

time.sleep = lambda seconds: None  # before another try

def show(function, *arguments):
    try:
        print(function(*arguments))
    except oodzoo.InputError as error:
        print(error)

for name in ("me/net", "me/old", "me/words", "me/none"):
    show(hub.hub_card, name)
for zoo in ("hf/me/*", "hf/me/n*", "hf/me/w*"):
    show(lambda: [spec.source for spec in oodzoo.load_zoo(zoo)])
for source in sys.argv[1:]:
    show(lambda: load_model(ModelSpec("net", source)).info.feature_dim)
"""


class Hub(Handler):
    """The parts of the Hub's API that are used."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        name = path.removeprefix("/api/models").strip("/")
        answer: Any = None
        if path == "/api/models":
            assert query["author"] == ["me"]
            answer = [self._info(each) for each in REPOSITORIES]
        elif name in REPOSITORIES:
            answer = self._info(name)
        if answer is None:
            self._send_error(404, "RepoNotFound")
        else:
            self._send(json.dumps(answer).encode(), {"Content-Type": "application/json"})

    do_HEAD = do_GET

    def _info(self, name: str) -> dict[str, Any]:
        known = REPOSITORIES[name]
        files = [{"rfilename": file, "size": size} for file, size in known["siblings"].items()]
        return {"id": name, "modelId": name, **known, "siblings": files}


def online(folder: Path, endpoint: str, *sources: str) -> tuple[list[str], str]:
    """What another process prints, which uses a hub, with its cache in a folder."""
    environment = {**os.environ, "HF_HOME": str(folder), "HF_ENDPOINT": endpoint}
    environment |= {"HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *sources],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,  # the libraries themselves would try again for minutes
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


@pytest.fixture
def libraries(timm: Any, transformers: Any, open_clip: Any) -> Any:
    """All libraries of the hub; tests skip where one is missing."""
    sentence_transformers()
    return transformers


def test_what_a_hub_says(libraries: Any, tmp_path: Path) -> None:
    with serving(tmp_path, Hub) as hub:
        lines, _ = online(tmp_path, hub, *ABSENT)
    listed, some, none = lines[4:7]
    assert lines[:4] == [
        "HubCard(licence='apache-2.0', size=1000)",
        "HubCard(licence='my-licence', size=77)",
        *["HubCard(licence=None, size=None)"] * 2,
    ]
    assert (listed, some) == ("['hf/me/net', 'hf/me/old']", "['hf/me/net']")
    assert none == "hf has no pre-trained model that matches 'me/w*'; did you mean me/o* or me/n*?"
    for source, line in zip(ABSENT, lines[7:], strict=True):
        words = f"model 'net': {hub} has nothing for {source} that you may read; check its"
        assert line.startswith(words)
    assert Hub.asked.count("/") == 1  # whether it answers is asked once


def test_a_hub_that_cannot_be_reached(libraries: Any, tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--owner--net" / "snapshots" / "0"
    config = libraries.ViTConfig(**VIT)
    save_checkpoint(libraries, libraries.ViTModel(config), snapshot, SQUASH)
    refs = tmp_path / "hub" / "models--owner--net" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0")
    endpoint = "http://127.0.0.1:9"
    lines, error = online(tmp_path, endpoint, *ABSENT, "hf/owner/net")
    assert lines[:4] == ["HubCard(licence=None, size=None)"] * 4
    assert lines[4].startswith("the zoo 'hf/me/*' needs the Hugging Face Hub, which cannot be")
    for source, line in zip(ABSENT, lines[7:-1], strict=True):
        assert line.startswith(f"model 'net': {source} is not in the cache ")
        assert f"{endpoint} cannot be reached (" in line
    assert lines[-1] == "32"  # it is in the cache
    assert not re.search("requesting (?!GET http://127.0.0.1:9/api/models\n)", error)
