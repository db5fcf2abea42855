"""The model card of a predictor, its metadata, and its table in notebooks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oodzoo
from oodzoo.extraction.columns import Columns
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.predictor.card import is_own_card, model_card
from oodzoo.predictor.gaussian import TrainingGaussian
from oodzoo.predictor.models import FeatureModel, PredictorModel
from oodzoo.predictor.parts import PredictorParts, Provenance
from oodzoo.predictor.prediction_sets import ConfidencePoint, LeftOut, SetLevel
from oodzoo.tasks import task_of
from oodzoo.zoo import Geometry, ModelSpec, Preprocessing

CARDS = Path(__file__).parent / "cards"
ODD = ["a|b", "<script>", "`x` ``y", "two\nlines", "\ud800", " s ", "*b*"]
DOMAINS = ("chalk", "marker", "paper")
FACTS: dict[str, Any] = {
    "name": "digits",
    "choice": "pool",
    "pool": {"dino": 0.75, "resnet": 0.25},
    "scores": {"dino": 0.91, "resnet": 0.88, "mlp": 0.5},
    "score": "unseen",
    "accuracy": 81.5,
    "accuracy_interval": (70.0, 93.0),
    "accuracy_by_domain": {"chalk": 75.0, "marker": 84.25, "paper": 85.25},
    "choice_by_domain": {"chalk": "single", "marker": "pool", "paper": "pool"},
}
LEFT_OUT = LeftOut(
    (SetLevel(0.9, (0.1,), {"chalk": 86.0, "marker": 95.0, "paper": 92.0}, 1.62),),
    tuple(ConfidencePoint(at, 100 - 60 * at, 80 + 19 * at, None) for at in (0.0, 0.5, 0.55, 0.9)),
)
TUNING = {
    "model": "dino",
    "left_out": {"head": {"a_b": 90.0, "chalk": 80.5}, "last_1": {"a_b": 91.25, "chalk": 89.0}},
    "settings": {"learning_rates": [1e-05, 3e-05], "steps": 300, "lora": None},
}


def model(name: str, source: str, parameters: int | None, **stated: Any) -> PredictorModel:
    spec = ModelSpec(name, source, **stated)
    square = Preprocessing(Geometry((32, 32), (32, 32)), (0.5,) * 3, (0.5,) * 3)
    return PredictorModel(spec, square, 8, "float32", "", parameters=parameters, milliseconds=1.5)


def parts(kind: Any = "classification", classes: Any = ("0", "1", "2"), **facts: Any) -> Any:
    """A pool of two models from the hub."""
    stated = {"licence": "Apache-2.0", "pretraining": "LVD-142M", "origin": "Meta *AI*"}
    dino = model("dino", "hf/facebook/dinov2-small@main", 22_000_000, **stated)
    resnet = model("resnet", "timm/resnet18", 11_000_000, licence="apache-2.0")
    made = {"domains": DOMAINS, "n_images": 108, "data": "f00d", "n_features": 16}
    d = np.zeros(12)
    return PredictorParts(
        (dino, resnet),
        Columns({"dino": np.arange(8), "resnet": np.arange(4)}),
        list(classes),
        LinearHead(
            np.zeros((len(classes), 12)), np.zeros(len(classes)), 1.0, task_of(kind, classes)
        ),
        TrainingGaussian(d, d, d[None], d[:, None], np.ones(1), 1.0),
        Provenance(**{**made, "threshold": None, **FACTS, **facts}),
        left_out=LEFT_OUT,
    )


def numbers() -> PredictorParts:
    """Of features only, nothing measured but half-widths."""
    nothing: Any = {name: {} if isinstance(value, dict) else None for name, value in FACTS.items()}
    found: PredictorParts = parts("regression", ["age"], **nothing | {"choice": "single"})
    sets = (SetLevel(0.9, (2.5,), {"chalk": 91.0, "paper": 89.0}),)
    return replace(
        found,
        models=(FeatureModel("sensor", 12, "beef"),),
        columns=Columns({"sensor": np.arange(12)}),
        left_out=LeftOut(sets),
    )


CASES: dict[str, Any] = {
    "pool": parts(),
    "tuned": parts(choice="tuned", pool={}, tuning=TUNING, target="fog", adapted=40),
    "numbers": numbers(),
    "labels": replace(
        parts(
            *("multilabel", range(345)),
            domains=ODD,
            name="<i>|*x*",
            accuracy_by_domain=dict.fromkeys(ODD, 1.0),
            choice_by_domain=dict.fromkeys(ODD, "<b>"),
        ),
        left_out=None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_whole_card(name: str) -> None:
    """As it is stored; to change it on purpose, write it again and read the difference."""
    card = model_card(CASES[name]).replace(oodzoo.__version__, "VERSION")
    file = CARDS / f"{name}.md"
    assert card.rpartition("<!--")[0] == file.read_text(encoding="utf-8")


def test_the_example_runs(predictor: oodzoo.Predictor, saved: Path, unseen: list[Path]) -> None:
    card = model_card(predictor, saved.as_posix())
    (code,) = re.findall("```python\n(.*?)```", card, re.S)
    found: dict[str, Any] = {}
    exec(code.replace('"a.jpg"', repr(str(unseen[0]))), found)
    assert found["predictor"].predict(unseen[:1]).shape == (1,)


def test_an_edited_card_is_recognised() -> None:
    card = model_card(CASES["pool"])
    assert is_own_card(card.encode())
    assert is_own_card(card.replace("\n", "\r\n").encode())
    unsealed = card.rpartition("<!--")[0]
    changed = (card.replace("108", "109"), f"{card}More.\n", f"More.\n{card}", f"\x80{card}")
    for edited in (*changed, unsealed, "", "# Mine\n"):
        assert not is_own_card(edited.encode("latin-1", "replace"))


def test_a_table_of_the_models() -> None:
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 60), np.repeat(["<img>", "b", "c"], 40)
    features = {f"<img>{at}" * 30: y[:, None] + rng.normal(size=(120, 3)) for at in range(9)}
    predictor = oodzoo.fit(features, y, domains, models=list(features))
    assert len(repr(predictor)) < 400
    assert "… 4 more" in repr(predictor)
    html = predictor._repr_html_()
    assert html.count("<tr>") == 10
    sets = "Prediction sets (coverage=0.9): sets cover"
    for words in ("3 of 3", "2 classes from 9 models", "120 samples, 3 domains", sets):
        assert words in html
    unknown = ("weight", "parameters", "licence", "<img>", "Accuracy on left-out", "optimistic")
    assert not any(words in html for words in unknown)
    name = predictor.models[0].name
    measured = "Accuracy on held-out domains: 71.2 % (90 % interval for one domain: 50–90): "
    changes: list[tuple[dict[str, Any], str]] = [
        ({"accuracy": 71.25, "accuracy_interval": (50.0, 90.0)}, measured[:-2]),
        ({"accuracy_by_domain": {"<img>": 71.25}}, f"{measured}&lt;img&gt; 71.2"),
        ({"pool": {name: 0.5}}, "0.50"),
        ({"choice": "ensemble"}, "with the models that all domains chose, which is optimistic."),
        ({"choice": "pool", "adapted": 20}, "classes on average, measured without adapting."),
    ]
    for facts, words in changes:
        predictor.provenance = replace(predictor.provenance, **facts)
        assert words in predictor._repr_html_()
    # a pool of one model is a single model
    X = y[:, None] + rng.normal(size=(120, 3))
    predictor = oodzoo.fit({"net": X}, y, domains, choose="pool")
    assert repr(predictor) == "Predictor(single: 2 classes from 3 features of net)"
    assert predictor.provenance.choice == "pool"  # what it was chosen as, and what adapts
    html, card = predictor._repr_html_(), model_card(predictor)
    assert "Predictor (single)" in html
    assert "made: a single model" in card
    assert not any("pool" in text or "weight" in text for text in (html, card))
