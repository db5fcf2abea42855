"""The metadata of a model card."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import oodzoo
from oodzoo.predictor.card_metadata import card_metadata, licences, plain, title
from oodzoo.predictor.models import PredictorModel
from oodzoo.predictor.parts import PredictorParts

yaml = pytest.importorskip("yaml")

NAMES = [
    *("plain", 'a "quote"', "a: b # c", "- x", "null", "1e3", "\ud800\uffff", "ß\U0001f600"),
    *("a\nb", "\\"),
]


def parsed(parts: PredictorParts) -> Any:
    return yaml.safe_load(card_metadata(parts))


def with_specs(parts: PredictorParts, *changes: dict[str, Any]) -> PredictorParts:
    """The parts with other specs of its models."""
    models = [model for model in parts.models if isinstance(model, PredictorModel)]
    changed = zip(models, changes, strict=True)
    return replace(
        parts, models=tuple(replace(m, spec=replace(m.spec, **change)) for m, change in changed)
    )


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ("Apache-2.0", "apache-2.0", "apache-2.0"),
        ("MIT", "Apache-2.0", "other"),
        ("MIT", None, "other"),
        (None, None, "other"),
        ("my own", "my own", "other"),
    ],
)
def test_licences(
    predictor: oodzoo.Predictor, one: str | None, two: str | None, expected: str
) -> None:
    parts = with_specs(predictor._parts(), {"licence": one}, {"licence": two})
    metadata = parsed(parts)
    assert metadata["license"] == expected
    assert ("license_name" in metadata) == (expected == "other")
    assert list(licences(parts.models).values()) == [one, two]


def test_results_are_fractions(predictor: oodzoo.Predictor) -> None:
    parts = predictor._parts()
    assert "model-index" not in parsed(parts)  # it was not measured
    measured = {"chalk": 70.0, "paper": 81.23}
    facts = replace(parts.provenance, name="digits", accuracy=75.62, accuracy_by_domain=measured)
    (entry,) = parsed(replace(parts, provenance=facts))["model-index"]
    assert entry["name"] == "Image classifier trained on digits"
    found = [
        (result["dataset"].get("config"), result["metrics"][0]["type"], value["value"])
        for result in entry["results"]
        for value in result["metrics"]
    ]
    assert found == [
        (None, "accuracy", 0.7562),
        ("chalk", "accuracy", 0.7),
        ("paper", "accuracy", 0.8123),
    ]
    assert {result["task"]["type"] for result in entry["results"]} == {"image-classification"}


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_valid_yaml(predictor: oodzoo.Predictor, name: str) -> None:
    parts = predictor._parts()
    facts = replace(parts.provenance, name=name, accuracy=1.0, accuracy_by_domain={name: 1.0})
    (entry,) = parsed(replace(parts, provenance=facts))["model-index"]
    mean, domain = entry["results"]
    assert mean["dataset"] == {"name": plain(name), "type": plain(name)}
    assert domain["dataset"]["config"] == plain(name)
    plain(name).encode()


@pytest.mark.parametrize(
    ("kind", "tag", "called"),
    [
        ("classification", "image-classification", "Image classifier"),
        ("multilabel", "image-classification", "Image labeller"),
        ("regression", None, "Image regressor"),
    ],
)
def test_tasks(predictor: oodzoo.Predictor, kind: Any, tag: str | None, called: str) -> None:
    parts = predictor._parts()
    facts = replace(parts.provenance, name=None)
    parts = replace(parts, head=replace(parts.head, kind=kind), provenance=facts)
    assert parsed(parts).get("pipeline_tag") == tag
    assert title(parts) == called


def test_features_only() -> None:
    rng = np.random.default_rng(0)
    y, domains = np.tile(["no", "yes"], 30), np.repeat(["a", "b"], 30)
    parts = oodzoo.fit({"x": rng.normal(size=(60, 3))}, y, domains)._parts()
    metadata = parsed(parts)
    assert metadata["pipeline_tag"] == "tabular-classification"
    assert metadata["license"] == "other"
    assert title(parts) == "Feature classifier"


def test_models_of_the_hub(predictor: oodzoo.Predictor) -> None:
    parts = predictor._parts()
    assert "base_model" not in parsed(parts)
    changes = [{"source": "hf/facebook/dinov2-small@main"}, {"source": "timm/resnet18"}]
    assert parsed(with_specs(parts, *changes))["base_model"] == ["facebook/dinov2-small"]
