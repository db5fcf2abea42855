"""Fine-tuning without each held-out domain, images of a store, and the fine-tuned row.

An evaluation does not show the weights; its row is tested with made-up predictions, which are fast.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.evaluation.data import evaluated, stored, zoo
from tests.striped import SIZE, require_tuning, tiny_network, write_stripes

import oodzoo
from oodzoo.combining.evaluation import Evaluation, fine_tuning
from oodzoo.combining.evaluation.fine_tuning import (
    Request,
    TunedFold,
    find_images,
    fine_tune,
    n_runs,
    require_store,
    with_fine_tuned,
)
from oodzoo.combining.evaluation.protocol import _of_options
from oodzoo.combining.evaluation.rows import TunedFacts
from oodzoo.core.errors import InputError
from oodzoo.core.io import locked
from oodzoo.events import Listener, Stage
from oodzoo.extraction.features import ArraySource, StoreSource
from oodzoo.tuning.problem import TuneSettings
from oodzoo.tuning.tuner import Tuner

require_tuning()

SETTINGS = TuneSettings(learning_rates=(3e-2,), steps=6, batch_size=4, augment=False)
DOMAINS = ("blue", "green", "red")


def extracted(folder: Path, names: Sequence[str] = ("tiny",)) -> StoreSource:
    specs = [tiny_network(folder / "zoo", name, seed=at) for at, name in enumerate(names)]
    return StoreSource(oodzoo.extract(folder / "data", specs, folder / "store", device="cpu"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("striped")
    write_stripes(folder / "data")
    extracted(folder, ("tiny", "other"))
    return folder


@pytest.fixture
def source(folder: Path, tmp_path: Path) -> StoreSource:
    """A copy of the store, of which nothing is tuned."""
    return copied(folder, tmp_path / "copy")


@pytest.fixture(scope="module")
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TunedFold]:
    """What is found for all held-out domains."""
    source = copied(folder, tmp_path_factory.mktemp("whole") / "copy")
    return tuned(source, folder / "data")


def copied(folder: Path, target: Path) -> StoreSource:
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("cache"))
    return StoreSource(oodzoo.FeatureStore(target / "store"))


def tuned(
    source: StoreSource,
    data: Path,
    models: dict[str, str] | None = None,
    listener: Listener | None = None,
    **changes: Any,
) -> dict[str, TunedFold]:
    request = Request(find_images(source, data), SETTINGS, [], "cpu", None)
    with Stage(listener, "evaluation") as stage:
        return fine_tune(
            source, models or dict.fromkeys(DOMAINS, "tiny"), replace(request, **changes), stage
        )


class Steps(Listener):
    """Counts the steps of fine-tuning, and stops after some of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.n = 0
        self.models: list[str] = []
        self._stop_after = stop_after

    def start(self, stage: str, **facts: Any) -> None:
        if stage == "tuning":
            self.models.append(facts["model"])

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        if stage == "tuning" and not facts:
            self.n += 1
            if self.n == self._stop_after:
                raise KeyboardInterrupt


# --- runs ----------------------------------------------------------------------------------------


def test_runs_without_a_pair_serve_both_domains_and_are_kept(
    folder: Path, source: StoreSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, again, other = Steps(), Steps(), Steps()
    remove, removed = shutil.rmtree, list[Path]()

    def in_use(path: Path, **options: Any) -> None:
        """Runs are removed while nobody else can use them."""
        if Path(path).parent.name == "tuning":
            removed.append(path)
            with pytest.raises(InputError, match="is being written by"), locked(path):
                pass
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", in_use)
    first = tuned(source, folder / "data", listener=steps)
    assert list(first) == list(DOMAINS)
    assert (steps.n, steps.models) == (6 * SETTINGS.steps, ["tiny"])
    for test, fold in first.items():
        assert fold.outputs.shape == (len(source.labels(test)), 2)
        np.testing.assert_allclose(np.exp(fold.outputs).sum(axis=1), 1)
        assert (fold.facts.seconds > 0, fold.facts.device) == (True, "cpu")
    assert len(removed) == 1
    assert not (source.store.path / "cache" / "tuning").exists()
    second = tuned(source, folder / "data", listener=again)
    assert again.n == 0
    for test in DOMAINS:
        np.testing.assert_array_equal(first[test].outputs, second[test].outputs)
        assert first[test].facts == second[test].facts
    changed = replace(SETTINGS, seed=1)
    tuned(source, folder / "data", {"red": "tiny"}, other, settings=changed)
    assert other.n > 0


def test_what_was_stopped_continues(
    folder: Path, source: StoreSource, whole: dict[str, TunedFold]
) -> None:
    # in the last run of the second held-out domain
    with pytest.raises(KeyboardInterrupt):
        tuned(source, folder / "data", listener=Steps(stop_after=4 * SETTINGS.steps + 2))
    assert (source.store.path / "cache" / "tuning").exists()
    rest = Steps()
    found = tuned(source, folder / "data", listener=rest)
    assert rest.n <= 2 * SETTINGS.steps
    for test in DOMAINS:
        np.testing.assert_array_equal(found[test].outputs, whole[test].outputs)
    assert not (source.store.path / "cache" / "tuning").exists()


def test_each_test_domain_may_have_a_model_of_its_own(
    folder: Path, source: StoreSource, whole: dict[str, TunedFold]
) -> None:
    """And images other names, so that they are in another order than in the store."""
    data = source.store.path.parent / "data"
    for path in sorted((data / "red").rglob("*.png")):
        path.rename(path.with_name(f"{9 - int(path.stem)}-.png"))
    steps = Steps()
    mixed = tuned(source, data, {"green": "other", "red": "tiny"}, steps)
    assert sorted(steps.models) == ["other", "tiny"]
    np.testing.assert_allclose(mixed["red"].outputs, whole["red"].outputs, atol=1e-4)
    assert not np.allclose(mixed["green"].outputs, whole["green"].outputs, atol=1e-4)


def test_nothing_of_the_test_domain_is_used(
    folder: Path, source: StoreSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise in place of its images, with permuted labels, changes neither weights nor choice."""
    weights: list[dict[str, Any]] = []

    class Watched(Tuner):
        def judged(self, left_out: Sequence[str], **options: Any) -> Any:
            found = super().judged(left_out, **options)
            ends = self.weights((frozenset(left_out), found.learning_rate))
            weights.append({k: v.clone() for k, v in found.candidate.of(ends).items()})
            return found

    monkeypatch.setattr(fine_tuning, "Tuner", Watched)
    before = tuned(source, folder / "data", {"red": "tiny"})
    other = tmp_path / "two"
    shutil.copytree(folder / "data", other / "data")
    rng = np.random.default_rng(0)
    across, down = (other / "data" / "red" / label for label in ("across", "down"))
    across.rename(other / "x")
    down.rename(across)
    (other / "x").rename(down)
    for path in (other / "data" / "red").rglob("*.png"):
        Image.fromarray(rng.integers(0, 255, (SIZE, SIZE, 3), np.uint8)).save(path)
    shutil.copytree(folder / "zoo", other / "zoo")
    after = tuned(extracted(other), other / "data", {"red": "tiny"})
    one, two = weights
    assert all(np.array_equal(one[name].numpy(), two[name].numpy()) for name in one)
    assert before["red"].facts.choice == after["red"].facts.choice
    assert not np.array_equal(before["red"].outputs, after["red"].outputs)


def test_what_cannot_be_tuned(folder: Path, source: StoreSource, tmp_path: Path) -> None:
    data, moved = folder / "data", tiny_network(tmp_path / "moved", "tiny", seed=7)
    with pytest.raises(InputError, match="is not the model that the store's features were"):
        tuned(source, data, zoo=[moved])
    with pytest.raises(InputError, match=r"'tiny' without each domain would .* 6 runs of 6 steps;"):
        tuned(source, data, max_hours=1e-9)
    imported = stored(tmp_path, *zoo(n=4))
    assert require_store(imported) is imported
    request = Request(find_images(source, data), SETTINGS, [], "cpu", None)
    words = "model 'best', the first of the ranking without the domain 'd0', has imported"
    with Stage(None, "evaluation") as stage, pytest.raises(InputError, match=words):
        fine_tune(imported, {"d0": "best"}, request, stage)
    with pytest.raises(InputError, match="there are arrays of features only"):
        require_store(ArraySource(*zoo(n=4)))


def test_the_number_of_runs() -> None:
    two = replace(SETTINGS, learning_rates=(1e-3, 1e-2))
    assert n_runs(DOMAINS, DOMAINS, SETTINGS) == 6
    assert n_runs(DOMAINS, DOMAINS, two) == 2 * 3 + 3
    assert n_runs(["red"], DOMAINS, two) == 2 * 2 + 1
    assert n_runs(DOMAINS, DOMAINS, replace(two, choose_by="training-domain")) == 6


# --- images of a store ---------------------------------------------------------------------------


def test_images_are_found_in_the_order_of_the_store(source: StoreSource, tmp_path: Path) -> None:
    """Also under other names, and beside images and domains that the store does not have."""
    data = source.store.path.parent / "data"
    write_stripes(tmp_path / "more", ("blue", "grey"), per_cell=5)
    for path in sorted((data / "blue" / "down").iterdir()):
        path.rename(path.with_name(f"moved-{path.name}"))
    (tmp_path / "more" / "grey").rename(data / "grey")
    opened = oodzoo.ImageDomains(data)
    for given in (data, opened, opened.only(range(len(opened) - 1, -1, -1))):
        found = find_images(source, given)
        assert set(found.data.domains) == set(DOMAINS)
        for domain, rows in found.rows.items():
            pairs = zip(found.data.samples, found.data.digests, strict=True)
            digests = [digest for sample, digest in pairs if sample.domain == domain]
            assert [digests[row] for row in rows] == source.store.images(domain)


def test_images_that_are_not_there(source: StoreSource) -> None:
    data = source.store.path.parent / "data"
    (data / "red" / "down" / "0.png").rename(data / "red" / "across" / "x.png")
    words = r"data' is not the data of the store.*1 of its 48 images \(such as 'red/down/0.png'\)"
    with pytest.raises(InputError, match=words):
        find_images(source, data)
    arrays = np.random.default_rng(0).integers(0, 255, (6, 16, 16, 3)).astype(np.uint8)
    samples = [(array, at / 7, f"d{at % 3}") for at, array in enumerate(arrays)]
    numbers = oodzoo.ImageDomains(samples, task="regression")
    with pytest.raises(InputError, match="has labels for 'regression', but the store for 'class"):
        find_images(source, numbers)


FACTS = TunedFacts("average 0.5", 3e-5, 50.0, 30.0, "cuda")
SOURCE = ArraySource(*zoo(n=18))


def without_row() -> Evaluation:
    return evaluated(published="PACS", max_models=1)


def with_row(shares: Any = None, linear_head: float = 50.0) -> Evaluation:
    """With fine-tuned models of whose predictions a share is right in each domain."""
    folds = {}
    for domain in SOURCE.domains:
        labels = SOURCE.labels(domain)
        share = shares[domain] if isinstance(shares, dict) else shares
        right = np.arange(len(labels)) < round(share * len(labels))
        predicted = np.where(right, labels, (labels + 1) % 3)
        facts = replace(FACTS, linear_head=linear_head)
        folds[domain] = TunedFold(np.log(0.9 * np.eye(3)[predicted] + 0.1 / 3), facts)
    return with_fine_tuned(without_row(), SOURCE, folds, "x")


def of_tuning(result: Evaluation) -> str:
    (line,) = (line for line in result.findings() if line.startswith("Fine-tuning "))
    return line


def test_better_by_more_than_its_error() -> None:
    result = with_row(1.0)
    old, best = without_row().recommended, result.recommended
    assert result.fine_tuned is not None
    assert result.tuning is not None
    assert (best.choice, best.models, best.average) == ("fine_tuned", ("x",), 100)
    assert result.fine_tuned.average == 100
    assert set(best.choices.values()) == {"fine_tuned"}
    assert (best.estimates, best.candidates, best.max_models) == (
        *(old.estimates, old.candidates, 1),
    )
    gains = [100 - value for value in old.domains.values()]
    gain = result.tuning.gain
    assert (gain.over, gain.over_head) == (old.choice, 50)
    assert gain.average == pytest.approx(np.mean(gains))
    assert gain.error == pytest.approx(np.std(gains, ddof=1) / 2)
    assert "x, fine-tuned" in result.findings()[0]
    assert "oodzoo tune MODEL DATA" in " ".join(result.findings())
    assert result.recommended_row == result.fine_tuned
    assert result.beyond_limits == without_row().beyond_limits != ()
    assert {each.accuracy for each in result.diagnosis.values()} == {100}
    with pytest.raises(InputError, match="then run oodzoo tune on the predictor"):
        oodzoo.fit(*zoo(n=18), recommended=best)


def test_what_is_not_recommended() -> None:
    """A gain that is due to the head, one in a single domain, and a loss."""
    old = without_row().recommended
    shares = {name: value / 100 for name, value in old.domains.items()}
    first = min(shares, key=lambda name: shares[name])
    assert shares[first] < 1
    due_to_head = with_row(1.0, linear_head=100.0)
    loss = with_row(0.2)
    cases = {
        "; equal to the linear head that it starts from): it is not recommended.": due_to_head,
        "it is not recommended.": with_row(shares | {first: 1.0}),
        "Fine-tuning loses": loss,
    }
    for words, result in cases.items():
        assert result.recommended == old
        assert words in of_tuning(result)
    (advice,) = [each for each in _of_options(due_to_head, SOURCE) if each.kind == "fine_tuning"]
    assert "oodzoo" not in advice.text  # nor is it advised
    assert f"Fine-tuned {loss.fine_tuned.average:.1f} %" in loss.findings()[0]  # type: ignore[union-attr]


def test_the_row_survives_json() -> None:
    result = with_row(0.9)
    document = json.loads(json.dumps(result.to_dict()))
    assert Evaluation.from_dict(document) == result
    row = document["fine_tuned"]
    assert row["average"] == pytest.approx(100 * 16 / 18)
    assert row["models"] == document["single"]["models"]
    assert row["seconds"]["average"] == 30
    assert row["tuning"]["folds"]["d0"]["choice"] == "average 0.5"
    rows = document["published"]["rows"]
    assert {"method": "Fine-tuned", "source": "yours", "accuracy": row["average"]} in rows
    assert document["published"]["hours"]["fine_tuned"] == pytest.approx(4 * 30 / 3600)
