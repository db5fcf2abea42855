"""Small stores made without models, and a literal reader of their files.

The row of an image is a function of the model and the image, so the right content of any store is
known: see `value`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import ModelRecord
from oodzoo.store.table import SampleTable, TableDomain
from oodzoo.store.writer import StoreWriter, writing

Array = NDArray[Any]

FEATURE_DIM = 3
N_LOGITS = 2


def image(name: str) -> str:
    """Return the identity of an image of this name."""
    return hashlib.sha256(name.encode()).hexdigest()


def value(model: str, identity: str, output: str = "features") -> Array:
    """Return the row of an image with a model."""
    width = {"features": FEATURE_DIM, "logits": N_LOGITS}[output]
    seed = hashlib.sha256(f"{model} {output} {identity}".encode()).digest()
    return np.frombuffer(seed, np.uint8)[:width].astype(np.float32)


def values(model: str, images: Iterable[str], output: str = "features") -> Array:
    """Return the rows of images with a model."""
    return np.array([value(model, identity, output) for identity in images], np.float32)


def letters(**domains: str) -> SampleTable:
    """Make a table of images named by letters, of two classes.

    >>> letters(day="ab", night="c").domains[0].paths
    ['day/a.png', 'day/b.png']
    """
    return SampleTable(
        [
            TableDomain(
                name,
                [f"{name}/{letter}.png" for letter in sorted(names)],
                ["even" if ord(letter) % 2 == 0 else "odd" for letter in sorted(names)],
                [None] * len(names),
                [image(letter) for letter in sorted(names)],
            )
            for name, names in sorted(domains.items())
        ]
    )


def unlabelled(name: str, names: str) -> TableDomain:
    """Make a domain without labels of images named by letters."""
    paths = [f"{name}/{letter}.png" for letter in sorted(names)]
    images = [image(letter) for letter in sorted(names)]
    return TableDomain(name, paths, None, [None] * len(paths), images)


def record(fingerprint: str = "f", **fields: Any) -> ModelRecord:
    """Make the description of a model with features and logits."""
    known: dict[str, Any] = {
        "source": "test/model",
        "fingerprint": fingerprint,
        "feature_dim": FEATURE_DIM,
        "n_logits": N_LOGITS,
        "parameters": 7,
        "pretraining": None,
        "precision": "float32",
        "dtype": "float32",
        "preprocessing": None,
    }
    return ModelRecord(**(known | fields))


def compute(
    writer: StoreWriter,
    *models: str,
    available: Collection[str] | None = None,
    undecodable: Collection[str] = (),
    again: Collection[str] = (),
    only: bool = False,
) -> int:
    """Compute the missing shards of models, as an extraction does; return their number.

    `available` has the images whose files can be read now, by default all of the table.
    """
    given = set(writer.table.images()) if available is None else set(available)
    written = 0
    for planned in writer.plan(models, given, again, only=only):
        for model in planned.models:
            absent = {
                at: "cannot be decoded" if identity in given else None
                for at, identity in enumerate(planned.images)
                if identity not in given or identity in undecodable
            }
            present = [i for at, i in enumerate(planned.images) if at not in absent]
            outputs = {
                output: values(model, present, output).reshape(len(present), width)
                for output, width in writer.record(model).widths.items()
            }
            writer.write_shard(model, planned.name, outputs, absent)
            written += 1
    return written


def fill(
    store: Path,
    table: SampleTable,
    *models: str,
    undecodable: Collection[str] = (),
    fingerprint: str = "f",
) -> Path:
    """Write a table and complete models into a store."""
    with writing(store) as writer:
        writer.set_table(table)
        writer.add_images()
        for model in models:
            writer.add_model(model, record(fingerprint))
        compute(writer, *models, undecodable=undecodable)
        writer.finish()
    return store


def require_right(store: Path) -> FeatureStore:
    """Open a store and assert that every row is the right one."""
    opened = FeatureStore(store)
    for model in opened.models:
        for domain in (*opened.domains, *opened.unlabelled):
            if not opened.has_features(model, domain):
                continue
            images = opened.images(domain)
            for output in ("features", "logits"):
                expected = values(model, images, output)
                np.testing.assert_array_equal(opened.gather(model, images, output), expected)
    return opened


def literal(store: Path, model: str, output: str = "features") -> dict[str, Array]:
    """Read the rows of a model by image, file by file, as the documented format says."""
    manifest = json.loads((store / "manifest.json").read_text())
    folder = store / "models" / model
    listed = json.loads(
        (folder / f"shards.{manifest['models'][model]['shards'][:16]}.json").read_text()
    )
    rows: dict[str, Array] = {}
    for shard in listed["shards"]:
        segment, _, number = shard["shard"].partition("-")
        index = json.loads((store / "images" / f"{segment}.json").read_text())["shards"]
        images = index[int(number)]
        assert shard["images"] == hashlib.sha256("\n".join(images).encode()).hexdigest()[:16]
        absent = {int(position) for position in shard.get("absent", {})}
        present = [i for at, i in enumerate(images) if at not in absent]
        array = np.load(folder / shard[output]["file"])
        rows |= dict(zip(present, array, strict=True))
    return rows


def refusal(function: Callable[[], object]) -> str:
    """Return the message of the InputError that a function raises; empty if it raises none."""
    try:
        function()
    except InputError as error:
        return str(error)
    return ""


def flip(path: Path, bit: int) -> None:
    """Invert one bit of a file."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def nested(depth: int = 100_000) -> str:
    """Return a JSON object with brackets in brackets, deeper than any reader needs."""
    return '{"schema": 2, "models": ' + "[" * depth + "]" * depth + "}"


def rewrite(path: Path, change: Callable[[Any], object]) -> None:
    """Change a JSON document in place; a checksum in it is corrected."""
    document = json.loads(path.read_text())
    change(document)
    if document.pop("sha256", None):
        text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        document["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
