"""A store with hidden domains, and its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from oodzoo.extraction.importing import import_features
from oodzoo.store.writer import writing

N = 240


class Hidden(NamedTuple):
    """A store with one domain, and the domain that each sample, by path, really has."""

    path: Path
    domains: dict[str, str]


@pytest.fixture
def hidden(tmp_path: Path) -> Hidden:
    """Three models that see both classes and domains; the store has columns but no domains."""
    rng = np.random.default_rng(0)
    labels = np.arange(N) % 2
    domains = np.arange(N) // 2 % 3
    signal = np.concatenate([6 * np.eye(3)[domains], np.eye(2)[labels]], axis=1)
    features = {
        f"m{noise}": (signal @ rng.normal(size=(5, 8)) + noise * rng.normal(size=(N, 8)))
        for noise in (1, 2, 4)
    }
    paths = np.array([f"{row:03d}" for row in range(N)])
    arrays: dict[str, Any] = {
        "labels": np.array(["cat", "dog"])[labels],
        "domains": np.array(["first", "second"] * (N // 2)),
        "paths": paths,
        **features,
    }
    np.savez(tmp_path / "features.npz", **arrays)
    store = tmp_path / "store"
    import_features([tmp_path / "features.npz"], store)
    columns: dict[str, list[str | None]] = {
        "camera": [f"camera {number}" for number in domains],
        "luck": [f"{number}" for number in rng.integers(0, 3, N)],
        "serial": [f"{row}" for row in range(N)],
    }
    with writing(store) as writer:
        one = writer.table.regrouped(dict.fromkeys(paths.tolist(), "all"), None)
        [domain] = one.domains
        changed = msgspec.structs.replace(domain, metadata=columns)
        writer.table = msgspec.structs.replace(writer.table, domains=[changed])
        writer.finish()
    return Hidden(store, dict(zip(paths.tolist(), map(str, columns["camera"]), strict=True)))
