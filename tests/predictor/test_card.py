"""The model card of a predictor."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oodzoo
from oodzoo._packages import optional_package
from oodzoo.errors import MissingPackageError
from oodzoo.predictor.card import is_own_card, model_card
from oodzoo.predictor.models import FeatureModel
from oodzoo.predictor.parts import PredictorParts


@pytest.fixture
def parts(predictor: oodzoo.Predictor) -> PredictorParts:
    """A measured pool."""
    one, two = predictor.models
    parts = predictor._parts()
    facts = replace(
        parts.provenance,
        name="digits",
        choice="pool",
        pool={one.name: 0.75, two.name: 0.25},
        accuracy=81.5,
        accuracy_interval=(70.0, 93.0),
        accuracy_by_domain={"chalk": 75.0, "marker": 84.25, "paper": 85.25},
        choice_by_domain={"chalk": "single", "marker": "pool", "paper": "pool"},
    )
    return replace(parts, provenance=facts)


def section(card: str, title: str) -> str:
    """The text below a heading."""
    (found,) = re.findall(rf"^## {re.escape(title)}\n\n(.*?)\n\n(?:## |<!--)", card, re.M | re.S)
    return str(found)


def table(text: str) -> list[list[str]]:
    """The rows of a table, without its heading."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in lines[2:]]


def test_a_card_is_valid_for_the_hub(parts: PredictorParts) -> None:
    try:
        hub = optional_package("huggingface_hub", extra="hub", purpose="this test")
    except MissingPackageError as error:
        pytest.skip(str(error))
    card = hub.ModelCard(model_card(parts))
    assert (card.data.library_name, card.data.license) == ("oodzoo", "apache-2.0")
    assert card.data.pipeline_tag == "image-classification"
    results = {each.dataset_config: each.metric_value for each in card.data.eval_results}
    assert results == {None: 0.815, "chalk": 0.75, "marker": 0.8425, "paper": 0.8525}
    again = hub.ModelCardData(**card.data.to_dict())
    assert again.to_yaml() == card.data.to_yaml()
    assert card.text.lstrip().startswith("# Image classifier trained on digits\n")


def test_what_it_says(parts: PredictorParts) -> None:
    card = model_card(parts)
    one, two = parts.models
    rows = table(section(card, "Models"))
    assert [row[:2] for row in rows] == [[f"`{one.name}`", "0.750"], [f"`{two.name}`", "0.250"]]
    assert [row[-2] for row in rows] == [
        m.spec.pretraining for m in parts.models if not isinstance(m, FeatureModel)
    ]
    data = section(card, "Training data")
    for fact in (
        "`digits`",
        "108 images",
        "3 domains: `chalk`, `marker`, `paper`",
        "`0`, `1`, `2`",
    ):
        assert fact in data
    assert parts.provenance.data in data
    measured = section(card, "Measured on held-out domains")
    assert measured.startswith("**81.5 %** accuracy, mean over 3 domains.")
    assert "70.0 to 93.0 %" in measured
    assert table(measured) == [
        ["`chalk`", "75.0", "single"],
        ["`marker`", "84.2", "pool"],
        ["`paper`", "85.2", "pool"],
    ]
    ranked = table(section(card, "Ranking"))
    scores = parts.provenance.scores
    assert [row[1] for row in ranked] == [
        f"`{n}`" for n in sorted(scores, key=lambda n: -scores[n])
    ]
    assert [row[1] for row in ranked if row[3]] == [f"`{one.name}`", f"`{two.name}`"]
    assert section(card, "Licences").count("Apache-2.0") == 2
    assert "not known" not in card
    assert "without unlabelled" not in card
    assert "## Fine-tuning" not in card
    assert "out_of_domain" in section(card, "Limits")
    assert f"oodzoo {oodzoo.__version__}" in card
    assert "@inproceedings" in section(card, "Citation")


def test_what_is_not_known_is_said(parts: PredictorParts) -> None:
    models = tuple(
        replace(m, spec=replace(m.spec, licence=None, pretraining=None, origin=None))
        for m in parts.models
        if not isinstance(m, FeatureModel)
    )
    facts = replace(
        parts.provenance, name=None, scores={}, accuracy=None, accuracy_by_domain={}, pool={}
    )
    card = model_card(replace(parts, models=models, provenance=facts))
    assert "was not measured" in section(card, "Measured on held-out domains")
    assert "The licence of 2 models is not known" in section(card, "Licences")
    assert "- Name: unknown" in section(card, "Training data")
    assert [row[-2:] for row in table(section(card, "Models"))] == [
        ["unknown", "file in this folder"]
    ] * 2
    assert "## Ranking" not in card


def test_fine_tuning_a_target_and_adaptation(parts: PredictorParts) -> None:
    settings = {"learning_rates": [1e-05, 3e-05], "steps": 300, "lora": None}
    left_out = {"head": {"a_b": 90.0, "chalk": 80.5}, "last_1": {"a_b": 91.25, "chalk": 89.0}}
    tuning = {"model": "net", "left_out": left_out, "settings": settings}
    facts = replace(parts.provenance, choice="tuned", tuning=tuning, target="fog", adapted=40)
    card = model_card(replace(parts, provenance=facts))
    assert "- How it was made: one fine-tuned model.\n" in card
    text = section(card, "Fine-tuning")
    assert text.startswith(
        "- model: `net`\n- settings\n  - learning rates: 1e-05, 3e-05\n  - steps: `300`\n\n"
        "Accuracy %"
    )
    assert table(text) == [
        ["`a_b`", "90.0", "91.2"], ["`chalk`", "80.5", "89.0"], ["mean", "85.2", "90.1"],
    ]  # fmt: skip
    assert "It was measured without unlabelled samples" in card
    assert "for unlabelled images of `fog`." in card
    assert "- Its head is adapted to 40 unlabelled images.\n" in card


def test_the_example_runs(predictor: oodzoo.Predictor, saved: Path, unseen: list[Path]) -> None:
    card = model_card(predictor._parts(), saved.as_posix())
    (code,) = re.findall("```python\n(.*?)```", card, re.S)
    names: dict[str, Any] = {}
    exec(code.replace('"a.jpg"', repr(str(unseen[0]))), names)
    assert names["predictor"].predict(unseen[:1]).shape == (1,)


def test_names_cannot_change_the_markdown(parts: PredictorParts) -> None:
    odd = ["a|b", "<script>", "`x` ``y", "two\nlines", "\ud800", " s ", "*b*"]
    facts = replace(
        parts.provenance,
        domains=tuple(odd),
        accuracy_by_domain=dict.fromkeys(odd, 1.0),
        choice_by_domain=dict.fromkeys(odd, "<b>"),
        name="<i>|*x*",
    )
    card = model_card(replace(parts, provenance=facts, classes=odd))
    card.encode()
    rows = table(section(card, "Measured on held-out domains"))
    assert [len(row) for row in rows] == [3] * len(odd)
    assert {row[2] for row in rows} == {r"\<b\>"}
    assert [row[0] for row in rows][:4] == [
        *(r"`a\|b`", "`<script>`", "``` `x` ``y ```", r"`two\nlines`")
    ]
    assert r"# Image classifier trained on \<i\>\|\*x\*" in card


def test_many_classes_are_cut(parts: PredictorParts) -> None:
    data = section(model_card(replace(parts, classes=list(range(345)))), "Training data")
    assert "345 classes: `0`, `1`," in data
    assert "`99` and 245 more\n" in data
    assert "`100`" not in data


def test_features_only_and_numbers() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    fitted = oodzoo.fit({"x": X}, X[:, 0], np.repeat(["a", "b"], 30), task="regression")
    card = model_card(fitted._parts())
    assert "It takes the features of its models" in card
    assert "predictor.predict(features)" in card
    assert table(section(card, "Models"))[0][-2:] == ["unknown", "features only"]
    assert "It knows the" not in section(card, "Limits")


def test_an_edited_card_is_recognised(parts: PredictorParts) -> None:
    card = model_card(parts)
    assert card == model_card(parts)
    assert is_own_card(card.encode())
    assert is_own_card(card.replace("\n", "\r\n").encode())
    for edited in (
        card.replace("108", "109"),
        f"{card}More.\n",
        f"More.\n{card}",
        card.rpartition("<!--")[0],
        "",
        "# Mine\n",
        f"\x80{card}",
    ):
        assert not is_own_card(edited.encode("latin-1", "replace"))
