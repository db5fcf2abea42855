"""The tests can be collected without optional packages, as on a fresh machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

OPTIONAL = (
    *("torch", "torchvision", "timm", "transformers", "open_clip", "sentence_transformers"),
    *("onnx2torch", "onnxscript", "huggingface_hub", "pandas", "polars", "datasets", "webdataset"),
    *("s3fs", "moto", "mlflow", "tensorboard", "ray", "playwright"),
)


def without(packages: Sequence[str]) -> str:
    """The start of a program that finds none of some packages, as if they were not installed."""
    return f"""
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *rest):
        missing = name.partition(".")[0] in {tuple(packages)!r}
        return None if missing else self.finder.find_spec(name, *rest)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Without, sys.meta_path)
"""


COLLECT = """
import pytest

plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
sys.exit(pytest.main(["--collect-only", "-qq", "-W", "ignore", *plugins]))
"""


def test_no_module_needs_an_optional_package() -> None:
    found = subprocess.run(
        [sys.executable, "-c", without(OPTIONAL) + COLLECT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-3000:]
