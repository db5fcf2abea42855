"""Proposals for a store: which, in which order, how they are shown, used and undone."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from scipy.stats import weightedtau
from sklearn.metrics import adjusted_rand_score

import oodzoo
from oodzoo import InputError, propose_domains, use_domains
from oodzoo.data.proposals import Candidate
from oodzoo.extraction.importing import import_features
from oodzoo.ranking.proposing import CAUTION, DomainProposals, Sensitivity, compare_rankings
from oodzoo.ranking.ranking import Ranking
from oodzoo.store.feature_store import FeatureStore
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


def features_of(store: Path) -> dict[str, str]:
    """The content of all files of features."""
    files = sorted(store.rglob("*.npy"))
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def domains_of(store: FeatureStore) -> dict[str, str]:
    return {path: domain for domain in store.domains for path in store.paths(domain)}


def test_columns_come_first_and_clusters_find_hidden_domains(hidden: Hidden) -> None:
    before = FeatureStore(hidden.path).fingerprint
    found = propose_domains(hidden.path, seed=4)
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
    sensitivity = found.sensitivity
    assert sensitivity is not None
    assert (sensitivity.chosen, sensitivity.reference) == ("camera", "random:3")
    # clusters:3 divides the samples as camera does
    assert sensitivity.first.keys() == {"camera", "luck", "clusters:2", "clusters:4", "random:3"}
    assert sensitivity.agreement.keys() == sensitivity.first.keys() - {"camera"}
    assert set(sensitivity.ranks) == {"m1", "m2", "m4"}
    assert sensitivity.verdict in str(found)
    assert json.loads(json.dumps(found.to_dict()))["sensitivity"]["chosen"] == "camera"
    # the seed determines the result, and nothing is written
    assert propose_domains(hidden.path, seed=4).to_dict() == found.to_dict()
    assert FeatureStore(hidden.path).fingerprint == before


@pytest.mark.parametrize("name", ["camera", "clusters:2"])
def test_domains_are_used_and_given_back(hidden: Hidden, name: str) -> None:
    before = FeatureStore(hidden.path)
    files = features_of(hidden.path)
    store = use_domains(hidden.path, name)
    expected = {"camera": "camera", "clusters:2": "2 clusters"}[name]
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


def test_proposals_that_do_not_exist(hidden: Hidden) -> None:
    for name, words in (
        ("camra", r"no proposal 'camra'; .*: did you mean camera\?$"),
        ("serial", r"^the column 'serial' .* another value for each image"),
        ("clusters:1", "at least 2, got 1"),
    ):
        with pytest.raises(InputError, match=words):
            use_domains(hidden.path, name)
    with pytest.raises(InputError, match="has no model 'm9'"):
        propose_domains(hidden.path, models=["m9"])
    use_domains(hidden.path, "camera")
    store = FeatureStore(hidden.path)
    for domain in store.table.labelled:
        del domain.metadata["domain"]
    with pytest.raises(InputError, match="had no domains; they are proposed by camera"):
        propose_domains(store.with_table(store.table), chosen="given")


@pytest.mark.parametrize(
    ("owls", "words"),
    [
        ("owl", "class 'owl' is"),
        ("owl crow", "2 classes are each in a single domain; the first, 'crow', is"),
    ],
)  # fmt: skip
def test_a_class_in_one_domain_is_noted(hidden: Hidden, owls: str, words: str) -> None:
    store, names = FeatureStore(hidden.path), owls.split()
    [domain] = store.table.domains
    cameras = domain.metadata["camera"]
    assert domain.labels is not None
    for row, camera in enumerate(cameras):
        if camera == "camera 1" and row % 4:
            domain.labels[row] = names[row // 4 % len(names)]
    found = propose_domains(store.with_table(store.table), sensitivity=False, chosen="camera")
    [note] = found.notes
    assert note == (
        f"By camera, {words} in 'camera 1' only: no other domain can teach it, and it is "
        "ignored where this one is left out."
    )


def test_nothing_to_propose(tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(30, 3))
    arrays: dict[str, Any] = {"m": features, "labels": np.arange(30) % 2}
    np.savez(tmp_path / "x.npz", domains=np.array(["a", "b"] * 15), **arrays)
    store = import_features([tmp_path / "x.npz"], tmp_path / "s")
    one = store.table.regrouped(dict.fromkeys(domains_of(store), "all"), None)
    with pytest.raises(
        InputError, match=r"no domains can be proposed for .*too few for 2 clusters"
    ):
        propose_domains(store.with_table(one))


RNG = np.random.default_rng(0)


def ranking(scores: dict[str, float]) -> Ranking:
    """A ranking of models by given scores."""
    y, domains = np.tile([0, 1], 20), np.repeat(["a", "b"], 20)
    base = oodzoo.rank({m: RNG.normal(size=(40, 2)) for m in scores}, y, domains)
    order = sorted(scores, key=lambda model: -scores[model])
    rows = {row.model: row for row in base.rows}
    made = [
        dataclasses.replace(rows[model], rank=number + 1, score=scores[model])
        for number, model in enumerate(order)
    ]
    return dataclasses.replace(base, rows=tuple(made))


def compared() -> Sensitivity:
    return compare_rankings(
        {
            "camera": ranking({"x": 3, "y": 2, "z": 1}),
            "site": ranking({"x": 3, "y": 1, "z": 2}),
            "clusters:2": ranking({"x": 1, "y": 3, "z": 2}),
            "random:2": ranking({"x": 1, "y": 2, "z": 3}),
        },
        "camera",
        reference="random:2",
    )


def test_agreement_first_models_and_ranks() -> None:
    found = compared()
    for name, scores in {"site": [3, 1, 2], "clusters:2": [1, 3, 2], "random:2": [1, 2, 3]}.items():
        expected = pytest.approx(weightedtau([3, 2, 1], scores).statistic)
        assert found.agreement[name] == expected
    assert found.first == {"camera": "x", "site": "x", "clusters:2": "y", "random:2": "z"}
    # the random split does not count
    assert found.firsts == {"x": 2, "y": 1}
    assert found.ranks == {"x": (1, 3), "y": (1, 3), "z": (2, 3)}
    assert found.verdict == "The first model, x, is the same under 2 of 3 proposals."
    same, random = ranking({"x": 2, "y": 1}), ranking({"x": 1, "y": 2})
    one = compare_rankings({"a": same, "r": random}, "a", reference="r")
    assert one.verdict == "There is one proposal, a: nothing to compare its ranking with."


CAMERA = Candidate("camera", (), 2, {"canon": 30, "sony": 1200}, 1.0, 0.5, separability=0.8)
SERIAL = Candidate("serial", values=9, reason="another value for each image")
FOUND = DomainProposals(
    (CAMERA, SERIAL),
    "camera",
    {2: 0.9},
    ("A note.",),
    Sensitivity(
        "camera",
        "unseen",
        {"clusters:2": 0.5, "random:2": None},
        {"camera": "x", "clusters:2": "x", "random:2": "y"},
        {"x": (1, 1), "y": (2, 3)},
        "random:2",
        {},
    ),
)


def test_tables_lines_and_documents() -> None:
    header, rows = FOUND.table()
    assert header == ["proposal", "domains", "smallest", "classes", "evenness", "separable", ""]
    assert rows == [["camera", "2", "30", "100 %", "0.50", "0.80", "recommended"]]
    assert FOUND.sensitivity_table()[1] == [
        ["camera", "chosen", "x"], ["clusters:2", "0.50", "x"], ["random:2", "-", "y"]
    ]  # fmt: skip
    assert FOUND.rank_table()[1] == [["x", "2", "1"], ["y", "0", "2-3"]]
    lines = FOUND.lines()
    assert lines == [
        "serial cannot be used: another value for each image.",
        "A note.",
        "The first model, x, is the same under all 2 proposals.",
        CAUTION,
    ]
    assert all(line in str(FOUND) for line in [*lines, "weighted tau"])
    alone = DomainProposals((CAMERA,), "camera", {})
    assert "weighted tau" not in str(alone)
    assert alone.sensitivity_table()[1] == alone.rank_table()[1] == []
    assert repr(FOUND) == "DomainProposals(2 proposals, recommended 'camera')"
    assert repr(DomainProposals((), None, {})) == "DomainProposals(0 proposals, none can be used)"
    html = dataclasses.replace(FOUND, notes=("<b>",))._repr_html_()
    assert (html.count("<table"), html.count("<p>"), html.count("<b>")) == (3, len(lines), 0)
    document = FOUND.to_dict()
    assert [each["usable"] for each in document["proposals"]] == [True, False]
    assert (document["recommended"], document["stability"]) == ("camera", {"2": 0.9})
    assert document["sensitivity"]["firsts"] == {"x": 2}
    assert document["sensitivity"]["ranks"] == {"x": [1, 1], "y": [2, 3]}
    assert (FOUND.find("serial"), FOUND.find("site")) == (SERIAL, None)
