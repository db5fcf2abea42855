"""A CLIP model of 32 pixels with random weights, in a folder of open_clip's own format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oodzoo.core.errors import MissingPackageError
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.spec import ModelSpec

WIDTH = 24
"""Number of features."""


def small_clip(folder: Path, *, bias: float | None = None, name: str = "clip") -> ModelSpec:
    """Write a model, with a bias of the logits if one is given; skip without open_clip."""
    try:
        open_clip: Any = get_source("open_clip").library("this test")  # type: ignore[attr-defined]
    except MissingPackageError as error:
        pytest.skip(str(error))
    import torch
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    config: dict[str, Any] = {
        "embed_dim": WIDTH,
        "vision_cfg": {
            "image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8
        },
        "text_cfg": {
            "context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1
        },
        **({} if bias is None else {"init_logit_bias": bias}),
    }  # fmt: skip
    torch.manual_seed(0)
    whole = open_clip.CLIP(**config)
    home = folder / name
    home.mkdir(parents=True)
    content = {"model_cfg": config, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    (home / "open_clip_config.json").write_text(json.dumps(content))
    save_file(whole.state_dict(), home / "open_clip_model.safetensors")
    return ModelSpec(name=name, source=f"open_clip/local-dir:{name}", folder=folder)
