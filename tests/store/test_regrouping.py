"""Other domains for the samples of a store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.store.data import image, letters, unlabelled, values

from oodzoo.errors import InputError
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.places import SAMPLES
from oodzoo.store.regrouping import regroup_store
from oodzoo.store.writer import writing

TABLE = letters(day="abcde", night="fghi")
PATHS = [path for domain in TABLE.domains for path in domain.paths]
PARTS = {path: "xyz"[at % 3] for at, path in enumerate(PATHS)}


def test_features_follow_their_images(small: Path) -> None:
    regroup_store(small, PARTS, "camera")
    store = FeatureStore(small)
    assert (store.domains, store.domains_proposed) == (("x", "y", "z"), "camera")
    for domain in store.domains:
        assert store.paths(domain) == sorted(path for path in PATHS if PARTS[path] == domain)
        names = [Path(path).stem for path in store.paths(domain)]
        assert store.images(domain) == [image(name) for name in names]
        np.testing.assert_array_equal(
            store.features("m1", domain), values("m1", store.images(domain))
        )
    assert len(list((small / SAMPLES).iterdir())) == 1  # the old table is removed


def test_given_domains_come_back(small: Path) -> None:
    before = FeatureStore(small)
    regroup_store(small, PARTS, "camera")
    regroup_store(small, dict.fromkeys(PATHS, "one"), "site")
    given = FeatureStore(small).table.given_domains()
    assert given == {path: path.partition("/")[0] for path in PATHS}
    regroup_store(small, given, None)
    after = FeatureStore(small)
    assert after.table == before.table
    assert after.fingerprint == before.fingerprint


def test_samples_that_are_not_named_join_the_first_domain(small: Path) -> None:
    regroup_store(small, {PATHS[0]: "b", PATHS[1]: "a"}, "camera")
    store = FeatureStore(small)
    assert store.paths("b") == PATHS[:1]
    assert store.paths("a") == PATHS[1:]


def test_a_domain_without_labels_of_the_same_name(small: Path) -> None:
    with writing(small) as writer:
        writer.table = writer.table.replacing(unlabelled("x", "pq"))
        writer.finish()
    with pytest.raises(InputError, match="'x' has the name of a proposed domain"):
        regroup_store(small, PARTS, "camera")
    assert FeatureStore(small).domains == ("day", "night")


def test_the_same_data_set_again_keeps_proposed_domains(small: Path) -> None:
    regroup_store(small, PARTS, "camera")
    with writing(small) as writer:
        writer.set_table(TABLE)
        assert writer.table.proposed == "camera"
        with pytest.warns(UserWarning, match="were proposed by camera; its samples have changed"):
            writer.set_table(letters(day="abcdez", night="fghi"))
        assert [domain.name for domain in writer.table.domains] == ["day", "night"]
