"""Models of torch.hub in local folders."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from oodzoo.core.errors import InputError
from oodzoo.zoo import ModelSpec, load_model

HUBCONF = """
dependencies = ["torch"]
import torch
from nets import Net, WIDTH


def classifier(width=WIDTH, pretrained=True):
    net = Net(width)
    if pretrained:
        torch.nn.init.constant_(net.head.bias, 0.5)
    return net


def backbone():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 6, 4, stride=4), torch.nn.ReLU())


def pickled():
    import pathlib
    return torch.load(pathlib.Path(__file__).with_name("weights.pt"), weights_only=False)


def number():
    return 3


def pair():
    return torch.nn.LSTM(4, 4)


def broken():
    raise KeyError("no such thing")
"""
NETS = """
import torch

WIDTH = {width}


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, width, 4, stride=4)
        self.head = torch.nn.Linear(width, 5)

    def forward(self, x):
        return self.head(self.conv(x).relu().mean((2, 3)))
"""


@pytest.fixture
def hub(torch: Any, tmp_path: Path) -> Path:
    """A folder with a hubconf.py, beside a zoo file."""
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "hubconf.py").write_text(HUBCONF)
    (folder / "nets.py").write_text(NETS.format(width=8))
    return folder


def _load(source: str, **fields: Any) -> Any:
    return load_model(ModelSpec("net", source, **{"input_size": 16, **fields}))


def test_other_outputs_are_the_features(hub: Path) -> None:
    model = _load(f"torch_hub/{hub}:backbone")
    assert (model.info.feature_dim, model.info.n_logits) == (6, None)


def test_random_weights_depend_on_the_name_only(hub: Path, torch: Any) -> None:
    source = f"torch_hub/{hub}:classifier"
    torch.manual_seed(5)
    first, again = _load(source), _load(source)
    assert first.info == again.info
    other = load_model(ModelSpec("other", source, input_size=16))
    assert other.info.fingerprint != first.info.fingerprint
    untrained = _load(source, pretrained=False)
    assert untrained.info.fingerprint != first.info.fingerprint


def test_code_is_part_of_the_fingerprint(hub: Path) -> None:
    before = _load(f"torch_hub/{hub}:classifier").info.fingerprint
    (hub / "nets.py").write_text(NETS.format(width=8).replace("relu", "tanh"))
    assert _load(f"torch_hub/{hub}:classifier").info.fingerprint != before


def test_two_folders_may_have_modules_of_the_same_name(hub: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    (second / "hubconf.py").write_text(HUBCONF)
    (second / "nets.py").write_text(NETS.format(width=9))
    assert _load(f"torch_hub/{hub}:classifier").info.feature_dim == 8
    assert _load(f"torch_hub/{second}:classifier").info.feature_dim == 9
    assert "nets" not in sys.modules


def test_pickles_are_not_read(hub: Path, torch: Any) -> None:
    torch.save(torch.nn.Linear(2, 2), hub / "weights.pt")
    with pytest.raises(InputError, match=r"'pickled' of .* failed: UnpicklingError: "):
        _load(f"torch_hub/{hub}:pickled")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "pytorch/vision:resnet18",
            "there is no folder 'pytorch/vision'; a repository on GitHub is not downloaded, becau",
        ),
        ("{hub}", "names no entry point; write torch_hub/<folder>:<entry point>"),
        ("{hub}/..:classifier", "has no hubconf.py"),
        ("{hub}:classifer", "does not exist; did you mean classifier?"),
        ("{hub}:zzz", "does not exist; it has classifier, backbone, pickled, number, pair, broken"),
        ("{hub}:number", "returned int, not a module of PyTorch"),
        ("{hub}:pair", "fails on an image of 16×16 pixels"),
        ("{hub}:broken", "failed: KeyError: 'no such thing'"),
    ],
)
def test_errors_are_one_line(hub: Path, source: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        _load("torch_hub/" + source.format(hub=hub))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
