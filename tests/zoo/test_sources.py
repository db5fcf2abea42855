"""Sources of models: ours, and those of other packages, which are entry points."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oodzoo.core.errors import InputError
from oodzoo.zoo import ModelSpec, load_model, load_zoo
from oodzoo.zoo import sources as registry
from oodzoo.zoo.listing import ListedModel
from oodzoo.zoo.sources import (
    ModelSource,
    check_spec,
    get_source,
    packages_of,
    portable_source,
    source_kinds,
)

POINT = {"colours": "more_colours:Colours"}
COLOURS = '''
from oodzoo.zoo.callable import model_from_callable
from oodzoo.zoo.preprocessing import square
from oodzoo.zoo.sources import ModelSource


class Colours(ModelSource):
    """Statistics of the pixels of an image."""

    kind = "colours"
    packages = ("numpy", "absent-package")
    takes_arguments = True

    def load(self, spec, *, device, precision):
        power = (spec.arguments or {}).get("power", 1)

        def features(batch):
            pixels = batch.reshape(len(batch), -1, 16) ** power
            return getattr(pixels, spec.identifier)(axis=1)

        return model_from_callable(
            features,
            name=spec.name,
            preprocessing=square(32, (0, 0, 0), (1, 1, 1)),
            version=f"1 {spec.identifier} {power}",
        )
'''


Installed = Callable[..., None]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    """Install distributions for the time of a test."""

    def forget() -> None:
        importlib.invalidate_caches()
        registry._points.cache_clear()
        registry.get_source.cache_clear()

    def installed(name: str, points: dict[str, str], module: str = "") -> None:
        """Put a distribution with entry points and a module into the folder."""
        about = tmp_path / f"{name.replace('-', '_')}-1.5.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        lines = [f"{kind} = {value}" for kind, value in points.items()]
        (about / "entry_points.txt").write_text("\n".join([f"[{registry.GROUP}]", *lines]))
        if module:
            (tmp_path / f"{name.replace('-', '_')}.py").write_text(module)
        forget()

    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield installed
    monkeypatch.undo()
    for module in set(sys.modules) - before:
        if module.startswith("more_"):
            del sys.modules[module]
    forget()


def complaint(action: Callable[[], Any]) -> str:
    with pytest.raises(InputError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_ours_are_registered() -> None:
    assert source_kinds()[: len(registry.SOURCES)] == tuple(sorted(registry.SOURCES))
    for kind in registry.SOURCES:
        source = get_source(kind)
        assert isinstance(source, ModelSource)
        assert source.kind == kind
        assert source.packages
    assert "unknown source 'tim'; did you mean timm?" in complaint(lambda: get_source("tim"))


def test_nothing_is_loaded_before_its_kind_is_used(installed: Installed) -> None:
    installed("more-broken", {"broken": "more_broken:Source"}, "raise RuntimeError('two\\nlines')")
    assert "broken" in source_kinds()
    assert load_zoo("onnx/a.onnx")[0].name == "a"
    assert "more_broken" not in sys.modules
    message = complaint(lambda: load_zoo("broken/x"))
    assert message.startswith(
        "the source of models 'broken' of the package 'more-broken' cannot be loaded: "
        "RuntimeError: two lines"
    )


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("Source = 3", "is not a ModelSource, but 3"),
        ("import absent_module_x", "cannot be loaded: ModuleNotFoundError"),
        ("", "cannot be loaded: ModuleNotFoundError: No module named 'more_odd'"),
        (COLOURS + "Source = Colours", "has the kind 'colours'; they must agree"),
        (
            "from oodzoo.zoo.sources import ModelSource as M\nclass Source(M):\n    kind = 'odd'",
            "cannot be loaded: TypeError",
        ),
    ],
)
def test_a_source_that_is_none(installed: Installed, module: str, words: str) -> None:
    installed("more-odd", {"odd": "more_odd:Source"}, module)
    message = complaint(lambda: get_source("odd"))
    assert words in message
    assert "'more-odd'" in message


def test_a_source_that_fails(installed: Installed) -> None:
    module = """
from oodzoo.zoo.sources import ModelSource

class Source(ModelSource):
    kind = 'odd'

    def load(self, spec, *, device, precision):
        return {'seven': 7}[spec.identifier]
"""
    installed("more-odd", {"odd": "more_odd:Source"}, module)
    for name, words in (("seven", "returned 7 instead of a Model"), ("x", "failed: KeyError: 'x'")):
        (spec,) = load_zoo(f"odd/{name}")
        message = complaint(partial(load_model, spec))
        assert f"the source 'odd' of the package 'more-odd' {words}" in message


def test_another_package_cannot_replace_ours(installed: Installed) -> None:
    installed("more-timm", {"timm": "more_timm:Source"}, "raise RuntimeError")
    with pytest.warns(UserWarning, match="'timm' of the package 'more-timm' is ignored: 'oodzoo'"):
        source = get_source("timm")
    assert type(source).__module__ == "oodzoo.zoo.sources.timm"


def test_what_a_source_need_not_define(installed: Installed) -> None:
    installed("more-colours", POINT, COLOURS)
    (spec,) = load_zoo("colours/mean")
    assert (spec.name, portable_source(spec)) == ("colours-mean", "colours/mean")
    assert packages_of("colours") == ("numpy", "more-colours")
    listed = ListedModel(spec)
    assert (listed.licence, listed.parameters, listed.size, listed.is_local) == (None,) * 4
    message = complaint(lambda: load_zoo("colours/m*"))
    assert message == "'colours/m*': the source colours cannot list its models; name them"
    message = complaint(lambda: check_spec(ModelSpec("x", "colours/x", pretrained=False), "zoo"))
    assert "takes no pretrained" in message
    model = load_model(ModelSpec("x", "colours/mean", arguments={"power": 2}))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    plain = load_model(ModelSpec("x", "colours/mean"))
    assert (model(pixels).features < plain(pixels).features).all()
