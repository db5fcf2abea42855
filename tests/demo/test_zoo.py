"""The embedded zoo: complete, correctly described, and diverse in accuracy."""

from __future__ import annotations

import hashlib
import shutil
import tomllib
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tools.demo_zoo.probe import Digits, Probed, model_features, probe, probe_raw, read_digits

from oodzoo.demo import write_digits, zoo_file

REQUIRED = {
    "name",
    "source",
    "input_size",
    "mean",
    "std",
    "features",
    "feature_dim",
    "parameters",
    "sha256",
    "pretraining",
    "architecture",
    "licence",
    "origin",
}
FOLDER = zoo_file().parent
MODELS: list[dict[str, Any]] = tomllib.loads(zoo_file().read_text(encoding="utf-8"))["model"]

each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model["name"]))


def file_of(model: dict[str, Any]) -> Path:
    return FOLDER / str(model["source"]).removeprefix("onnx/")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Digits:
    return read_digits(write_digits(tmp_path_factory.mktemp("digits")))


@pytest.fixture(scope="module")
def probed(digits: Digits) -> dict[str, Probed]:
    return {row.name: row for row in probe(zoo_file(), digits)}


def stated_accuracies(name: str) -> list[float]:
    """What the card states for a model: on each domain, and on average."""
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    (line,) = [line for line in card.splitlines() if line.startswith(f"| {name} |")]
    return [float(cell) for cell in line.strip("| ").split("|")[1:]]


def test_the_zoo_is_small_and_complete() -> None:
    files = sorted(FOLDER.glob("*.onnx"))
    assert len(MODELS) >= 12
    assert len({model["name"] for model in MODELS}) == len(MODELS)
    assert sorted(file_of(model) for model in MODELS) == files
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 2_000_000


@each_model
def test_zoo_file_has_the_expected_keys_and_hashes(model: dict[str, Any]) -> None:
    assert set(model) - {"logits"} == REQUIRED
    assert model["sha256"] == hashlib.sha256(file_of(model).read_bytes()).hexdigest()
    assert model["input_size"] == 32
    assert len(model["mean"]) == len(model["std"]) == 3
    assert all(isinstance(model[key], int) for key in ("feature_dim", "parameters"))


@each_model
@pytest.mark.parametrize("batch", [1, 5])
def test_each_model_runs_at_any_batch_size_with_the_stated_outputs(
    model: dict[str, Any], batch: int
) -> None:
    session = onnxruntime.InferenceSession(file_of(model), providers=["CPUExecutionProvider"])
    assert [put.name for put in session.get_inputs()] == ["input"]
    assert [put.name for put in session.get_outputs()] == [
        name for name in ("features", "logits") if name in model
    ]
    images = np.random.default_rng(batch).standard_normal((batch, 3, 32, 32)).astype(np.float32)
    features, *logits = session.run(None, {"input": images})
    assert features.shape == (batch, model["feature_dim"])
    assert 32 <= model["feature_dim"] <= 128
    for output in (features, *logits):
        assert output.dtype == np.float32
        assert len(output) == batch
        assert np.isfinite(output).all()


def test_features_do_not_depend_on_the_batch(digits: Digits) -> None:
    for model in MODELS:
        together = model_features(model, FOLDER, digits.pixels[:7])
        alone = model_features(model, FOLDER, digits.pixels[3:4])
        np.testing.assert_allclose(together[3:4], alone, rtol=1e-3, atol=1e-4)


def test_no_two_models_share_weights(digits: Digits) -> None:
    """No two models have features that agree up to scale, order or sign."""
    seen = [model_features(model, FOLDER, digits.pixels[::30]) for model in MODELS]
    units = [(x - x.mean(axis=0)) / (x.std(axis=0) + 1e-12) / np.sqrt(len(x)) for x in seen]
    for (i, one), (j, other) in combinations(enumerate(units), 2):
        alike = np.abs(one.T @ other).max(axis=1)  # best match of every feature
        assert alike.mean() < 0.97, (MODELS[i]["name"], MODELS[j]["name"])


def test_the_card_names_every_model() -> None:
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for model in MODELS:
        assert f"`{model['name']}`" in card
        assert f"{model['parameters']:,}" in card


def test_the_card_states_the_measured_accuracies(probed: dict[str, Probed]) -> None:
    for row in probed.values():
        # solvers and runtimes differ in the last digits: a digit or two per domain
        measured = [*row.domains.values(), row.mean]
        np.testing.assert_allclose(stated_accuracies(row.name), measured, atol=1.0)


def test_the_card_states_the_accuracy_of_raw_pixels(digits: Digits) -> None:
    """On one domain: all take longer than all models together."""
    stated = dict(zip(np.unique(digits.domains), stated_accuracies("raw pixels"), strict=False))
    measured = probe_raw(digits, ["paper"]).domains["paper"]
    assert measured == pytest.approx(stated["paper"], abs=1.0)


def test_zoo_file_and_card_agree_with_their_generator(
    probed: dict[str, Probed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("torch", "onnx"):
        pytest.importorskip(package, reason='needs pip install -e ".[tools]"')
    from tools.demo_zoo import card, export

    for file in FOLDER.glob("*.onnx"):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(card, "probe_embedded", lambda _: list(probed.values()))
    export.write_listing(tmp_path)
    card.write_card(tmp_path)
    assert (tmp_path / "zoo.toml").read_bytes() == zoo_file().read_bytes()

    def without_accuracies(folder: Path) -> list[str]:
        lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
        names = {"raw pixels", *probed}
        return [line for line in lines if line.removeprefix("| ").split(" |")[0] not in names]

    assert without_accuracies(tmp_path) == without_accuracies(FOLDER)


def test_accuracies_are_spread_out(probed: dict[str, Probed]) -> None:
    raw = stated_accuracies("raw pixels")[-1]
    means = sorted(row.mean for row in probed.values())
    assert means[-1] >= raw + 10
    assert means[-1] - means[0] >= 40
    # at least three models in every third of the range
    thirds = np.linspace(means[0], means[-1], 4)
    assert (np.histogram(means, thirds)[0] >= 3).all(), means


def test_accuracy_follows_the_pretraining(probed: dict[str, Probed]) -> None:
    def mean(name: str) -> float:
        return probed[name].mean

    assert mean("resnet_glyphs_augmented") > mean("cnn_letters_pose") + 10
    assert mean("convnext_letters_augmented") > mean("cnn_letters") + 10
    assert mean("cnn_letters_pose") > mean("cnn_letters")
    untrained = max(mean("separable_random"), mean("mixer_random"))
    trained = [mean(m["name"]) for m in MODELS if not m["name"].endswith("_random")]
    assert sum(one > untrained for one in trained) >= len(trained) - 2


def test_no_domain_is_solved_by_all_or_by_none(probed: dict[str, Probed]) -> None:
    models = list(probed.values())
    for domain in models[0].domains:
        accuracies = [row.domains[domain] for row in models]
        assert max(accuracies) > 75, domain
        assert min(accuracies) < 50, domain


def test_different_domains_prefer_different_models(probed: dict[str, Probed]) -> None:
    models = list(probed.values())
    orders = {
        domain: tuple(row.name for row in sorted(models, key=lambda r: -r.domains[domain])[:5])
        for domain in models[0].domains
    }
    assert len(set(orders.values())) > 1
