"""Reading a feature store: features, labels and groups of each model and domain."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.io import shown
from oodzoo.core.tables import Table
from oodzoo.core.text import (
    count,
    number,
    one_line,
    short_name,
    significant,
    some_of,
    typed,
    unknown,
)
from oodzoo.data.listing import task_line
from oodzoo.store.class_embeddings import ClassEmbeddings, read_class_embeddings
from oodzoo.store.format import (
    MANIFEST,
    MODELS,
    Manifest,
    StoredModel,
    mistaken_folder,
    read_local,
    read_manifest,
    repair_advice,
)
from oodzoo.store.mirror import is_missing, is_remote, pulled
from oodzoo.store.shards import (
    Coverage,
    Coverages,
    Places,
    Shard,
    ShardFile,
    gather_rows,
    read_list,
)
from oodzoo.store.table import (
    ImageIndex,
    SampleTable,
    TableDomain,
    has_lost_manifest,
    read_table,
    table_file,
)
from oodzoo.tasks import Task

Array = NDArray[Any]

BLOCK_ROWS = 4096


class UnfinishedStoreError(InputError):
    """The store has no finished model yet."""


class FeatureStore:
    """A feature store, opened for reading.

    It is a mapping from models to their records: `for model in store`, `"resnet50" in store`,
    `len(store)`, `store["resnet50"]`.

    Parameters
    ----------
    path : path or URL
        A folder written by :func:`oodzoo.extract` or `oodzoo import`, or its URL (`s3://…`); the
        folder of a run stands for its store.

    Attributes
    ----------
    path : path
        The folder; of a store at a URL, that of a local mirror.
    models : tuple of str
        The models with features of all samples with labels.
    domains : tuple of str
        The domains with labels.
    unlabelled : tuple of str
        The domains without labels. A model need not have features of them.
    task : Task
        What the labels are: classes, numbers, or several labels per sample.
    classes : tuple of str
        The classes, or the names of the numbers or of the labels.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pulled(path)
        _require_store(self.path)
        manifest, table = _read(self.path)
        self._open(manifest, table, ImageIndex.read(self.path, manifest.segments), {})

    @classmethod
    def partial(
        cls,
        path: Path,
        models: dict[str, StoredModel],
        table: SampleTable,
        index: ImageIndex,
        shards: dict[str, list[Shard]],
    ) -> FeatureStore:
        """Open models of a store for some of its samples, before an extraction has finished.

        Parameters
        ----------
        path : path
        models : dict of str to StoredModel
        table : SampleTable
            The samples; all models have features of them.
        index : ImageIndex
        shards : dict of str to list of Shard
            The finished shards of each model.
        """
        store = cls.__new__(cls)
        store.path = path
        store._open(Manifest(models=models), table, index, shards)
        return store

    def with_table(self, table: SampleTable) -> FeatureStore:
        """Return a view of the same features with other samples; nothing is written."""
        view = copy.copy(self)
        view.__dict__.pop("fingerprint", None)
        view._open(self.manifest, table, self.index, self._lists)
        return view

    def _open(
        self,
        manifest: Manifest,
        table: SampleTable,
        index: ImageIndex,
        shards: dict[str, list[Shard]],
    ) -> None:
        self.manifest, self.table, self.index = manifest, table, index
        self._lists = shards
        if not self.manifest.models:
            raise UnfinishedStoreError(
                f"the store {shown(self.path)!r} has no finished model yet; run oodzoo extract "
                "to finish one"
            )
        self.models = tuple(sorted(self.manifest.models))
        skipped = self.manifest.skipped
        self._domains = {
            domain.name: domain.part(
                row for row, image in enumerate(domain.images) if image not in skipped
            )
            for domain in self.table.domains
        }
        self.domains = tuple(domain.name for domain in self.table.labelled)
        self.unlabelled = tuple(domain.name for domain in self.table.unlabelled)
        labels = [self._domains[name].labels or [] for name in self.domains]
        self.task: Task = self.table.task
        classes = tuple(sorted({label for column in labels for label in column}))
        self.classes = classes if self.task.one_class else self.task.outputs
        self._coverages = Coverages()
        self._known_places: dict[tuple[int, str], Places] = {}
        self._digests: dict[str, str] = {}

    def __repr__(self) -> str:
        path = short_name(shown(self.path), 200)
        return (
            f"FeatureStore({path!r}: {count(len(self.models), 'model')}, "
            f"{count(len(self.domains), 'domain')}, {count(self.n_images, 'image')})"
        )

    def _repr_html_(self) -> str:
        rows = []
        for name in self.models:
            stored, time = self.model(name), self.milliseconds_per_image(name)
            counts = [stored.feature_dim, stored.n_logits, stored.parameters]
            cells = ["" if n is None else number(n) for n in counts]
            rows.append([name, *cells, "" if time is None else significant(time)])
        listed = [f"{name} ({len(self._domain(name).paths):,})" for name in self.domains]
        outputs = self.task.count_outputs(len(self.classes))
        return Table.of(
            ["model", "features", "logits", "parameters", "ms / image"],
            rows,
            caption=f"{self.name}: {count(len(rows), 'model')}, {count(self.n_images, 'image')}",
            notes=[f"{count(len(listed), 'domain')}: {some_of(listed, 10)}; {outputs}."],
        ).html()

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)

    def __contains__(self, model: object) -> bool:
        return model in self.manifest.models

    def __getitem__(self, model: str) -> StoredModel:
        """Return the record of a model; :meth:`features` loads its features."""
        if model not in self.manifest.models:
            raise KeyError(unknown("the store", "model", model, self.models))
        return self.manifest.models[model]

    @property
    def domains_proposed(self) -> str | None:
        """What the domains were proposed by; None if they were given."""
        return self.table.proposed

    @property
    def location(self) -> str:
        """The path or the URL of the store."""
        return shown(self.path)

    @property
    def name(self) -> str:
        """The last part of the path or the URL."""
        return (
            self.location.rpartition("/")[2] if is_remote(self.path) else self.path.resolve().name
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the samples with labels and the checksums of their features."""
        models = []
        for name in self.models:
            used = {shard for domain in self.domains for shard in self.checksums(name, domain)}
            texts = self.class_embeddings(name)
            added = [] if texts is None else [texts.digest]
            models.append([name, self.model(name).identity, sorted(used), *added])
        samples = [self._domains[domain] for domain in self.domains]
        content = [[d.name, d.paths, d.labels, d.groups, d.images] for d in samples]
        total = hashlib.sha256(task_line(self.task))
        total.update(json.dumps([content, models]).encode())
        return total.hexdigest()

    @property
    def data_fingerprint(self) -> str:
        """SHA-256 of the samples with labels; see :attr:`oodzoo.ImageDomains.fingerprint`."""
        domains = [self._domains[name] for name in self.domains]
        return SampleTable(domains, task=self.task).fingerprint

    @property
    def n_images(self) -> int:
        """Number of samples with labels."""
        return sum(len(self._domains[domain].paths) for domain in self.domains)

    @property
    def skipped(self) -> dict[str, str]:
        """Reason for each image that cannot be decoded, by path."""
        skipped = self.manifest.skipped
        return {
            path: skipped[image]
            for domain in self.table.domains
            for path, image in zip(domain.paths, domain.images, strict=True)
            if image in skipped
        }

    def shard_files(self) -> Iterator[tuple[Path, ShardFile]]:
        """Yield the path and the checksums of every shard file."""
        for name in self.models:
            for shard in self._shards(name):
                for file in shard.files.values():
                    yield self._folder(name) / file.file, file

    def is_complete(self) -> bool:
        """Whether every shard file exists; its content is not checked."""
        return all(path.is_file() for path, _ in self.shard_files())

    def model(self, name: str) -> StoredModel:
        """Return the record of a model."""
        if name not in self.manifest.models:
            raise InputError(unknown("the store", "model", name, self.models))
        return self.manifest.models[name]

    def local(self, name: str) -> dict[str, Any]:
        """Return timings and location of a model, as far as known."""
        return read_local(self.path, name)

    def milliseconds_per_image(self, name: str) -> float | None:
        """Return the time of a forward pass on the machine of the extraction, None if unknown."""
        value = self.local(name).get("milliseconds_per_image")
        return float(value) if isinstance(value, int | float) else None

    def class_embeddings(self, name: str) -> ClassEmbeddings | None:
        """Return the embeddings of the classes by the text tower of a model; None without them."""
        stored = self.model(name)
        return read_class_embeddings(self.path, name, stored.identity, stored.feature_dim)

    def images(self, domain: str) -> list[str]:
        """Return the identity (SHA-256 of the file) of the image of each row."""
        return self._domain(domain).images

    def paths(self, domain: str) -> list[str]:
        """Return the path of the image of each row."""
        return self._domain(domain).paths

    def label_texts(self, domain: str) -> list[str]:
        """Return the label of each row as text: its class, or see :meth:`Task.encode`."""
        labels = self._domain(domain).labels
        if labels is None:
            raise InputError(
                f"the domain {domain!r} of the store {shown(self.path)!r} has no labels"
            )
        return labels

    def labels(self, domain: str) -> NDArray[Any]:
        """Return the label of each row.

        Of classes, their positions in `classes`, (rows,); otherwise numbers, or zeros and ones,
        (rows, outputs).
        """
        labels = self.label_texts(domain)
        if not self.task.one_class:
            try:
                return self.task.decode(labels)
            except (ValueError, TypeError, RecursionError) as error:
                raise InputError(
                    f"the store {shown(self.path)!r} is damaged: {domain!r} has labels that do "
                    f"not fit its task, {self.task.kind}: {one_line(error)}; restore them with "
                    f"`oodzoo store sync {typed(shown(self.path))} DATA`"
                ) from error
        position = {label: at for at, label in enumerate(self.classes)}
        return np.array([position[label] for label in labels], np.int64)

    def groups(self, domain: str) -> list[str | None]:
        """Return the group of each row; None for a row without one."""
        return self._domain(domain).groups

    def metadata(self, domain: str) -> dict[str, list[str | None]]:
        """Return the further columns of the rows, which domains can be proposed by."""
        return self._domain(domain).metadata

    def has_features(self, model: str, domain: str) -> bool:
        """Whether a model has features of every image of a domain."""
        rows = self.coverage(model).rows
        return all(image in rows for image in self._domain(domain).images)

    def blocks(
        self, model: str, domain: str, output: str = "features", *, rows: int = BLOCK_ROWS
    ) -> Iterator[Array]:
        """Yield the outputs of a model for a domain, in blocks of rows ordered by path.

        The blocks do not depend on how the rows are spread over the files of the store.
        """
        places = self._places(model, domain)
        for start in range(0, len(places), rows):
            yield self._gather(model, places[start : start + rows], output)

    def features(self, model: str, domain: str) -> Array:
        """Load all features of a domain, (rows, feature_dim)."""
        return self._gather(model, self._places(model, domain), "features")

    def logits(self, model: str, domain: str) -> Array:
        """Load all logits of a domain, (rows, n_logits)."""
        return self._gather(model, self._places(model, domain), "logits")

    def gather(self, model: str, images: list[str], output: str) -> Array:
        """Load the rows of some images, given by their identities."""
        return self._gather(model, self._located(model, images), output)

    def _gather(self, model: str, places: Places, output: str) -> Array:
        stored = self.model(model)
        if output not in stored.widths:
            raise InputError(f"model {model!r} has no {output} in the store")
        folder, shards = self._folder(model), self._shards(model)
        return gather_rows(self.path, folder, stored, shards, self.index.shards, places, output)

    def coverage(self, model: str) -> Coverage:
        """Return the images that a model has rows of."""
        return self._coverages.of(self.index.shards, self._shards(model))

    def checksums(self, model: str, domain: str) -> list[str]:
        """Return the SHA-256 of the files that have rows of a domain."""
        shards = self._shards(model)
        used = np.unique(self._places(model, domain)[:, 0]).tolist()
        return [file.sha256 for number in used for file in shards[number].files.values()]

    def samples_digest(self, domain: str) -> str:
        """Return a digest of the images of a domain, in the order of the rows."""
        if domain not in self._digests:
            images = "\n".join(self._domain(domain).images)
            self._digests[domain] = hashlib.sha256(images.encode()).hexdigest()
        return self._digests[domain]

    def _places(self, model: str, domain: str) -> Places:
        """Return the places of a domain's rows; models with the same shards share them."""
        key = (id(self.coverage(model)), domain)
        if key not in self._known_places:
            self._known_places[key] = self._located(model, self._domain(domain).images)
        return self._known_places[key]

    def _located(self, model: str, images: list[str]) -> Places:
        try:
            return self.coverage(model).places(images)
        except KeyError as error:
            image = str(error.args[0])
            domain, path = self.table.places().get(image, ("", image))
            raise InputError(
                f"the store {shown(self.path)!r} has no features of {path!r} ({domain!r}) with "
                f"model {model!r}; compute them with oodzoo extract"
            ) from error

    def _shards(self, model: str) -> list[Shard]:
        stored = self.model(model)
        if model not in self._lists:
            listed = read_list(self.path, self._folder(model), stored.shards)
            for shard in listed:
                self._require_valid(stored, shard)
            self._lists[model] = listed
        return self._lists[model]

    def _require_valid(self, stored: StoredModel, shard: Shard) -> None:
        """Reject a shard that does not match the index or the model."""
        images = self.index.shards.get(shard.shard, [])
        if (
            shard.shard not in self.index.shards
            or shard.images != self.index.digest(shard.shard)
            or shard.files.keys() != stored.widths.keys()
            or not shard.absent.keys() <= set(range(len(images)))
        ):
            raise InputError(
                f"the store {shown(self.path)!r} is damaged: the shard {shard.shard!r} of model "
                f"{stored.name!r} does not match the index; {repair_advice(self.path)}"
            )

    def _folder(self, model: str) -> Path:
        return self.path / MODELS / model

    def _domain(self, name: str) -> TableDomain:
        if name not in self._domains:
            self.table.domain(name)  # raises
        return self._domains[name]


def _require_store(path: Path) -> None:
    if is_missing(path):
        raise InputError(
            f"no such feature store: {shown(path)!r}; create one with oodzoo extract or "
            "oodzoo import"
        )
    if (path / MANIFEST).is_file():
        return
    if has_lost_manifest(path):
        raise InputError(
            f"the store {shown(path)!r} has lost its manifest.json; {repair_advice(path)}"
        )
    what = mistaken_folder(path, "store")
    raise InputError(
        f"{shown(path)!r} is not a feature store: "
        + (what or "it has no manifest.json; make one with oodzoo extract")
    )


def _read(path: Path) -> tuple[Manifest, SampleTable]:
    """Read the manifest and its table; both anew if a writer replaces them meanwhile."""
    for attempt in range(5):
        manifest = read_manifest(path)
        if manifest.table is None:
            break
        if attempt == 4 or table_file(path, manifest.table).exists():
            return manifest, read_table(path, manifest.table, manifest.samples)
    if manifest.models:
        raise InputError(
            f"the manifest of the store {shown(path)!r} names no table of samples; restore it with "
            f"`oodzoo store sync {typed(shown(path))} DATA`"
        )
    return manifest, SampleTable([])
