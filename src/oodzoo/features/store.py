"""A feature store as its readers see it: features and labels of each model and domain.

On disk::

    STORE/images.json                            which image is which row
    STORE/skipped/<domain>/shard-00000.json      images of a shard that could not be read
    STORE/<model>/model.json                     which model made the features
    STORE/<model>/<domain>/shard-00000.features.npy, shard-00000.logits.npy
    STORE/manifest.json                          written last: what is complete, with checksums
    STORE/local.json                             what depends on time and place; no checksum
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._io import file_digest, read_json
from oodzoo.errors import InputError
from oodzoo.features.index import DomainIndex, ImageIndex

SCHEMA = 1

Array = NDArray[Any]


def shard_name(shard: int, output: str) -> str:
    return f"shard-{shard:05d}.{output}.npy"


@dataclass(frozen=True)
class StoredModel:
    """A model whose features are complete, as the manifest describes it.

    Attributes
    ----------
    shards : dict
        For each domain, one dict per shard: `rows` and the SHA-256 of its outputs, `features` and
        (where the model has a head) `logits`.
    spec : dict or None
        The arguments of :class:`oodzoo.zoo.ModelSpec`, besides its name and source, with which the
        model loads again wherever it is: `input_size` (int), `mean`, `std` (three floats each), as
        the zoo states them; and for an ONNX file the names of the outputs in use, `features` and
        `logits`, and its `sha256`. Each key is present; its value is None where it does not apply.
        The whole is None for Python models, imported features, and stores of version 0.2.
    """

    name: str
    source: str
    fingerprint: str
    feature_dim: int
    n_logits: int | None
    parameters: int | None
    pretraining: str | None
    precision: str
    dtype: str
    preprocessing: dict[str, Any] | None
    shards: dict[str, list[dict[str, Any]]]
    spec: dict[str, Any] | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("features",) if self.n_logits is None else ("features", "logits")


class FeatureStore:
    """Features on disk, opened for reading; arrays are memory maps of its files.

    Parameters
    ----------
    path : path
        A folder made by :func:`oodzoo.extract` or `oodzoo import`.

    Attributes
    ----------
    models, domains, classes : tuple of str
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise InputError(
                f"there is no feature store {str(self.path)!r}; make one with "
                "oodzoo extract or oodzoo import"
            )
        if not (self.path / "manifest.json").is_file():
            unfinished = (self.path / "images.json").is_file()
            raise InputError(
                f"the store {str(self.path)!r} has no finished model yet; run the same "
                "oodzoo extract again to finish it"
                if unfinished
                else f"{str(self.path)!r} is no feature store: it has no manifest.json"
            )
        self.manifest = read_json(self.path / "manifest.json", "the manifest")
        require_schema(self.manifest, self.path)
        with _refusing_other_content(self.path):
            # A later extraction that has not finished may have added images already.
            self.index = read_index(self.path).truncated(self.manifest["data"]["images"])
            self.domains = tuple(d.name for d in self.index.domains)
            self.models: tuple[str, ...] = tuple(self.manifest["models"])
            self._require_aligned()
        self.classes = row_classes(self.index, self.path)

    def __repr__(self) -> str:
        return (
            f"FeatureStore({str(self.path)!r}: {len(self.models)} models, "
            f"{len(self.domains)} domains, {self.n_images} images)"
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest: the same for stores that hold the same features."""
        return file_digest(self.path / "manifest.json")

    @property
    def n_images(self) -> int:
        return sum(len(self._rows[d]) for d in self.domains)

    @property
    def skipped(self) -> dict[str, str]:
        """Why each image without features was skipped, by path."""
        return {entry["path"]: entry["reason"] for entry in self.manifest["data"]["skipped"]}

    def is_complete(self) -> bool:
        """Whether every shard file of the manifest exists; its content is not checked."""
        return all((self.path / file).is_file() for file, _ in self.shard_files())

    def shard_files(self) -> Iterator[tuple[str, str]]:
        """Path (relative to the store) and SHA-256 of each shard file of the manifest."""
        for name in self.models:
            stored = self.model(name)
            for domain in self.index.domains:
                for number, shard in enumerate(stored.shards[domain.name]):
                    for output in stored.outputs:
                        yield f"{name}/{domain.folder}/{shard_name(number, output)}", shard[output]

    def model(self, name: str) -> StoredModel:
        if name not in self.manifest["models"]:
            known = ", ".join(self.models)
            raise InputError(f"the store has no model {name!r}; it has {known}")
        return StoredModel(name=name, **self.manifest["models"][name])

    def milliseconds_per_image(self, name: str) -> float | None:
        """How long a forward pass took where the features were made, if that is known."""
        value = read_local(self.path).get(name, {}).get("milliseconds_per_image")
        return float(value) if isinstance(value, int | float) else None

    def paths(self, domain: str) -> list[str]:
        return self._column(domain, "paths")

    def labels(self, domain: str) -> NDArray[np.int64]:
        """The class of each row, as a position in `classes`."""
        position = {label: at for at, label in enumerate(self.classes)}
        return np.array([position[x] for x in self._column(domain, "labels")], np.int64)

    def groups(self, domain: str) -> list[str | None]:
        return self._column(domain, "groups")

    def shards(self, model: str, domain: str, output: str = "features") -> Iterator[Array]:
        """The rows of a domain, shard by shard, as read-only memory maps."""
        stored = self.model(model)
        if output not in stored.outputs:
            raise InputError(f"model {model!r} of the store has no {output}")
        width = stored.feature_dim if output == "features" else stored.n_logits
        folder = self.path / model / self.index.domain(domain).folder
        for number, shard in enumerate(stored.shards[domain]):
            if shard["rows"]:
                shape = (shard["rows"], width)
                yield open_shard(folder / shard_name(number, output), shape, stored.dtype)

    def features(self, model: str, domain: str) -> Array:
        """All features of a domain in memory, (rows, feature_dim)."""
        return self._gather(model, domain, "features")

    def logits(self, model: str, domain: str) -> Array:
        """All logits of a domain in memory, (rows, n_logits)."""
        return self._gather(model, domain, "logits")

    def _gather(self, model: str, domain: str, output: str) -> Array:
        parts = list(self.shards(model, domain, output))
        if parts:
            return np.concatenate(parts)
        stored = self.model(model)
        width = stored.feature_dim if output == "features" else stored.n_logits or 0
        return np.empty((0, width), stored.dtype)

    def _column(self, domain: str, column: str) -> list[Any]:
        values = getattr(self.index.domain(domain), column)
        return [values[row] for row in self._rows[domain]]

    def _require_aligned(self) -> None:
        """Labels belong to rows only if the two count the same."""
        for name in self.models:
            for domain, shards in self.model(name).shards.items():
                n, images = sum(shard["rows"] for shard in shards), len(self._rows[domain])
                if n != images:
                    raise InputError(
                        f"the store {str(self.path)!r} is damaged: model {name!r} has {n} rows "
                        f"of {domain!r}, its lists have {images} images; run the same oodzoo extract "
                        "again, or make the store anew"
                    )

    @cached_property
    def _rows(self) -> dict[str, list[int]]:
        """For each domain the positions of the images that have a row."""
        rows = {}
        for domain in self.index.domains:
            absent = skipped_positions(self.path, domain)
            rows[domain.name] = [at for at in range(len(domain.paths)) if at not in absent]
        return rows


def open_shard(path: Path, shape: tuple[int, int | None], dtype: str) -> Array:
    """Open a shard as a memory map and make sure that it is what the manifest says."""
    try:
        # an empty array cannot be mapped
        array: Array = np.load(path, mmap_mode="r" if shape[0] else None, allow_pickle=False)
    except FileNotFoundError as error:
        raise InputError(f"the store lacks {str(path)!r}; {_REPAIR}") from error
    except (EOFError, OSError, ValueError) as error:
        raise InputError(f"the shard {str(path)!r} is damaged; {_REPAIR}") from error
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise InputError(
            f"the shard {str(path)!r} holds {array.dtype} {array.shape} instead of "
            f"{dtype} {shape}; {_REPAIR}"
        )
    return array


_REPAIR = (
    "`oodzoo store check --repair` removes what is damaged, `oodzoo extract` then makes it again"
)


def require_schema(document: dict[str, Any], path: Path) -> None:
    found = document.get("schema")
    if found != SCHEMA:
        newer = isinstance(found, int) and found > SCHEMA
        advice = "upgrade oodzoo" if newer else "extract the features again into a new store"
        raise InputError(
            f"the store {str(path)!r} has the schema {found!r}, this oodzoo reads {SCHEMA}; {advice}"
        )


@contextmanager
def _refusing_other_content(path: Path) -> Iterator[None]:
    """JSON that is sound but does not hold what a store's files hold."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"the store {str(path)!r} is damaged: images.json or manifest.json lacks what it "
            f"should hold ({type(error).__name__}: {error}); make it anew"
        ) from error


def read_index(path: Path) -> ImageIndex:
    document = read_json(path / "images.json", "the image index")
    require_schema(document, path)
    with _refusing_other_content(path):
        return ImageIndex.from_json(document)


def index_checksum(index: ImageIndex, store: Path) -> str:
    """SHA-256 of which image is which row, labels and skipped images included."""
    skipped = {d.name: skipped_positions(store, d) for d in index.domains}
    text = json.dumps([index.to_json(), skipped], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_local(store: Path) -> dict[str, dict[str, Any]]:
    """What the side file knows of each model; a lost or damaged one knows nothing."""
    try:
        models = json.loads((store / "local.json").read_text(encoding="utf-8"))["models"]
        return {name: dict(facts) for name, facts in models.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def row_classes(index: ImageIndex, store: Path) -> tuple[str, ...]:
    """The classes of the images that have a row."""
    labels: set[str] = set()
    for domain in index.domains:
        absent = skipped_positions(store, domain)
        labels |= {label for at, label in enumerate(domain.labels) if at not in absent}
    return tuple(sorted(labels))


def skipped_positions(store: Path, domain: DomainIndex) -> dict[int, str]:
    """The positions of a domain's images that could not be read, and why."""
    found: dict[int, str] = {}
    for shard in range(len(domain.shards)):
        path = skip_file(store, domain, shard)
        if path.is_file():
            reasons = read_json(path, "the list of skipped images")
            found |= {domain.shard_range(shard).start + int(at): why for at, why in reasons.items()}
    return found


def skip_file(store: Path, domain: DomainIndex, shard: int) -> Path:
    return store / "skipped" / domain.folder / f"shard-{shard:05d}.json"
