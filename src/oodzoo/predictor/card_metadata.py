"""The metadata of a model card: the YAML block at its top, in the format of the Hugging Face Hub.

See https://huggingface.co/docs/hub/model-cards#model-card-metadata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oodzoo.core.text import printable
from oodzoo.predictor.models import AnyModel, PredictorModel
from oodzoo.predictor.parts import PredictorParts
from oodzoo.tasks import Kind, Task
from oodzoo.zoo.spec import local_path

_TASKS: dict[tuple[str | None, Kind], str] = {
    ("image", "classification"): "image-classification",
    ("image", "multilabel"): "image-classification",
    ("text", "classification"): "text-classification",
    ("text", "multilabel"): "text-classification",
    (None, "classification"): "tabular-classification",
    (None, "regression"): "tabular-regression",
}
"""The tasks of the hub, by what the models take and what is predicted; it has none for others."""

_LICENCES = {
    *("afl-3.0", "agpl-3.0", "apache-2.0", "bsd", "bsd-2-clause", "bsd-3-clause", "cc-by-3.0"),
    *("cc-by-4.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-3.0"),
    *("cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0", "gpl-2.0"),
    *("gpl-3.0", "isc", "lgpl-2.1", "lgpl-3.0", "mit", "mpl-2.0", "openrail", "unlicense"),
}
"""Licences of models that the hub has an identifier for."""

_ESCAPED = re.compile("[\ud800-\udfff\ufffe\uffff]")


def card_metadata(parts: PredictorParts) -> str:
    """The metadata of a predictor as YAML, without the lines that enclose it."""
    kind, takes = parts.head.kind, modality(parts.models)
    task = _TASKS.get((takes, kind))
    metadata: dict[str, Any] = {**_licence(parts.models), "library_name": "oodzoo"}
    if task is not None:
        metadata["pipeline_tag"] = task
    metadata["tags"] = ["oodzoo", "domain-generalization", "out-of-distribution", kind]
    if bases := _base_models(parts.models):
        metadata["base_model"] = bases
    if results := _results(parts, task or f"{takes}-{kind}"):
        metadata["model-index"] = [{"name": title(parts), "results": results}]
    return "\n".join(_yaml(metadata))


def modality(models: Iterable[AnyModel]) -> str | None:
    """What the models take, "image" or "text"; None if they have features only."""
    kinds = [model.modality for model in models if isinstance(model, PredictorModel)]
    return kinds[0] if kinds else None


def title(parts: PredictorParts) -> str:
    """The name of a predictor: what it does, and the name of its data."""
    takes = (modality(parts.models) or "feature").capitalize()
    does = {"classification": "classifier", "regression": "regressor", "multilabel": "labeller"}
    trained = "" if parts.provenance.name is None else f" trained on {parts.provenance.name}"
    return plain(f"{takes} {does[parts.head.kind]}{trained}")


def licences(models: Iterable[AnyModel]) -> dict[str, str | None]:
    """The licence of each model, by its name; None where it is unknown."""
    return {
        model.name: model.spec.licence if isinstance(model, PredictorModel) else None
        for model in models
    }


def plain(text: str) -> str:
    """Escape what cannot be in a file, in YAML or in one line."""
    return _ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", printable(text))


def _licence(models: Sequence[AnyModel]) -> dict[str, str]:
    """That of all models, if it is the same and the hub knows it."""
    found = {None if each is None else each.lower() for each in licences(models).values()}
    first = found.pop()
    if not found and first in _LICENCES:
        return {"license": first}
    return {"license": "other", "license_name": "licences-of-the-models"}


def _base_models(models: Iterable[AnyModel]) -> list[str]:
    """The repositories of models from the hub."""
    specs = [model.spec for model in models if isinstance(model, PredictorModel)]
    names = [spec.identifier for spec in specs if spec.kind == "hf" and local_path(spec) is None]
    return list(dict.fromkeys(name.partition("@")[0] for name in names))


def _results(parts: PredictorParts, task: str) -> list[dict[str, Any]]:
    """The measured metric on each held-out domain, and on average, as fractions."""
    facts, metric = parts.provenance, Task(parts.head.kind).metric
    name = plain(facts.name or "training data")
    found: list[tuple[str | None, float]] = list(facts.accuracy_by_domain.items())
    if facts.accuracy is not None:
        found.insert(0, (None, facts.accuracy))
    results = []
    for domain, percent in found:
        dataset = {"name": name, "type": name}
        shown = "mean over held-out domains"
        if domain is not None:
            dataset |= {"config": plain(domain), "split": "test"}
            shown = "held-out domain"
        value = {
            "type": metric,
            "value": round(percent / 100, 4),
            "name": f"{metric.replace('_', ' ')}, {shown}",
        }
        results.append({"task": {"type": task}, "dataset": dataset, "metrics": [value]})
    return results


def _yaml(value: Mapping[str, Any], indent: str = "") -> list[str]:
    """Lines of YAML; strings and numbers are written as in JSON, which is YAML, too."""
    lines = []
    for key, item in value.items():
        if isinstance(item, Mapping):
            lines += [f"{indent}{key}:", *_yaml(item, f"{indent}  ")]
        elif isinstance(item, list):
            lines.append(f"{indent}{key}:")
            for entry in item:
                inner = (
                    _yaml(entry, f"{indent}  ")
                    if isinstance(entry, Mapping)
                    else [f"{indent}  {_scalar(entry)}"]
                )
                lines += [f"{indent}- {inner[0].lstrip()}", *inner[1:]]
        else:
            lines.append(f"{indent}{key}: {_scalar(item)}")
    return lines


def _scalar(value: str | float) -> str:
    return json.dumps(value, ensure_ascii=False)
