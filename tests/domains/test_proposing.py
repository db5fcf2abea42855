"""Proposals for a store: which, in which order, and how they are used and undone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from tests.domains.conftest import Hidden

import oodzoo
from oodzoo.domains import propose_domains, use_domains
from oodzoo.errors import InputError
from oodzoo.features.importing import import_features
from oodzoo.store.feature_store import FeatureStore


def features_of(store: Path) -> dict[str, str]:
    """The content of all files of features."""
    files = sorted(store.rglob("*.npy"))
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def domains_of(store: FeatureStore) -> dict[str, str]:
    return {path: domain for domain in store.domains for path in store.paths(domain)}


def test_columns_come_first_and_clusters_find_hidden_domains(hidden: Hidden) -> None:
    found = propose_domains(hidden.path, sensitivity=False)
    assert [each.name for each in found.proposals] == ["camera", "luck", "serial", "clusters:3"]
    camera, luck, serial, clusters = found.proposals
    assert found.recommended == "camera"
    assert camera.separability is not None
    assert luck.separability is not None
    assert camera.separability > 0.95 > 0.2 > luck.separability
    assert serial.reason == "another value for each image"
    paths = list(hidden.domains)
    assert adjusted_rand_score([hidden.domains[p] for p in paths], clusters.assignment) > 0.95
    assert found.stability[3] > 0.9


def test_sensitivity_covers_columns_clusters_and_a_random_split(hidden: Hidden) -> None:
    found = oodzoo.propose_domains(hidden.path)
    sensitivity = found.sensitivity
    assert sensitivity is not None
    assert sensitivity.chosen == "camera"
    # clusters:3 divides the samples as camera does
    assert sensitivity.first.keys() == {"camera", "luck", "clusters:2", "clusters:4", "random:3"}
    assert sensitivity.agreement.keys() == sensitivity.first.keys() - {"camera"}
    assert sensitivity.reference == "random:3"
    assert set(sensitivity.ranks) == {"m1", "m2", "m4"}
    assert "random:3" in str(found)
    assert sensitivity.verdict in str(found)
    assert json.loads(json.dumps(found.to_dict()))["sensitivity"]["chosen"] == "camera"


def test_rankings_are_those_of_the_domains_in_use(hidden: Hidden) -> None:
    found = propose_domains(hidden.path, chosen="luck")
    assert found.sensitivity is not None
    assert found.sensitivity.chosen == "luck"
    for name in ("luck", "clusters:2"):
        store = use_domains(hidden.path, name)
        assert oodzoo.rank(store).best == found.sensitivity.first[name]


def test_nothing_is_written_without_use(hidden: Hidden) -> None:
    before = FeatureStore(hidden.path).fingerprint
    propose_domains(hidden.path)
    assert FeatureStore(hidden.path).fingerprint == before


@pytest.mark.parametrize("name", ["camera", "clusters", "clusters:2"])
def test_domains_are_used_and_given_back(hidden: Hidden, name: str) -> None:
    before = FeatureStore(hidden.path)
    files = features_of(hidden.path)
    store = use_domains(hidden.path, name)
    expected = {"camera": "camera", "clusters": "3 clusters", "clusters:2": "2 clusters"}[name]
    assert (store.domains_proposed or "").startswith(expected)
    assert len(store.domains) == (2 if name == "clusters:2" else 3)
    if name == "camera":
        assert domains_of(store) == hidden.domains
    assert oodzoo.rank(store).domains_proposed == store.domains_proposed
    assert features_of(hidden.path) == files
    again = use_domains(hidden.path, "given")
    assert again.domains_proposed is None
    assert again.fingerprint == before.fingerprint
    assert again.table == before.table


def test_given_domains_survive_several_proposals(hidden: Hidden) -> None:
    for name in ("clusters", "camera", "luck"):
        store = use_domains(hidden.path, name)
        assert set(store.table.given_domains().values()) == {"all"}
    assert use_domains(hidden.path, "given").domains == ("all",)


def test_a_store_with_domains_is_a_what_if(hidden: Hidden) -> None:
    with_domains = use_domains(hidden.path, "camera")
    given = with_domains.table.regrouped(domains_of(with_domains), None)
    found = propose_domains(with_domains.with_table(given))
    assert found.recommended == "given"
    assert found.sensitivity is not None
    assert found.sensitivity.chosen == "given"
    assert domains_of(FeatureStore(hidden.path)) == hidden.domains


def test_bad_names(hidden: Hidden) -> None:
    with pytest.raises(InputError, match=r"no proposal 'camra'; .*: did you mean camera\?$"):
        use_domains(hidden.path, "camra")
    with pytest.raises(InputError, match=r"^the column 'serial' .* another value for each image"):
        use_domains(hidden.path, "serial")
    with pytest.raises(InputError, match="at least 2, got 1"):
        use_domains(hidden.path, "clusters:1")
    with pytest.raises(InputError, match="has no model 'm9'"):
        propose_domains(hidden.path, models=["m9"])


def test_domains_that_were_never_given(hidden: Hidden) -> None:
    use_domains(hidden.path, "camera")
    store = FeatureStore(hidden.path)
    for domain in store.table.labelled:
        del domain.metadata["domain"]
    with pytest.raises(InputError, match="had no domains; they are proposed by camera"):
        propose_domains(store.with_table(store.table), chosen="given")


def test_the_result_depends_on_the_seed_alone(hidden: Hidden) -> None:
    first, again = (propose_domains(hidden.path, seed=4).to_dict() for _ in range(2))
    assert first == again


def test_a_class_in_one_domain_is_noted(hidden: Hidden) -> None:
    store = FeatureStore(hidden.path)
    [domain] = store.table.domains
    cameras = domain.metadata["camera"]
    assert domain.labels is not None
    for row, camera in enumerate(cameras):
        if camera == "camera 1" and row % 4:
            domain.labels[row] = "owl"
    found = propose_domains(store.with_table(store.table), sensitivity=False, chosen="camera")
    [note] = found.notes
    assert note == (
        "By camera, class 'owl' is in 'camera 1' only: no other domain can teach it, and it is "
        "ignored where this one is left out."
    )


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_other_targets(tmp_path: Path, task: str) -> None:
    rng = np.random.default_rng(0)
    number, domain = rng.normal(size=120), np.arange(120) % 3
    signal = np.concatenate([6 * np.eye(3)[domain], 3 * number[:, None]], axis=1)
    arrays: dict[str, Any] = {
        f"m{noise}": signal @ rng.normal(size=(4, 6)) + noise * rng.normal(size=(120, 6))
        for noise in (1, 3)
    }
    several = np.where(number > 0.5, "cat|dog", np.where(number > -0.5, "cat", "dog"))
    arrays["labels"] = number if task == "regression" else several
    arrays["domains"] = np.array(["first", "second"])[rng.permutation(120) % 2]
    np.savez(tmp_path / "x.npz", **arrays)
    store = import_features([tmp_path / "x.npz"], tmp_path / "s", task=task)
    found = propose_domains(store, clusters=3)
    rows = [int(path.removeprefix("row-")) for d in store.domains for path in store.paths(d)]
    clusters = found.find("clusters:3")
    assert clusters is not None
    assert adjusted_rand_score(domain[rows], clusters.assignment) > 0.9
    assert found.sensitivity is not None
    assert set(found.sensitivity.first.values()) == {"m1"}
