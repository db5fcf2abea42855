"""How far the raw form of an exported predictor differs from Pillow's resizing.

The raw form of the ONNX file resizes an image itself. Its pixels and probabilities are compared
with those of the predictor, whose images Pillow resizes, and the labels that change are counted.

    python benchmarks/raw_export.py [MODEL IMAGES ...] [--images N]

With a folder of a predictor and folders of images, these are compared. By default, heads are
fitted on samples of the data sets of `$OODZOO_SHARED/data` (or `../shared/data`) with three real
networks of `$OODZOO_SHARED/zoo`, each with another geometry, and compared on other images: on those
that a head was fitted to, probabilities are near 0 or 1, and labels hardly ever change.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from PIL import Image

import oodzoo
from oodzoo.data.pixels import decode
from oodzoo.predictor.export import input_names, open_session
from oodzoo.predictor.filing import image_files
from oodzoo.predictor.resizing import IMAGE, build_resizing
from oodzoo.zoo import load_zoo

NETWORKS: dict[str, dict[str, Any] | None] = {
    "mobilenet_v2_torchvision_imagenet": None,
    "mobilenet_v1_050_160_imagenet": {"resize": (183, 183), "crop": (160, 160), "fit": "cover"},
    "efficientnet_lite0_imagenet": {
        "resize": (248, 248),
        "crop": (224, 224),
        "fit": "cover",
        "interpolation": "bicubic",
    },
}
"""Networks, and their geometry; None for their own, a squashed square."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", help="folder of a predictor")
    parser.add_argument("folders", nargs="*", help="folders of images")
    parser.add_argument("--images", type=int, default=150, help="images of each folder or data set")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"{'images':12} {'model':34} {'resizing':16} {'n':>5} {'pixel':>7} {'max':>4} "
        f"{'equal':>7} {'probability':>11} {'max':>8} {'labels changed':>14}"
    )
    cases = _given(options) if options.model else _shared(options.images)
    for name, predictor, images in cases:
        _compare(name, predictor, images)


def _given(options: argparse.Namespace) -> Iterator[tuple[str, oodzoo.Predictor, list[Any]]]:
    predictor = oodzoo.load(options.model, device="cpu")
    for folder in options.folders:
        files = image_files([folder])
        chosen = np.random.default_rng(0).permutation(len(files))[: options.images]
        yield Path(folder).name, predictor, [decode(files[i].read()) for i in chosen.tolist()]


def _shared(n: int) -> Iterator[tuple[str, oodzoo.Predictor, list[Any]]]:
    shared = Path(os.environ.get("OODZOO_SHARED", "../shared"))
    zoo = {spec.name: spec for spec in load_zoo(shared / "zoo" / "zoo.toml")}
    specs = [replace(zoo[name], geometry=geometry) for name, geometry in NETWORKS.items()]
    for folder in sorted((shared / "data").iterdir()):
        whole = oodzoo.ImageDomains(folder)
        data = whole.sample(n)
        fitted = {sample.path for sample in data}
        others = [i for i, sample in enumerate(whole) if sample.path not in fitted]
        chosen = np.random.default_rng(0).permutation(others)[:n].tolist()
        images = [decode(whole.open(i)) for i in chosen]
        with tempfile.TemporaryDirectory() as temporary:
            store = oodzoo.extract(data, specs, Path(temporary) / "store")
            for spec in specs:
                yield folder.name, oodzoo.fit(store, models=[spec.name]), images


def _compare(name: str, predictor: oodzoo.Predictor, images: list[Image.Image]) -> None:
    inputs = input_names(predictor.loadable_models)
    resizer = open_session(build_resizing(onnx, inputs).SerializeToString())
    with tempfile.TemporaryDirectory() as folder:
        content = predictor.export(Path(folder) / "raw.onnx", raw=True).read_bytes()
    session = open_session(content)
    pixels: list[NDArray[np.float64]] = []
    found = []
    for image in images:
        array = np.asarray(image)
        resized = resizer.run(None, {IMAGE: array})
        for one, geometry in zip(resized, inputs.values(), strict=True):
            pixels.append(np.abs(one[0].astype(float) - geometry.apply(image)).ravel())
        found.append(session.run(None, {IMAGE: array})[0])
    expected = predictor.predict_proba(images)
    probabilities = np.abs(np.concatenate(found) - expected)
    changed = np.concatenate(found).argmax(1) != expected.argmax(1)
    together = np.concatenate(pixels)
    geometry = next(iter(inputs.values()))
    print(
        f"{name:12} {'+'.join(m.name for m in predictor.models)[:34]:34} "
        f"{geometry.fit + ' ' + geometry.interpolation:16} {len(images):5} "
        f"{together.mean():7.4f} {together.max():4.0f} {100 * (together == 0).mean():6.2f}% "
        f"{probabilities.mean():11.1e} {probabilities.max():8.1e} "
        f"{changed.sum():5} ({100 * changed.mean():.2f}%)",
        flush=True,
    )


if __name__ == "__main__":
    main()
