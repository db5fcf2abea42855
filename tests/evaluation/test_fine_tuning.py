"""Fine-tuning without each test domain."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.evaluation.data import stored, zoo
from tests.striped import SIZE, require_tuning, tiny_network, write_stripes

import oodzoo
from oodzoo.combining.evaluation import fine_tuning
from oodzoo.combining.evaluation.fine_tuning import (
    Request,
    TunedFold,
    find_images,
    fine_tune,
    n_runs,
)
from oodzoo.core.errors import InputError
from oodzoo.core.io import locked
from oodzoo.events import Listener, Stage
from oodzoo.extraction.source import StoreSource
from oodzoo.tuning.settings import TuneSettings
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


def copied(folder: Path, target: Path) -> StoreSource:
    shutil.copytree(folder, target)
    shutil.rmtree(target / "store" / "cache", ignore_errors=True)
    return StoreSource(oodzoo.FeatureStore(target / "store"))


def test_runs_without_a_pair_serve_both_domains(folder: Path, tmp_path: Path) -> None:
    source = copied(folder, tmp_path / "copy")
    steps = Steps()
    found = tuned(source, folder / "data", listener=steps)
    assert list(found) == list(DOMAINS)
    assert n_runs(DOMAINS, DOMAINS, SETTINGS) == 6
    assert steps.n == 6 * SETTINGS.steps
    assert steps.models == ["tiny"]
    for test, fold in found.items():
        assert fold.outputs.shape == (len(source.labels(test)), 2)
        np.testing.assert_allclose(np.exp(fold.outputs).sum(axis=1), 1)
        assert fold.facts.seconds > 0
        assert fold.facts.device == "cpu"
    assert not (source.store.path / "cache" / "tuning").exists()


def test_what_is_found_is_kept(folder: Path, tmp_path: Path) -> None:
    source = copied(folder, tmp_path / "copy")
    first = tuned(source, folder / "data")
    again, other = Steps(), Steps()
    second = tuned(source, folder / "data", listener=again)
    assert again.n == 0
    for test in DOMAINS:
        np.testing.assert_array_equal(first[test].outputs, second[test].outputs)
        assert first[test].facts == second[test].facts
    tuned(source, folder / "data", listener=other, settings=replace(SETTINGS, seed=1))
    assert other.n > 0


def test_what_was_stopped_continues(folder: Path, tmp_path: Path) -> None:
    whole = tuned(copied(folder, tmp_path / "whole"), folder / "data")
    source = copied(folder, tmp_path / "stopped")
    # in the last run of the second test domain
    with pytest.raises(KeyboardInterrupt):
        tuned(source, folder / "data", listener=Steps(stop_after=4 * SETTINGS.steps + 2))
    assert (source.store.path / "cache" / "tuning").exists()
    rest = Steps()
    found = tuned(source, folder / "data", listener=rest)
    assert rest.n <= 2 * SETTINGS.steps
    for test in DOMAINS:
        np.testing.assert_array_equal(found[test].outputs, whole[test].outputs)
    assert not (source.store.path / "cache" / "tuning").exists()


def test_runs_are_removed_while_nobody_else_can_use_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = copied(folder, tmp_path / "copy")
    remove, removed = shutil.rmtree, list[Path]()

    def in_use(path: Path, **options: Any) -> None:
        if Path(path).parent.name == "tuning":
            removed.append(path)
            with (
                pytest.raises(InputError, match="is being written by another process"),
                locked(path),
            ):
                pass
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", in_use)
    tuned(source, folder / "data")
    assert len(removed) == 1
    assert not removed[0].parent.exists()


def test_each_test_domain_may_have_a_model_of_its_own(folder: Path, tmp_path: Path) -> None:
    source = copied(folder, tmp_path / "copy")
    steps = Steps()
    models = {"blue": "tiny", "green": "other", "red": "tiny"}
    mixed = tuned(source, folder / "data", models, steps)
    assert steps.models == ["tiny", "other"]
    alone = tuned(copied(folder, tmp_path / "alone"), folder / "data")
    np.testing.assert_array_equal(mixed["red"].outputs, alone["red"].outputs)
    assert not np.array_equal(mixed["green"].outputs, alone["green"].outputs)


def test_the_order_is_that_of_the_store(folder: Path, tmp_path: Path) -> None:
    expected = tuned(copied(folder, tmp_path / "one"), folder / "data", {"red": "tiny"})
    source = copied(folder, tmp_path / "two")
    # other names, so that the images are in another order
    for path in sorted((tmp_path / "two" / "data" / "red").rglob("*.png")):
        path.rename(path.with_name(f"{9 - int(path.stem)}-.png"))
    found = tuned(source, tmp_path / "two" / "data", {"red": "tiny"})
    np.testing.assert_allclose(found["red"].outputs, expected["red"].outputs, atol=1e-4)


def test_nothing_of_the_test_domain_is_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise in place of its images, with permuted labels, changes neither weights nor choice."""
    weights: list[dict[str, Any]] = []

    class Watched(Tuner):
        def judged(self, left_out: Sequence[str]) -> Any:
            found = super().judged(left_out)
            key = (frozenset(left_out), found.choice.learning_rate)
            self._runs.load(key, found.choice.candidate, self._events)
            network = self._runs.network
            weights.append({k: v.detach().clone() for k, v in network.weights().items()})
            self._runs.reset()
            return found

    monkeypatch.setattr(fine_tuning, "Tuner", Watched)
    before = tuned(copied(folder, tmp_path / "one"), folder / "data", {"red": "tiny"})
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


def test_a_class_of_the_test_domain_only_is_never_predicted(tmp_path: Path) -> None:
    write_stripes(tmp_path / "data")
    (tmp_path / "data" / "red" / "down").rename(tmp_path / "data" / "red" / "zigzag")
    source = extracted(tmp_path)
    found = tuned(source, tmp_path / "data", {"red": "tiny"})["red"]
    zigzag = source.classes.index("zigzag")
    assert np.isneginf(found.outputs[:, zigzag]).all()
    np.testing.assert_allclose(np.exp(found.outputs).sum(axis=1), 1)


def test_imported_features_cannot_be_tuned(folder: Path, tmp_path: Path) -> None:
    source = stored(tmp_path, *zoo(n=4))
    request = Request(
        find_images(StoreSource(oodzoo.FeatureStore(folder / "store")), folder / "data"),
        SETTINGS, [], "cpu", None,
    )  # fmt: skip
    with Stage(None, "evaluation") as stage, pytest.raises(InputError) as caught:
        fine_tune(source, {"d0": "best"}, request, stage)
    expected = "model 'best', the first of the ranking without the domain 'd0', has imported"
    assert str(caught.value).startswith(expected)


def test_another_file_of_the_same_name(folder: Path, tmp_path: Path) -> None:
    source = copied(folder, tmp_path / "copy")
    moved = tiny_network(tmp_path / "moved", "tiny", seed=7)
    with pytest.raises(InputError, match="is not the model that the store's features were"):
        tuned(source, folder / "data", zoo=[moved])


def test_too_long(folder: Path, tmp_path: Path) -> None:
    source = copied(folder, tmp_path / "copy")
    with pytest.raises(InputError) as caught:
        tuned(source, folder / "data", max_hours=1e-9)
    text = str(caught.value)
    assert "fine-tuning 'tiny' without each domain would take about" in text
    assert "6 runs of 6 steps; use a GPU (--device cuda)" in text


def test_the_number_of_runs() -> None:
    two = replace(SETTINGS, learning_rates=(1e-3, 1e-2))
    assert n_runs(DOMAINS, DOMAINS, two) == 2 * 3 + 3
    assert n_runs(["red"], DOMAINS, two) == 2 * 2 + 1
    assert n_runs(DOMAINS, DOMAINS, replace(two, choose_by="training-domain")) == 6
