"""Reading a store of the first form (schema 1), which grouped rows by domain.

Layout on disk::

    STORE/images.json                            the image of each row
    STORE/skipped/<domain>/shard-00000.json      unreadable images of a shard
    STORE/<model>/model.json                     description of the model
    STORE/<model>/<domain>/shard-00000.features.npy, shard-00000.logits.npy
    STORE/manifest.json                          complete models, with checksums
    STORE/local.json                             timings and locations
"""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from oodzoo._io import (
    file_digest,
    read_json,
    require_folder_name,
    require_schema,
    shown,
    structured,
)
from oodzoo._text import count
from oodzoo.data.listing import Sample
from oodzoo.errors import InputError
from oodzoo.store.index import ImageIndex
from oodzoo.store.local import as_facts
from oodzoo.store.manifest import Manifest, ModelRecord
from oodzoo.store.places import MANIFEST, require_no_links
from oodzoo.store.shards import Shard, ShardFile, images_digest
from oodzoo.store.table import SampleTable

FIRST_SCHEMA = 1

_LONGEST_NAME = 180


class _Domain(msgspec.Struct):
    name: str
    paths: list[str] = msgspec.field(name="path")
    labels: list[str] = msgspec.field(name="label")
    groups: list[str | None] = msgspec.field(name="group")
    digests: list[str | None] = msgspec.field(name="sha256")
    shards: list[int]

    def __post_init__(self) -> None:
        if not self.name.encode():  # which fails if it is no text
            raise ValueError("a domain has no name")
        columns = (self.labels, self.groups, self.digests)
        if any(len(column) != len(self.paths) for column in columns):
            raise ValueError(f"the columns of {self.name!r} differ in length")
        if sum(self.shards) != len(self.paths) or min(self.shards, default=0) < 0:
            raise ValueError(f"the shards of {self.name!r} do not add up to its images")

    def ranges(self) -> list[range]:
        ends = itertools.accumulate(self.shards)
        return [range(end - n, end) for end, n in zip(ends, self.shards, strict=True)]


class _Index(msgspec.Struct):
    domains: list[_Domain]


class _Data(msgspec.Struct):
    images: dict[str, int]
    index: str = ""


class _Manifest(msgspec.Struct):
    data: _Data
    models: dict[str, dict[str, Any]]


class FirstForm(msgspec.Struct, frozen=True):
    """A store of the first form, in the terms of the second.

    `shards` has the shards of each model; their files are relative to the folder of the model.
    """

    manifest: Manifest
    table: SampleTable
    index: ImageIndex
    shards: dict[str, list[Shard]]


def is_first_form(store: Path) -> bool:
    """Whether a folder is a store of the first form, finished or not."""
    try:
        return read_json(store / MANIFEST, "the manifest").get("schema") == FIRST_SCHEMA
    except InputError:  # missing or damaged
        return (store / "images.json").is_file()


def read_first_form(store: Path) -> FirstForm:
    """Read the complete models of a store."""
    found, index = _read_documents(store)
    # an extraction may have appended images before it was interrupted
    index = _truncated(store, index, found.data.images)
    absent = _read_skipped(store, index)
    samples, unreadable = [], {}
    for domain in index.domains:
        reasons = absent[domain.name]
        repaired = {path for row, path in enumerate(domain.paths) if row not in reasons}
        for row, path in enumerate(domain.paths):
            if row in reasons and path in repaired:
                continue
            sample = Sample(path, domain.name, domain.labels[row], domain.groups[row])
            samples.append((sample, _image(domain, row)))
            if row in reasons:
                unreadable[_image(domain, row)] = reasons[row]
    models, shards = {}, {}
    for name, document in found.models.items():
        record = _record(store, name, document)
        models[name] = record.stored(name, unreadable=unreadable)
        shards[name] = _complete(store, name, record, document, index, absent)
    return FirstForm(
        Manifest(models=models),
        SampleTable.of_samples(samples),
        ImageIndex({}, _images(index)),
        shards,
    )


def read_all_shards(store: Path) -> tuple[dict[str, list[str]], dict[str, FirstModel]]:
    """Read the index with all images, and all shards on disk, also of unfinished models."""
    found, index = _read_documents(store)
    absent = _read_skipped(store, index)
    models = {}
    for name in sorted(file.parent.name for file in store.glob("*/model.json")):
        document = read_json(
            require_no_links(store, store / name / "model.json"), "the record of a model"
        )
        record = _record(store, name, document)
        stated = _stated(store, found.models.get(name, {}))
        models[name] = FirstModel(record, _existing(store, name, record, stated, index, absent))
    return _images(index), models


class FirstModel(NamedTuple):
    """A model and its shards, with the checksums of the manifest, or of the files that exist."""

    record: ModelRecord
    shards: list[Shard]


def first_form_files(store: Path) -> list[Path]:
    """List the files of the first form in a store."""
    folders = [file.parent for file in store.glob("*/model.json")]
    files = [store / "images.json", store / "local.json", *store.glob("skipped/*/shard-*.json")]
    for folder in folders:
        # the record last: a folder without it would not be found again
        files += [*folder.glob("*/shard-*.npy"), folder / "model.json"]
    return [file for file in files if file.is_file()]


def index_matches(store: Path) -> bool:
    """Whether images, labels and skipped images match the digest in the manifest."""
    found, index = _read_documents(store)
    index = _truncated(store, index, found.data.images)
    text = json.dumps([msgspec.to_builtins(index), _read_skipped(store, index)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest() == found.data.index


def read_local(store: Path, model: str) -> dict[str, Any]:
    """Read timings and location of a model; empty if the file is missing or damaged."""
    try:
        path = require_no_links(store, store / "local.json")
        return as_facts(read_json(path, "the facts of models").get("models", {}).get(model, {}))
    except (InputError, AttributeError):
        return {}


def _read(store: Path, file: str, what: str) -> dict[str, Any]:
    document = read_json(require_no_links(store, store / file), what)
    advice = "extract the features again into a new store"
    require_schema(document, FIRST_SCHEMA, f"the store {shown(store)!r}", advice)
    return document


def _read_documents(store: Path) -> tuple[_Manifest, _Index]:
    manifest = _Manifest(_Data({}), {})
    if (store / MANIFEST).is_file():
        manifest = structured(_read(store, MANIFEST, "the manifest"), _Manifest, _damaged(store))
    index = structured(_read(store, "images.json", "the image index"), _Index, _damaged(store))
    return manifest, index


def _damaged(store: Path) -> str:
    return f"the store {shown(store)!r}"


def _truncated(store: Path, index: _Index, counts: dict[str, int]) -> _Index:
    domains = []
    for domain in index.domains:
        n = counts.get(domain.name, 0)
        if n:
            shards = [len(rows) for rows in domain.ranges() if rows.stop <= n]
            if sum(shards) != n:
                raise InputError(
                    f"the store {shown(store)!r} is damaged: its manifest has {count(n, 'image')} "
                    f"of {domain.name!r}, which is not the end of a shard; use a new store"
                )
            domains.append(
                _Domain(
                    domain.name,
                    domain.paths[:n],
                    domain.labels[:n],
                    domain.groups[:n],
                    domain.digests[:n],
                    shards,
                )
            )
    return _Index(domains)


def _read_skipped(store: Path, index: _Index) -> dict[str, dict[int, str]]:
    """Read why images were skipped, by domain and position in the domain."""
    found: dict[str, dict[int, str]] = {}
    for domain in index.domains:
        found[domain.name] = {}
        for number, rows in enumerate(domain.ranges()):
            path = store / "skipped" / folder_name(domain.name) / f"shard-{number:05d}.json"
            if require_no_links(store, path).is_file():
                what = f"the list of skipped images {shown(path)!r}"
                reasons = structured(read_json(path, what), dict[int, str], what)
                found[domain.name] |= {rows.start + at: why for at, why in reasons.items()}
    return found


def _record(store: Path, name: str, document: dict[str, Any]) -> ModelRecord:
    require_folder_name(name, _damaged(store))
    fields = {key: value for key, value in document.items() if key != "shards"}
    return structured(fields, ModelRecord, _damaged(store))


def _stated(store: Path, document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    kind = dict[str, list[dict[str, Any]]]
    return structured(document.get("shards", {}), kind, _damaged(store))


def _complete(
    store: Path,
    name: str,
    record: ModelRecord,
    document: dict[str, Any],
    index: _Index,
    absent: dict[str, dict[int, str]],
) -> list[Shard]:
    """List the shards of the manifest; reject those that do not match the index."""
    stated = _stated(store, document)
    shards = []
    for at, domain in enumerate(index.domains):
        records = stated.get(domain.name, [])
        n_images = len(domain.paths) - len(absent[domain.name])
        n_rows = sum(structured(s.get("rows", 0), int, _damaged(store)) for s in records)
        if n_rows != n_images or len(records) != len(domain.shards):
            raise InputError(
                f"the store {shown(store)!r} is damaged: model {name!r} has {count(n_rows, 'row')} "
                f"of {domain.name!r}, images.json lists {count(n_images, 'image')}; use a new store"
            )
        for number, (rows, shard) in enumerate(zip(domain.ranges(), records, strict=True)):
            digests = {output: str(shard.get(output)) for output in record.widths}
            shards.append(_shard_of(index, absent, at, number, rows, digests, record))
    if unknown := sorted(set(stated) - {domain.name for domain in index.domains}):
        raise InputError(
            f"the store {shown(store)!r} is damaged: model {name!r} has rows of {unknown[0]!r}, "
            "which images.json does not list; use a new store"
        )
    return shards


def _existing(
    store: Path,
    name: str,
    record: ModelRecord,
    stated: dict[str, list[dict[str, Any]]],
    index: _Index,
    absent: dict[str, dict[int, str]],
) -> list[Shard]:
    shards = []
    for at, domain in enumerate(index.domains):
        records = stated.get(domain.name, [])
        for number, rows in enumerate(domain.ranges()):
            files = {
                output: require_no_links(store, store / name / _file(domain.name, number, output))
                for output in record.widths
            }
            known = records[number] if number < len(records) else {}
            if known or all(path.is_file() for path in files.values()):
                digests = {
                    output: str(known.get(output) or file_digest(path))
                    for output, path in files.items()
                }
                shards.append(_shard_of(index, absent, at, number, rows, digests, record))
    return shards


def _shard_of(
    index: _Index,
    absent: dict[str, dict[int, str]],
    at: int,
    number: int,
    rows: range,
    digests: dict[str, str],
    record: ModelRecord,
) -> Shard:
    domain = index.domains[at]
    reasons = absent[domain.name]
    files = {
        output: ShardFile(_file(domain.name, number, output), digest)
        for output, digest in digests.items()
    }
    return Shard(
        _shard(at, number),
        files["features"],
        files.get("logits"),
        {row - rows.start: reasons[row] for row in rows if row in reasons},
        record.identity,
        images_digest([_image(domain, row) for row in rows]),
    )


def _images(index: _Index) -> dict[str, list[str]]:
    """Return the images of each shard."""
    return {
        _shard(at, number): [_image(domain, row) for row in rows]
        for at, domain in enumerate(index.domains)
        for number, rows in enumerate(domain.ranges())
    }


def _shard(domain: int, number: int) -> str:
    return f"{domain:05d}-{number:05d}"


def _file(domain: str, number: int, output: str) -> str:
    return f"{folder_name(domain)}/shard-{number:05d}.{output}.npy"


def _image(domain: _Domain, row: int) -> str:
    return domain.digests[row] or path_identity(domain.paths[row])


def path_identity(path: str) -> str:
    """Make an identity for a row that has no image file."""
    return hashlib.sha256(f"row\0{path}".encode()).hexdigest()


def folder_name(domain: str) -> str:
    """Return the folder of a domain: characters that a file system may reject are escaped."""
    name = quote(domain, safe=" !#$&'()+,;=@[]^_`{}~-.")
    if name == "model.json":  # a file next to the domain folders
        return "model%2Ejson"
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(domain.encode()).hexdigest()
        name = f"{name[: _LONGEST_NAME - 17]}%{digest[:16]}"
    if name[0] in ". ":  # hidden, or the parent folder
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if name[-1] in ". ":  # dropped by Windows
        name = f"{name[:-1]}%{ord(name[-1]):02X}"
    return name
