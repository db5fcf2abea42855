"""Some domains of a source, as if there were no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from oodzoo.features.importing import import_features
from oodzoo.features.source import ArraySource, FeatureSource, StoreSource


def both(folder: Path) -> list[FeatureSource]:
    rng = np.random.default_rng(0)
    domains = np.repeat(["a", "b", "c"], 6)
    y = np.array(["0", "1", "2"] * 2 + ["1", "2"] * 3 + ["3", "2"] * 3)
    features = {"net": rng.normal(size=(18, 4)).astype(np.float32)}
    arrays: dict[str, Any] = {"labels": y, "domains": domains, **features}
    np.savez(folder / "f.npz", **arrays)
    store = import_features([folder / "f.npz"], folder / "store")
    return [ArraySource(features, y, domains), StoreSource(store)]


def test_only_some_domains_and_their_classes(tmp_path: Path) -> None:
    for source in both(tmp_path):
        part = source.only(["c", "b"])
        assert part.domains == ("c", "b")
        assert part.classes == ("1", "2", "3")
        assert part.labels("c").tolist() == [2, 1] * 3
        assert part.labels("b").tolist() == [0, 1] * 3
        for domain in part.domains:
            ((features, labels),) = part.shards("net", domain)
            ((same, _),) = source.shards("net", domain)
            assert np.array_equal(features, same)
            assert np.array_equal(labels, part.labels(domain))
        # what it was made of has not changed, and a part of a part is a part
        assert source.classes == ("0", "1", "2", "3")
        assert source.labels("c").tolist() == [3, 2] * 3
        assert part.only(["b"]).classes == ("1", "2")


def test_arrays_are_cached_for_the_domains_of_a_view(tmp_path: Path) -> None:
    _, source = both(tmp_path)
    assert isinstance(source, StoreSource)
    calls: list[tuple[str, ...]] = []

    def sizes(view: FeatureSource) -> None:
        def compute() -> dict[str, np.ndarray]:
            calls.append(view.domains)
            return {"n": np.array(len(view.domains))}

        assert view.cached("sizes", ["net"], compute)["n"] == len(view.domains)

    for _ in range(2):
        for view in (source, source.only(["a", "b"]), source.only(["b", "c"])):
            sizes(view)
    assert calls == [source.domains, ("a", "b"), ("b", "c")]
