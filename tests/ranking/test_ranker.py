"""Ranking from arrays and from a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.events.heard import Heard
from tests.ranking.data import Arrays, saved, simulate_models

import oodzoo
from oodzoo.ranking.ranker import rank_for_test_domains
from oodzoo.store.local import update_local
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import writing


def test_less_noise_ranks_higher() -> None:
    data = simulate_models({"poor": 4.0, "best": 0.3, "fair": 1.5})
    ranking = oodzoo.rank(*data)
    assert [row.model for row in ranking.rows] == ["best", "fair", "poor"]
    assert [row.rank for row in ranking.rows] == [1, 2, 3]
    assert ranking.best == "best"
    accuracies = [row.expected_accuracy for row in ranking.rows]
    assert accuracies == sorted(accuracies, reverse=True)
    for row in ranking.rows:
        low, high = row.accuracy_interval
        assert 0 <= low <= row.expected_accuracy <= high <= 100


def test_the_events_of_a_ranking() -> None:
    data = simulate_models({"poor": 4.0, "best": 0.3})
    heard = Heard()
    ranking = oodzoo.rank(*data, score="zood", listener=heard)
    [(stage, start)] = heard.of("start")
    assert (stage, start["score"], start["models"]) == ("ranking", "zood", ["poor", "best"])
    assert (start["domains"], start["images"]) == (["d0", "d1", "d2", "d3"], len(data[1]))
    assert heard.steps() == [(0, 2), (1, 2), (2, 2)]
    expected = {f"{row.model}/score": row.score for row in ranking.rows}
    expected |= {f"{row.model}/expected_accuracy": row.expected_accuracy for row in ranking.rows}
    assert heard.metrics("ranking") == expected
    assert heard.of("end")[0][1]["result"] == ranking


def test_a_ranking_that_fails_says_why() -> None:
    heard = Heard()

    def refuse(X: Any, y: Any) -> float:
        raise RuntimeError("out of memory")

    with pytest.raises(oodzoo.InputError):
        oodzoo.rank(*simulate_models({"a": 0.5, "b": 2.0}), score=refuse, listener=heard)
    assert heard.outline() == [("ranking", "start"), ("ranking", "failed")]
    assert "out of memory" in heard.of("end")[0][1]["error"]


def test_zood_is_made_of_its_two_terms() -> None:
    ranking = oodzoo.rank(*simulate_models({"a": 0.5, "b": 2.0}), score="zood")
    for row in ranking.rows:
        assert row.score == pytest.approx(row.discriminability + row.stability / 9)
        assert row.score == pytest.approx(np.mean([fold.score for fold in row.folds]))
        assert [fold.domain for fold in row.folds] == ["d0", "d1", "d2", "d3"]


@pytest.mark.parametrize("score", ["discriminability", "stability", "accuracy"])
def test_its_parts_rank_too(score: str) -> None:
    ranking = oodzoo.rank(*simulate_models({"a": 0.5, "b": 2.0, "c": 1.0}), score=score)
    scores = [row.score for row in ranking.rows]
    assert scores == sorted(scores, reverse=True)
    if score == "accuracy":  # the first model is expected to do worse than it did
        assert scores[1:] == pytest.approx([r.expected_accuracy / 100 for r in ranking.rows[1:]])
    else:
        assert scores == pytest.approx([getattr(row, score) for row in ranking.rows])


def test_printed_formula() -> None:
    from oodzoo.moments import Moments
    from oodzoo.ranking.folds import leave_one_domain_out

    features, y, domains = simulate_models({"a": 0.5})
    parts = {d: (features["a"][domains == d], y[domains == d]) for d in np.unique(domains)}
    folds = leave_one_domain_out(
        {d: Moments.of(*part, n_classes=3) for d, part in parts.items()},
        lambda d: [parts[d]],
        stability="paper",
    )
    ranking = oodzoo.rank(features, y, domains, score="zood", stability="paper")
    expected = np.mean(
        [(fold.discriminability + fold.spread_ratio * fold.stability) for fold in folds]
    )
    assert ranking.rows[0].score == pytest.approx(expected)


def test_the_same_model_twice_is_tied() -> None:
    features, y, domains = simulate_models({"a": 0.5, "far": 8.0})
    ranking = oodzoo.rank({**features, "twin": features["a"].copy()}, y, domains)
    rows = {row.model: row for row in ranking.rows}
    assert rows["a"].tied == ("twin",)
    assert rows["a"].rank_interval == rows["twin"].rank_interval == (1, 2)
    assert rows["far"].rank_interval == (3, 3)


@pytest.mark.parametrize("seed", range(12))
def test_a_rotated_model_is_tied_with_itself(seed: int) -> None:
    """Their scores differ by rounding alone."""
    features, y, domains = simulate_models({"a": 0.5, "far": 8.0}, seed=seed)
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(6, 6)))[0]
    ranking = oodzoo.rank({**features, "turned": features["a"] @ rotation}, y, domains)
    (row,) = (row for row in ranking.rows if row.model == "turned")
    assert row.tied == ("a",)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_order_of_samples_models_and_names_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, y, domains = simulate_models({"a": 0.5, "b": 1.5, "c": 1.0}, n=24, seed=seed)
    order = rng.permutation(len(y))
    shuffled = {name: features[name][order] for name in rng.permutation(list(features))}
    classes = np.array(["z", "x", "y"])  # also another order of the classes
    one = oodzoo.rank(features, y, domains)
    other = oodzoo.rank(shuffled, classes[y][order], domains[order])
    assert [row.model for row in one.rows] == [row.model for row in other.rows]
    for row, same in zip(one.rows, other.rows, strict=True):
        assert row.score == pytest.approx(same.score, rel=1e-8)
        assert row.rank_interval == same.rank_interval


def test_a_model_more_changes_no_zood_score() -> None:
    features, y, domains = simulate_models({"a": 0.5, "b": 1.5})
    alone = oodzoo.rank({"a": features["a"]}, y, domains, score="zood").rows[0]
    both = oodzoo.rank(features, y, domains, score="zood")
    (beside,) = (row for row in both.rows if row.model == "a")
    assert alone.score == beside.score


def test_groups_widen_the_intervals() -> None:
    features, y, domains = simulate_models({"a": 1.0, "b": 1.2}, n=60, n_domains=2)
    repeated = {name: np.repeat(f, 4, axis=0) for name, f in features.items()}
    groups = [str(g) for g in np.repeat(np.arange(len(y)), 4)]
    data = (repeated, np.repeat(y, 4), np.repeat(domains, 4))
    one, other = (
        oodzoo.rank(*data, score="accuracy"),
        oodzoo.rank(*data, score="accuracy", groups=groups),
    )

    def widths(ranking: oodzoo.Ranking) -> list[float]:
        return [row.accuracy_interval[1] - row.accuracy_interval[0] for row in ranking.rows]

    assert all(w <= v for w, v in zip(widths(one), widths(other), strict=True))


def test_groups_are_taken_by_position() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is an extra")
    features, y, domains = simulate_models({"a": 1.0}, n=30)
    groups = np.random.default_rng(0).integers(0, 20, len(y)).astype(str)
    series = pandas.Series(groups, index=np.random.default_rng(1).permutation(len(y)))
    assert oodzoo.rank(features, y, domains, groups=series) == oodzoo.rank(
        features, y, domains, groups=groups.tolist()
    )


def test_lists_and_frames_are_arrays_too() -> None:
    features, y, domains = simulate_models({"a": 1.0})
    expected = oodzoo.rank(features, y, domains)
    assert oodzoo.rank({"a": features["a"].tolist()}, y.tolist(), domains.tolist()) == expected
    pandas = pytest.importorskip("pandas", reason="pandas is an extra")
    frame, labels = pandas.DataFrame(features["a"]), pandas.Series(y)
    assert oodzoo.rank({"a": frame}, labels, pandas.Series(domains)) == expected


def test_a_class_of_one_domain_is_reported() -> None:
    features, y, domains = simulate_models({"a": 0.5})
    y = y.copy()
    y[np.flatnonzero(domains == "d1")[:5]] = 7
    (row,) = oodzoo.rank(features, y, domains).rows
    assert {fold.domain: fold.skipped for fold in row.folds if fold.skipped} == {"d1": ("7",)}


def test_store_and_arrays_agree(tmp_path: Path) -> None:
    data = simulate_models({"a": 0.5, "b": 1.5})
    data = ({k: v.astype(np.float32) for k, v in data[0].items()}, *data[1:])
    from_arrays, from_store = oodzoo.rank(*data), oodzoo.rank(saved(tmp_path, *data))
    for row, same in zip(from_arrays.rows, from_store.rows, strict=True):
        assert row.score == pytest.approx(same.score, rel=1e-9)


def test_second_ranking_reads_the_cache(tmp_path: Path) -> None:
    store = saved(tmp_path, *simulate_models({"a": 0.5, "b": 1.5}))
    first = oodzoo.rank(store)
    files = sorted((store.path / "cache").rglob("*.npz"))
    before = [file.stat().st_mtime_ns for file in files]
    assert oodzoo.rank(store) == first
    assert [file.stat().st_mtime_ns for file in files] == before
    assert {file.parent.name for file in files} == {"folds", "moments"}


@pytest.mark.parametrize("damage", [b"", b"not a zip file"])
def test_damaged_cache_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    store = saved(tmp_path, *simulate_models({"a": 0.5}))
    first = oodzoo.rank(store)
    for file in (store.path / "cache").rglob("*.npz"):
        file.write_bytes(damage)
    assert oodzoo.rank(store) == first


def test_cache_does_not_outlive_the_labels(tmp_path: Path) -> None:
    features, y, domains = simulate_models({"a": 0.5})
    store = saved(tmp_path, features, y, domains)
    oodzoo.rank(store)
    first, *others = store.table.domains
    assert first.labels
    with writing(store.path) as writer:
        changed = msgspec.structs.replace(first, labels=first.labels[::-1])
        writer.set_table(SampleTable([changed, *others]))
        writer.finish()
    flipped = y.copy()
    flipped[:40] = flipped[:40][::-1]
    expected = oodzoo.rank({"a": features["a"].astype(np.float32)}, flipped, domains)
    again = oodzoo.rank(oodzoo.FeatureStore(store.path))
    assert again.rows[0].score == pytest.approx(expected.rows[0].score, rel=1e-9)


def test_ranking_without_each_test_domain() -> None:
    features, y, domains = simulate_models({"a": 0.5, "b": 1.5, "c": 4.0})
    rankings = rank_for_test_domains(features, y, domains)
    for test, ranking in rankings.items():
        keep = domains != test
        alone = oodzoo.rank({k: v[keep] for k, v in features.items()}, y[keep], domains[keep])
        for row, same in zip(ranking.rows, alone.rows, strict=True):
            assert row.model == same.model
            assert row.score == pytest.approx(same.score, rel=1e-9)


def test_other_scores_rank_a_store(tmp_path: Path) -> None:
    features, y, domains = simulate_models({"a": 0.5, "b": 3.0})
    good = 4 * np.eye(3)[y]
    store = saved(tmp_path, features, y, domains, **{"a.logits": good})
    for name in oodzoo.scores.names():
        if name in ("leep", "nce"):
            ranking = oodzoo.rank(store, score=name)
            assert [row.model for row in ranking.rows] == ["a"]
            assert "classifier head" in ranking.left_out["b"]
        elif oodzoo.scores.get(name).needs == "class_embeddings":
            with pytest.raises(
                oodzoo.InputError, match="embeddings of the classes by a text tower"
            ):
                oodzoo.rank(store, score=name)
        else:
            ranking = oodzoo.rank(store, score=name)
            assert len(ranking) == 2
            assert ranking.rows[0].rank_interval is None
    X = np.concatenate([store.features("a", d) for d in store.domains])
    labels = np.concatenate([store.labels(d) for d in store.domains])
    (row,) = (row for row in oodzoo.rank(store, score="logme").rows if row.model == "a")
    assert row.score == pytest.approx(oodzoo.scores.logme(X, labels))


def test_pareto_optimal_models(tmp_path: Path) -> None:
    store = saved(tmp_path, *simulate_models({"good": 0.3, "bad": 5.0, "middle": 1.0}))
    speeds = {"good": 10.0, "bad": 20.0, "middle": 1.0}
    for name, milliseconds in speeds.items():
        update_local(store.path, name, {"milliseconds_per_image": milliseconds})
    optimal = {row.model for row in oodzoo.rank(store).rows if row.pareto_optimal}
    assert optimal == {"good", "middle"}


def test_pytorch_agrees() -> None:
    pytest.importorskip("torch", reason="PyTorch is an extra")
    data = simulate_models({"a": 0.5, "b": 1.5})
    for row, same in zip(
        oodzoo.rank(*data).rows, oodzoo.rank(*data, device="cpu").rows, strict=True
    ):
        assert row.score == pytest.approx(same.score, rel=1e-9)
        assert row.rank_interval == same.rank_interval


def test_domain_with_one_class_and_class_of_one_domain() -> None:
    features, y, domains = simulate_models({"a": 0.5})
    y = y.copy()
    y[domains == "d0"] = 2
    y[np.flatnonzero(domains == "d1")[:5]] = 7
    (row,) = oodzoo.rank(features, y, domains).rows
    assert np.isfinite(row.score)
    assert np.isfinite(row.expected_accuracy)


# --- bad input ---------------------------------------------------------------------------------


def features_with(value: float) -> Arrays:
    features = simulate_models({"a": 0.5})[0]
    features["a"][3, 2] = value
    return features


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f, y, d: ({}, y, d), "got an empty dict"),
        (lambda f, y, d: (f, y[:-1], d), "y has 159 rows, 'domains' has 160"),
        (lambda f, y, d: (f, y, None), "need the label"),
        (lambda f, y, d: (f["a"], y, d), "features must be a dict .* got ndarray"),
        (lambda f, y, d: ({"a": f["a"][:, 0]}, y, d), r"must be \(n, d\)"),
        (lambda f, y, d: (features_with(np.nan), y, d), "'a', domain 'd0'.*is NaN"),
        (lambda f, y, d: (features_with(np.inf), y, d), "is infinite"),
        (
            lambda f, y, d: (f, y, np.full(len(y), "x")),
            "at least 2 domains are needed .* got 1: 'x'",
        ),
        (lambda f, y, d: (f, y + 0.5, d), "could be classes or numbers to predict; say which with"),
        (lambda f, y, d: (f, np.full(len(y), 0.5), d), "could be classes or numbers"),
        (lambda f, y, d: (f, [None, *y.astype(str)[1:]], d), "got None"),
        (lambda f, y, d: ({"a": None}, y, d), r"must be \(n, d\)"),
        (lambda f, y, d: ({"a": [[1.0], [1.0, 2.0]]}, y, d), "are not an array"),
        (lambda f, y, d: ({"domains": f["a"]}, y, d[:-1]), "'domains' has 159"),
    ],
)
def test_bad_input_gets_one_clear_line(change: Any, message: str) -> None:
    with pytest.raises(oodzoo.InputError, match=message) as caught:
        oodzoo.rank(*change(*simulate_models({"a": 0.5})))
    assert "\n" not in str(caught.value)


def test_unknown_score_and_stability() -> None:
    data = simulate_models({"a": 0.5})
    with pytest.raises(oodzoo.InputError, match="unknown score 'logmee'; did you mean logme"):
        oodzoo.rank(*data, score="logmee")
    with pytest.raises(oodzoo.InputError, match="unknown score 'acuracy'; did you mean accuracy"):
        oodzoo.rank(*data, score="acuracy")
    with pytest.raises(oodzoo.InputError, match="'mild'; expected one of robust, paper"):
        oodzoo.rank(*data, stability="mild")  # type: ignore[arg-type]


def test_ties_are_listed_best_first() -> None:
    noise = {name: 1.0 + 0.02 * at for at, name in enumerate("dcba")}
    rows = oodzoo.rank(*simulate_models(noise)).rows
    order = [row.model for row in rows]
    assert max(len(row.tied) for row in rows) > 1
    for row in rows:
        assert list(row.tied) == sorted(row.tied, key=order.index)


@pytest.mark.parametrize("score", ["zood", "accuracy", "logme"])
def test_one_class_only(score: str) -> None:
    X, domains = np.random.default_rng(0).normal(size=(60, 4)), np.repeat(["a", "b", "c"], 20)
    for ranked in (oodzoo.rank, rank_for_test_domains):
        with pytest.raises(oodzoo.InputError, match=r"one class, 'cat' \(60 samples\)"):
            ranked({"m": X}, ["cat"] * 60, domains, score=score)


def test_a_large_offset_is_warned_of_each_time(tmp_path: Path) -> None:
    features, y, domains = simulate_models({"far": 0.5, "near": 0.5})
    features["far"] = features["far"] + 1e5
    store = saved(tmp_path, features, y, domains)
    for _ in range(2):
        for ranked in (oodzoo.rank, rank_for_test_domains):
            with pytest.warns(
                UserWarning, match="model 'far': the mean of the features is"
            ) as said:
                ranked(store)
            assert len(said) == 1
            assert "centre or standardise them" in str(said[0].message)


def test_a_large_offset_does_not_hide_the_features() -> None:
    features, y, domains = simulate_models({"m": 0.3})
    (expected,) = oodzoo.rank(features, y, domains).rows
    with pytest.warns(
        UserWarning, match=r"model 'm': the mean of the features is [12]e[+]06 times"
    ):
        (found,) = oodzoo.rank({"m": features["m"] + 1e6}, y, domains).rows
    assert expected.expected_accuracy > 80
    assert found.expected_accuracy > expected.expected_accuracy - 5
