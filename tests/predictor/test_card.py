"""The model card of a predictor, its metadata, and its table in notebooks."""

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
from oodzoo.predictor.card_metadata import card_metadata, plain
from oodzoo.predictor.left_out import LeftOut
from oodzoo.predictor.models import PredictorModel
from oodzoo.predictor.parts import PredictorParts

NAMES = [
    *("plain", 'a "quote"', "a: b # c", "- x", "null", "1e3", "\ud800\uffff", "ß\U0001f600"),
    *("a\nb", "\\"),
]


@pytest.fixture
def parts(predictor: oodzoo.Predictor) -> PredictorParts:
    """A measured pool."""
    one, two = predictor.models
    return of(
        predictor._parts(),
        name="digits",
        choice="pool",
        pool={one.name: 0.75, two.name: 0.25},
        accuracy=81.5,
        accuracy_interval=(70.0, 93.0),
        accuracy_by_domain={"chalk": 75.0, "marker": 84.25, "paper": 85.25},
        choice_by_domain={"chalk": "single", "marker": "pool", "paper": "pool"},
    )


def of(parts: PredictorParts, **facts: Any) -> PredictorParts:
    """The parts with other facts in the provenance."""
    return replace(parts, provenance=replace(parts.provenance, **facts))


def with_specs(parts: PredictorParts, *changes: dict[str, Any]) -> PredictorParts:
    """The parts with other specs of its models."""
    models = [model for model in parts.models if isinstance(model, PredictorModel)]
    pairs = zip(models, changes, strict=True)
    return replace(parts, models=tuple(replace(m, spec=replace(m.spec, **c)) for m, c in pairs))


def section(card: str, title: str) -> str:
    """The text below a heading."""
    (found,) = re.findall(rf"^## {re.escape(title)}\n\n(.*?)\n\n(?:## |<!--)", card, re.M | re.S)
    return str(found)


def table(text: str) -> list[list[str]]:
    """The rows of a table, without its heading."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in lines[2:]]


def metadata(parts: PredictorParts) -> Any:
    return pytest.importorskip("yaml").safe_load(card_metadata(parts))


def title(parts: PredictorParts) -> str:
    (found,) = re.findall("^# (.*)$", model_card(parts).partition("---\n\n")[2], re.M)[:1]
    return str(found)


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
    assert [row[-2] for row in rows] == [m.spec.pretraining for m in parts.models]  # type: ignore[union-attr]
    data, domains = section(card, "Training data"), "3 domains: `chalk`, `marker`, `paper`"
    for fact in ("`digits`", "108 images", domains, "`0`, `1`, `2`", parts.provenance.data):
        assert fact in data
    measured = section(card, "Measured on held-out domains")
    assert measured.startswith("**81.5 %** accuracy, mean over 3 domains.")
    assert "70.0 to 93.0 %" in measured
    assert table(measured) == [
        ["`chalk`", "75.0", "single"], ["`marker`", "84.2", "pool"], ["`paper`", "85.2", "pool"]
    ]  # fmt: skip
    ranked, scores = table(section(card, "Ranking")), parts.provenance.scores
    by_score = sorted(scores, key=lambda name: -scores[name])
    assert [row[1] for row in ranked] == [f"`{name}`" for name in by_score]
    assert [row[1] for row in ranked if row[3]] == [f"`{one.name}`", f"`{two.name}`"]
    assert section(card, "Licences").count("Apache-2.0") == 2
    for words in ("not known", "without unlabelled", "## Fine-tuning"):
        assert words not in card
    assert "out_of_domain" in section(card, "Limits")
    assert f"oodzoo {oodzoo.__version__}" in card
    assert "@inproceedings" in section(card, "Citation")
    card = model_card(replace(parts, classes=list(range(345))))
    assert "345 classes: `0`, `1`," in section(card, "Training data")
    assert "`99` and 245 more\n" in section(card, "Training data")


def test_what_is_not_known_is_said(parts: PredictorParts) -> None:
    unknown = {"licence": None, "pretraining": None, "origin": None}
    parts = of(parts, name=None, scores={}, accuracy=None, accuracy_by_domain={}, pool={})
    card = model_card(with_specs(parts, unknown, unknown))
    assert "was not measured" in section(card, "Measured on held-out domains")
    assert "The licence of 2 models is not known" in section(card, "Licences")
    assert "- Name: unknown" in section(card, "Training data")
    rows = table(section(card, "Models"))
    assert [row[-2:] for row in rows] == [["unknown", "file in this folder"]] * 2
    assert "## Ranking" not in card


def test_fine_tuning_a_target_and_adaptation(parts: PredictorParts) -> None:
    settings = {"learning_rates": [1e-05, 3e-05], "steps": 300, "lora": None}
    left_out = {"head": {"a_b": 90.0, "chalk": 80.5}, "last_1": {"a_b": 91.25, "chalk": 89.0}}
    tuning = {"model": "net", "left_out": left_out, "settings": settings}
    card = model_card(of(parts, choice="tuned", tuning=tuning, target="fog", adapted=40))
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


def test_prediction_sets_and_confidence(predictor: oodzoo.Predictor) -> None:
    assert predictor.left_out is not None
    card = model_card(predictor._parts())
    for each in predictor.left_out.sets:
        domain, worst = each.worst
        row = f"| {100 * each.level:g} % | {each.average:.1f} % | {worst:.1f} % (`{domain}`) |"
        assert f"{row} {each.size:.1f} |" in card
    point = predictor.left_out.at_confidence(0.7)
    assert f"| 0.7 | {point.kept:.0f} % | {point.accuracy:.1f} % | {point.worst:.1f} % |" in card
    for nothing in (None, LeftOut()):
        assert "Prediction sets" not in model_card(replace(predictor._parts(), left_out=nothing))


def test_the_example_runs(predictor: oodzoo.Predictor, saved: Path, unseen: list[Path]) -> None:
    card = model_card(predictor._parts(), saved.as_posix())
    (code,) = re.findall("```python\n(.*?)```", card, re.S)
    found: dict[str, Any] = {}
    exec(code.replace('"a.jpg"', repr(str(unseen[0]))), found)
    assert found["predictor"].predict(unseen[:1]).shape == (1,)


def test_names_cannot_change_the_markdown(parts: PredictorParts) -> None:
    odd = ["a|b", "<script>", "`x` ``y", "two\nlines", "\ud800", " s ", "*b*"]
    by_domain = {"accuracy_by_domain": dict.fromkeys(odd, 1.0)}
    by_domain["choice_by_domain"] = dict.fromkeys(odd, "<b>")  # type: ignore[arg-type]
    parts = replace(of(parts, domains=tuple(odd), name="<i>|*x*", **by_domain), classes=odd)
    card = model_card(parts)
    card.encode()
    rows = table(section(card, "Measured on held-out domains"))
    assert [len(row) for row in rows] == [3] * len(odd)
    assert {row[2] for row in rows} == {r"\<b\>"}
    cells = [r"`a\|b`", "`<script>`", "``` `x` ``y ```", r"`two\nlines`"]
    assert [row[0] for row in rows][:4] == cells
    assert title(parts) == r"Image classifier trained on \<i\>\|\*x\*"


def test_features_only_and_numbers() -> None:
    X = np.random.default_rng(0).normal(size=(120, 3))
    domains = np.repeat(["a", "b"], 60)
    fitted = oodzoo.fit({"x": X}, X[:, 0], domains, task="regression", choose="single")
    card = model_card(fitted._parts())
    assert "It takes the features of its models" in card
    assert "predictor.predict(features)" in card
    assert table(section(card, "Models"))[0][-2:] == ["unknown", "features only"]
    assert "It knows the" not in section(card, "Limits")
    assert fitted.left_out is not None
    assert f"| ± {fitted.left_out.at_coverage(0.9).thresholds[0]:.4g} |" in card
    found = metadata(oodzoo.fit({"x": X}, np.arange(120) % 2, domains)._parts())
    assert (found["pipeline_tag"], found["license"]) == ("tabular-classification", "other")


def test_an_edited_card_is_recognised(parts: PredictorParts) -> None:
    card = model_card(parts)
    assert card == model_card(parts)
    assert is_own_card(card.encode())
    assert is_own_card(card.replace("\n", "\r\n").encode())
    unsealed = card.rpartition("<!--")[0]
    changed = (card.replace("108", "109"), f"{card}More.\n", f"More.\n{card}", f"\x80{card}")
    for edited in (*changed, unsealed, "", "# Mine\n"):
        assert not is_own_card(edited.encode("latin-1", "replace"))


# --- metadata ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ("Apache-2.0", "apache-2.0", "apache-2.0"),
        ("MIT", "Apache-2.0", "other"),
        ("MIT", None, "other"),
        ("my own", "my own", "other"),
    ],
)
def test_licences(parts: PredictorParts, one: str, two: str | None, expected: str) -> None:
    found = metadata(with_specs(parts, {"licence": one}, {"licence": two}))
    assert found["license"] == expected
    assert ("license_name" in found) == (expected == "other")


@pytest.mark.parametrize("name", NAMES)
def test_results_are_valid_yaml_whatever_the_names(parts: PredictorParts, name: str) -> None:
    parts = of(parts, name=name, accuracy=75.62, accuracy_by_domain={name: 81.23})
    (entry,) = metadata(parts)["model-index"]
    assert entry["name"] == plain(f"Image classifier trained on {name}")
    mean, domain = entry["results"]
    assert mean["dataset"] == {"name": plain(name), "type": plain(name)}
    assert domain["dataset"]["config"] == plain(name)
    values = [(m["type"], m["value"]) for each in (mean, domain) for m in each["metrics"]]
    assert values == [("accuracy", 0.7562), ("accuracy", 0.8123)]
    assert mean["task"]["type"] == domain["task"]["type"] == "image-classification"
    plain(name).encode()
    assert "model-index" not in metadata(of(parts, accuracy=None, accuracy_by_domain={}))


@pytest.mark.parametrize(
    ("kind", "tag", "called"),
    [
        ("classification", "image-classification", "Image classifier"),
        ("multilabel", "image-classification", "Image labeller"),
        ("regression", None, "Image regressor"),
    ],
)
def test_tasks(parts: PredictorParts, kind: Any, tag: str | None, called: str) -> None:
    parts = of(replace(parts, head=replace(parts.head, kind=kind)), name=None)
    assert metadata(parts).get("pipeline_tag") == tag
    assert title(parts) == called
    assert "base_model" not in metadata(parts)
    changes = [{"source": "hf/facebook/dinov2-small@main"}, {"source": "timm/resnet18"}]
    assert metadata(with_specs(parts, *changes))["base_model"] == ["facebook/dinov2-small"]


# --- in notebooks --------------------------------------------------------------------------------


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
    by_domain = {"accuracy_by_domain": {"<img>": 71.25}, "pool": {name: 0.5}}
    predictor.provenance = replace(
        predictor.provenance, accuracy=71.25, accuracy_interval=(50.0, 90.0), **by_domain
    )
    html = predictor._repr_html_()
    assert "Accuracy on left-out domains: 71.2 % (90 % interval for one domain: 50–90)" in html
    assert "&lt;img&gt; 71.2" in html
    assert "0.50" in html
    for facts, words in (
        ({"choice": "ensemble"}, "with the models that all domains chose, which is optimistic."),
        ({"choice": "pool", "adapted": 20}, "classes on average, measured without adapting."),
    ):
        predictor.provenance = replace(predictor.provenance, **facts)
        assert words in predictor._repr_html_()


def test_a_pool_of_one_model_is_a_single_model() -> None:
    y, domains = np.tile([0, 1], 60), np.repeat(["a", "b", "c"], 40)
    X = y[:, None] + np.random.default_rng(0).normal(size=(120, 3))
    predictor = oodzoo.fit({"net": X}, y, domains, choose="pool")
    assert repr(predictor) == "Predictor(single: 2 classes from 3 features of net)"
    assert predictor.provenance.choice == "pool"  # what it was chosen as, and what adapts
    html, card = predictor._repr_html_(), model_card(predictor._parts())
    assert "Predictor (single)" in html
    assert "made: a single model" in card
    assert not any("pool" in text or "weight" in text for text in (html, card))
