"""Verifying the checksums of a feature store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oodzoo._io import file_digest, locked
from oodzoo.events import Progress
from oodzoo.features.store import FeatureStore, index_checksum


@dataclass(frozen=True)
class Damage:
    """A missing or changed file of a store; `path` is relative to the store."""

    path: str
    problem: str


@dataclass(frozen=True)
class Check:
    """Result of checking a store."""

    files: int
    damage: tuple[Damage, ...]
    unfinished: tuple[str, ...]
    """Models whose extraction has not finished."""


def check_store(
    path: str | Path, *, repair: bool = False, progress: Progress | None = None
) -> Check:
    """Compare every shard of a feature store with its checksum.

    With `repair`, damaged files are removed, so that the next extraction computes them again.
    """
    store = FeatureStore(path)
    expected = list(store.shard_files())
    damage = []
    for number, (file, checksum) in enumerate(expected, start=1):
        problem = _problem(store.path / file, checksum)
        if problem is not None:
            damage.append(Damage(file, problem))
        if progress is not None:
            progress(number, len(expected))
    if index_checksum(store.index, store.path) != store.manifest["data"].get("index"):
        damage.append(Damage("images.json", "does not match the manifest; rerun oodzoo extract"))
    started = {record.parent.name for record in store.path.glob("*/model.json")}
    if repair and damage:
        with locked(store.path):
            for entry in (d for d in damage if d.path.endswith(".npy")):
                (store.path / entry.path).unlink(missing_ok=True)
    return Check(len(expected), tuple(damage), tuple(sorted(started - set(store.models))))


def _problem(path: Path, checksum: str) -> str | None:
    try:
        found = file_digest(path)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return (
        None if found == checksum else f"has the sha256 {found[:12]}… instead of {checksum[:12]}…"
    )
