"""The model card of the embedded zoo: ``README.md``, generated from the ONNX files.

Run from the project's root: ``python -m tools.demo_zoo.card`` rewrites ``zoo.toml`` and the card of
the packaged zoo, for example after a change to the digits.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.demo_zoo.catalogue import RECIPES
from tools.demo_zoo.export import read_history, write_listing
from tools.demo_zoo.fonts import LATIN, NON_LATIN
from tools.demo_zoo.probe import Probed, probe_embedded
from tools.demo_zoo.sources import SOURCES

from oodzoo.demo import zoo_file

__all__ = ["write_card"]

_TEXT = """\
# The embedded zoo

{count} tiny models, {size:.2f} MB in all, for demonstrating and testing oodzoo without a
download. They differ in architecture, training data, augmentation and objective, so that there is
something to rank. **Intended use: demonstration only.** They are far too small and too narrowly
trained for anything else.

None of them was trained on the digits they are ranked on (scikit-learn's `load_digits`), and no
number of steps, seed or learning rate was tuned on them. There is one exception to full
independence: the digits first showed that `vit_masked` had learned nothing, and its objective was
then revised, using its accuracy on held-out letters. Conversely, the strength of the domain shifts
in the embedded digits was chosen by looking at the zoo as a whole, so that its models differ
clearly in accuracy.

Every model takes `input`, `(n, 3, 32, 32)` in float32, RGB, `(pixel / 255 - mean) / std` with its
own mean and standard deviation (see `zoo.toml`), and returns `features`, `(n, d)`, the pooled
penultimate layer, and `logits` if it was trained on classes. ONNX, opset 17; weights are stored in
half precision and cast to single precision when the file is loaded. Licence: Apache-2.0.

## Training

{training}

*Accuracy* is measured on held-out originals (every seventh typeface, or every eighth figure) with
the model's own augmentation, in percent, for objectives that use the classes of the source. Every
model is trained by AdamW with weight decay 0.02, gradients clipped to norm 2, 100 steps of
warm-up and a cosine schedule.

Sources:

{sources}

Augmentations:

{appearances}

The adversarial model is trained on images perturbed by three steps of projected gradient within
0.10 (of a range of 1) of every pixel. The contrastive models use NT-Xent at temperature 0.2 with a
projector that is dropped after training, as are the decoders of the autoencoders. The denoising
model is given noise of standard deviation 0.35; the masked model reconstructs 4 x 4 patches, of
which 40 % are hidden.

## Accuracy on the embedded digits

Accuracy of a linear probe in percent on each domain, fitted on all the others: features
standardised on the training domains, logistic regression with `C=0.01`, at most 300 iterations.

{probed}

To measure it again, run `python -m tools.demo_zoo.probe` from the project's root.

## Training them again

From the project's root:

```
mkdir fonts
apt-get download {packages}
for package in *.deb; do dpkg-deb -x "$package" fonts; done
pip install -e ".[tools]"
python -m tools.demo_zoo.pretrain --fonts fonts --out zoo --device cuda
```

It takes minutes on a GPU and a few hours on a CPU, and writes the models, `zoo.toml` and this
file. The files here were trained on a GPU with PyTorch 2.11. The seeds are fixed, but rounding
differs between machines and random numbers differ between CPU and GPU: expect models of similar
behaviour, not identical files.

## Typefaces

Glyphs were rendered from these Debian packages. The models contain no font data.

{fonts}
"""


def write_card(folder: Path) -> None:
    """Write ``folder/README.md`` for the models and the ``zoo.toml`` in ``folder``."""
    files = [path for r in RECIPES if (path := folder / f"{r.name}.onnx").exists()]
    histories = {path.stem: read_history(path) for path in files}
    text = _TEXT.format(
        count=len(files),
        size=sum(path.stat().st_size for path in files) / 1e6,
        training=_training(histories),
        sources=_bullets(SOURCES.items()),
        appearances=_bullets(_appearances(histories)),
        probed=_probed(probe_embedded(folder / "zoo.toml")),
        packages=" ".join(_licences()),
        fonts=_table(["package", "licence"], ([name, _licences()[name]] for name in _licences())),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def _training(histories: dict[str, dict[str, Any]]) -> str:
    head = ["model", "architecture", "source", "objective", "augmentation", "d", "parameters",
            "steps", "rate", "seed", "accuracy"]  # fmt: skip
    rows = []
    for name, history in histories.items():
        accuracy = history["source_accuracy"]
        rows.append([
            f"`{name}`",
            history["architecture"],
            history["source"],
            history["objective"],
            history["appearance"].split(":")[0],
            str(history["feature_dim"]),
            f"{history['parameters']:,}",
            f"{history['steps']:,}" if history["steps"] else "",
            f"{history['learning_rate']:g}" if history["steps"] else "",
            str(history["seed"]),
            "" if accuracy is None else f"{100 * accuracy:.1f}",
        ])  # fmt: skip
    return _table(head, rows)


def _appearances(histories: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    summaries = dict.fromkeys(history["appearance"] for history in histories.values())
    return [(name, text) for s in summaries if s for name, _, text in [s.partition(": ")]]


def _probed(rows: list[Probed]) -> str:
    domains = list(rows[0].domains)
    body = [
        [row.name, *(f"{row.domains[domain]:.1f}" for domain in domains), f"{row.mean:.1f}"]
        for row in sorted(rows, key=lambda row: -row.mean)
    ]
    return _table(["representation", *domains, "mean"], body)


def _licences() -> dict[str, str]:
    packages = sorted({*LATIN, *NON_LATIN}, key=lambda package: package.name)
    return {package.name: package.licence for package in packages}


def _bullets(items: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- *{name}*: {text}" for name, text in items)


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main(arguments: list[str] | None = None) -> None:
    """Write ``zoo.toml`` and the model card of a zoo."""
    parser = argparse.ArgumentParser(description="Write the model card of the embedded zoo.")
    parser.add_argument("--zoo", type=Path, default=zoo_file().parent, help="folder of the zoo")
    folder = parser.parse_args(arguments).zoo
    write_listing(folder)
    write_card(folder)


if __name__ == "__main__":
    main()
