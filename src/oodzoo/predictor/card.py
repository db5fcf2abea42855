"""The model card of a predictor: README.md with its metadata, and the table in notebooks.

The card has the format of the Hugging Face Hub. It is informational: a predictor without it is
complete, and nothing is read from it. Its last line has the SHA-256 of the lines before it, so a
card that somebody has edited is recognised; saving another predictor in the folder keeps it.

See https://huggingface.co/docs/hub/model-cards#model-card-metadata.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import oodzoo
from oodzoo.combining.one_head import NAMED
from oodzoo.combining.statements import shown_choice
from oodzoo.combining.ways import COMBINATIONS
from oodzoo.core.tables import Table
from oodzoo.core.text import count, file_size, number, printable, significant, some_of, span, typed
from oodzoo.predictor.models import AnyModel
from oodzoo.predictor.parts import TUNED, PredictorParts
from oodzoo.predictor.prediction_sets import LeftOut, caveat, sets_text
from oodzoo.zoo.sources import local_path

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
    kind, takes = parts.task.kind, parts.modality
    task = _hub_task(parts)
    stated = map(_licence, parts.models)
    licences = {None if each is None else each.lower() for each in stated}
    metadata: dict[str, Any] = {"license": "other", "license_name": "licences-of-the-models"}
    if len(licences) == 1 and licences <= _LICENCES:  # the same, and the hub knows it
        metadata = {"license": licences.pop()}
    metadata["library_name"] = "oodzoo"
    if task is not None:
        metadata["pipeline_tag"] = task
    metadata["tags"] = ["oodzoo", "domain-generalization", "out-of-distribution", kind]
    specs = [model.spec for model in parts.models if model.spec is not None]
    names = [spec.identifier for spec in specs if spec.kind == "hf" and local_path(spec) is None]
    if names:  # the repositories of models from the hub
        metadata["base_model"] = list(dict.fromkeys(name.partition("@")[0] for name in names))
    if results := _results(parts, task or f"{takes}-{kind}"):
        metadata["model-index"] = [{"name": title(parts), "results": results}]
    return "\n".join(_yaml(metadata))


def _hub_task(parts: PredictorParts) -> str | None:
    """The task of the hub, by what the models take and what is predicted; None if it has none."""
    takes, task = parts.modality, parts.task
    if takes is not None:
        return f"{takes}-classification" if task.has_probabilities else None
    return f"tabular-{task.kind}" if task.one_class or not task.has_probabilities else None


def _licence(model: AnyModel) -> str | None:
    return None if model.spec is None else model.spec.licence


def title(parts: PredictorParts) -> str:
    """The name of a predictor: what it does, and the name of its data."""
    takes = (parts.modality or "feature").capitalize()
    trained = "" if parts.provenance.name is None else f" trained on {parts.provenance.name}"
    return plain(f"{takes} {parts.task.estimator}{trained}")


def plain(text: str) -> str:
    """Escape what cannot be in a file, in YAML or in one line."""
    return _ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", printable(text))


def _results(parts: PredictorParts, task: str) -> list[dict[str, Any]]:
    """The measured metric on each held-out domain, and on average, as fractions."""
    facts, metric = parts.provenance, parts.task.metric
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


CARD = "README.md"
_CONFIDENCES = (0.0, 0.5, 0.7, 0.9)
"""Where the curve of accuracy and abstention is shown."""
_MOST = 100
"""Classes, domains or ranked models to list."""
_SEAL = re.compile(r"<!-- oodzoo model card ([0-9a-f]{64}) -->\n")
_MADE = {
    **{name: way.made for name, way in COMBINATIONS.items()},
    NAMED: "one head on all features of the models that were named",
    TUNED: "one fine-tuned model",
}
_CITATION = """\
```bibtex
@inproceedings{dong2022zood,
  title = {{ZooD}: Exploiting Model Zoo for Out-of-Distribution Generalization},
  author = {Dong, Qishi and Muhammad, Awais and Zhou, Fengwei and Xie, Chuanlong and Hu, Tianyang
            and Yang, Yongxin and Bae, Sung-Ho and Li, Zhenguo},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {35},
  year = {2022}
}
```"""


def model_card(parts: PredictorParts, location: str = "model/") -> str:
    """Write the card of a predictor.

    Parameters
    ----------
    parts : PredictorParts
    location : str
        What the examples load.
    """
    tuning, measured = parts.provenance.tuning, parts.left_out
    sets = [] if measured is None or not measured.sets else [_sets(measured, parts.noun)]
    sections = [
        f"---\n{card_metadata(parts)}\n---",
        f"# {_escaped(title(parts))}",
        _summary(parts),
        f"## Use\n\n{_use(parts, location)}",
        f"## Training data\n\n{_data(parts)}",
        f"## Models\n\n{_models(parts)}",
        f"## Licences\n\n{_licences(parts)}",
        *([f"## Ranking\n\n{_ranking(parts)}"] if parts.provenance.scores else []),
        *([f"## Fine-tuning\n\n{_tuning(parts, tuning)}"] if tuning else []),
        f"## Measured on held-out domains\n\n{_measured(parts)}",
        *(f"## Prediction sets\n\n{text}" for text in sets),
        f"## Limits\n\n{_limits(parts)}",
        f"## Citation\n\n{_CITATION}",
    ]
    text = "\n\n".join(sections) + "\n\n"
    return f"{text}<!-- oodzoo model card {_digest(text)} -->\n"


def is_own_card(content: bytes) -> bool:
    """Whether a card was written by oodzoo, and not edited since."""
    text = content.decode(errors="replace").replace("\r\n", "\n")  # as git may write it
    start = text.rfind("<!-- oodzoo model card ")
    seal = _SEAL.fullmatch(text[start:]) if start >= 0 else None
    return seal is not None and seal[1] == _digest(text[:start])


def keeps_card(content: bytes | None, place: str) -> bool:
    """Whether the model card at a place is kept, with a warning, because somebody has edited it."""
    if content is None or is_own_card(content):
        return False
    warnings.warn(
        f"the model card {place!r} was edited, or is not by oodzoo, and is kept: it may describe "
        "another predictor; remove it and save again for a new one",
        stacklevel=2,
    )
    return True


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _summary(parts: PredictorParts) -> str:
    facts, task = parts.provenance, parts.task
    made = _MADE.get(facts.choice, facts.choice).format(pooled=task.pooled_words)
    if shown_choice(facts.choice, parts.models) != facts.choice:
        made = "a single model, chosen with its head among all models on held-out domains"
    takes = parts.modality
    given = "" if takes else " It takes the features of its models, not the samples themselves."
    first = (
        f"This predictor {task.action} {parts.noun}s of domains that it was not trained on "
        f"({task.count_outputs(len(parts.classes))}). It was made with oodzoo "
        f"{oodzoo.__version__}, which chooses and combines pre-trained models for data from "
        f"unseen domains.{given}"
    )
    lines = [first, "", f"- How it was made: {made}."]
    if facts.target is not None:
        lines.append(f"- It was fitted for unlabelled {parts.noun}s of {_code(facts.target)}.")
    if facts.adapted is not None:
        lines.append(
            f"- Its head is adapted to {count(facts.adapted, f'unlabelled {parts.noun}')}."
        )
    return "\n".join(lines)


def _use(parts: PredictorParts, location: str) -> str:
    takes = parts.modality
    samples = {"image": '["a.jpg"]', "text": '["a text"]', None: "features"}[takes]
    files = {"image": "photos/", "text": "texts.csv", None: "features.npz"}[takes]
    made = ["# features: {model: array (n, d)}"] if takes is None else []
    return "\n".join(
        [
            "```python",
            "import oodzoo",
            "",
            *made,
            f'predictor = oodzoo.load("{location}")',
            f"predictor.predict({samples})",
            f"predictor.domain_distance({samples})  # above 1: unlike the training {parts.noun}s",
            "```",
            "",
            f"Or on the command line: `oodzoo predict {typed(location)} {files}`.",
        ]
    )


def _data(parts: PredictorParts) -> str:
    facts = parts.provenance
    outputs = parts.task.count_outputs(len(parts.classes))
    lines = [
        f"- Name: {'unknown' if facts.name is None else _code(facts.name)}",
        f"- Size: {count(facts.n_images, parts.noun)}",
        f"- {count(len(facts.domains), 'domain')}: {_enumerated(facts.domains)}",
        f"- {outputs}: {_enumerated(parts.classes)}",
        f"- Fingerprint: {_code(facts.data)}",
    ]
    return "\n".join(lines)


def _models(parts: PredictorParts) -> str:
    weights = parts.provenance.pool if len(parts.models) > 1 else {}
    rows = [
        [
            _code(model.name),
            *([f"{weights.get(model.name, 0):.3f}"] if weights else []),
            f"{len(parts.columns.by_model[model.name]):,} of {model.feature_dim:,}",
            "unknown" if model.parameters is None else f"{model.parameters:,}",
            *_origin(model),
        ]
        for model in parts.models
    ]
    header = ["model", *(["weight"] if weights else []), "features", "parameters"]
    table = Table.of([*header, "pre-training", "source"], rows).markdown()
    cost = parts.cost
    costs = [
        *([] if cost.parameters is None else [count(cost.parameters, "parameter")]),
        *([] if cost.bytes is None else [f"{file_size(cost.bytes)} of files"]),
        *([] if cost.milliseconds is None else [f"{cost.milliseconds:.1f} ms per {parts.noun}"]),
    ]
    if costs:
        table += f"\n\nIn total: {', '.join(costs)}"
        timed = cost.milliseconds is not None
        table += " on the machine that computed the features." if timed else "."
    return table


def _origin(model: AnyModel) -> list[str]:
    """Pre-training and source of a model."""
    spec = model.spec
    if spec is None:
        return ["unknown", "features only"]
    source = spec.source if local_path(spec) is None else "file in this folder"
    return [_escaped(spec.pretraining or "unknown"), _escaped(spec.origin or source)]


def _licences(parts: PredictorParts) -> str:
    found = {model.name: _licence(model) for model in parts.models}
    lines = [f"- {_code(name)}: {_escaped(each or 'unknown')}" for name, each in found.items()]
    text = "As stated by the sources of the models:\n\n" + "\n".join(lines)
    if unknown := sum(each is None for each in found.values()):
        models = count(unknown, "model")
        text += f"\n\nThe licence of {models} is not known: look it up before you share the files."
    return text


def _ranking(parts: PredictorParts) -> str:
    facts = parts.provenance
    used = {model.name for model in parts.models}
    ranked = sorted(facts.scores.items(), key=lambda item: -item[1])
    rows = [
        [str(rank), _code(name), f"{score:.4g}", "yes" if name in used else ""]
        for rank, (name, score) in enumerate(ranked[:_MOST], start=1)
    ]
    named = "" if facts.score is None else f", by the score {_code(facts.score)}"
    left = len(ranked) - len(rows)
    text = f"{count(len(ranked), 'model')}{named}; higher is better.\n\n"
    text += Table.of(["rank", "model", "score", "used"], rows).markdown()
    return text + (f"\n\nAnd {left:,} more: see predictor.json." if left else "")


def _tuning(parts: PredictorParts, facts: Mapping[str, Any]) -> str:
    """What was done, and the metric of each candidate on the domains that it was chosen on."""
    text = _bullets({key: value for key, value in facts.items() if key != "left_out"})
    candidates: dict[str, dict[str, float]] = facts.get("left_out", {})
    if not candidates:
        return text
    domains = list(next(iter(candidates.values())))
    rows = [
        [_code(domain), *(f"{each[domain]:.1f}" for each in candidates.values())]
        for domain in domains[:_MOST]
    ]
    means = [f"{sum(each.values()) / len(each):.1f}" for each in candidates.values()]
    heading = parts.task.measure.heading
    table = Table.of(["domain", *map(_escaped, candidates)], [*rows, ["mean", *means]]).markdown()
    return (
        f"{text}\n\n{heading} on the images that the choice was made on, by weights and their "
        f"share in the mixture; slightly too high for what was chosen:\n\n{table}"
    )


def _measured(parts: PredictorParts) -> str:
    facts, metric = parts.provenance, parts.task.measure
    if facts.accuracy is None:
        return f"The {metric.name} on unseen domains was not measured for this predictor."
    domains = count(len(facts.domains), "domain")
    text = f"**{facts.accuracy:.1f} %** {metric.name}, mean over {domains}."
    if facts.accuracy_interval is not None:
        low, high = facts.accuracy_interval
        text += f" 90 % interval for one new domain: {low:.1f} to {high:.1f} %."
    text += (
        " Each domain was left out in turn: models were ranked, chosen, combined and trained on "
        "the other domains only, and measured on the one left out. This predictor was made in the "
        "same way from all domains."
    )
    if facts.target is not None or facts.adapted is not None:
        text += " It was measured without unlabelled samples of the domain left out."
    if metric.means:
        text += f" {metric.means}"
    if not facts.accuracy_by_domain:
        return text
    rows = [
        [_code(domain), f"{value:.1f}", _escaped(facts.choice_by_domain.get(domain, ""))]
        for domain, value in list(facts.accuracy_by_domain.items())[:_MOST]
    ]
    table = Table.of(["held-out domain", metric.heading, "chosen without it"], rows).markdown()
    return f"{text}\n\n{table}"


def _sets(left_out: LeftOut, noun: str) -> str:
    """What was measured about prediction sets and confidence on held-out domains."""
    numbers = not left_out.confidence
    what = "intervals contain the true number" if numbers else "sets contain the right class"
    first = (
        f"`predictor.predict_sets({noun}s, coverage=0.9)`: {what} for this share of the {noun}s, "
        "on average over held-out domains. Each domain was predicted by heads trained without it, "
        "and measured with the threshold of the other domains; a single model, the models of an "
        "ensemble, and features selected by the paper's method were chosen on all domains. On a "
        "domain that differs more, the share can be lower."
    )
    header = ["coverage", "measured, mean", "worst domain", "half-width" if numbers else "classes"]
    rows = []
    for each in left_out.sets:
        domain, worst = each.worst
        widths = ", ".join(f"± {half:.4g}" for half in each.thresholds)
        size = widths if each.size is None else f"{each.size:.1f}"
        mean, lowest = f"{each.average:.1f} %", f"{worst:.1f} % ({_code(domain)})"
        rows.append([f"{100 * each.level:g} %", mean, lowest, size])
    text = f"{first}\n\n{Table.of(header, rows).markdown()}"
    if numbers:
        return text
    points = [point for point in left_out.confidence if point.confidence in _CONFIDENCES]
    curve = [
        [f"{point.confidence:g}" if point.confidence else "any", f"{point.kept:.0f} %"]
        + ["-" if value is None else f"{value:.1f} %" for value in (point.accuracy, point.worst)]
        for point in points
    ]
    kept = Table.of(
        [f"{noun}s of this confidence", "share", "accuracy", "worst domain"], curve
    ).markdown()
    return f"{text}\n\nThe confidence is the probability of the predicted class.\n\n{kept}"


def _limits(parts: PredictorParts) -> str:
    noun, task = parts.noun, parts.task
    unlike = (
        f"- On {noun}s unlike the training {noun}s it is not reliable. Every prediction has a "
        "distance from them; above 1 it is marked `out_of_domain`. Most, but not all, unrelated "
        f"{noun}s are marked."
    )
    further = (
        "- The measured values are those of domains of the training data. A domain that differs "
        "from them more than they differ from each other can be outside the interval."
    )
    open_questions = (
        "- Not measured: single groups of people or things, mistakes of the pre-trained models "
        "and of their training data, deliberate manipulation of inputs."
    )
    lines = [unlike, further, open_questions]
    if task.has_probabilities:
        lines.insert(1, f"- It knows the {task.nouns} listed above, and no others.")
    return "\n".join(lines)


# --- Markdown ----------------------------------------------------------------------------------


def _code(text: Any) -> str:
    """A name as code, also in a table."""
    shown = plain(str(text))
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    space = " " if "`" in shown or shown != shown.strip() or not shown else ""
    return f"{ticks}{space}{shown}{space}{ticks}".replace("|", r"\|")


def _escaped(text: str) -> str:
    """Text without Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]<>#|~&!])", r"\\\1", plain(text))


def _bullets(facts: Mapping[str, Any], indent: str = "") -> str:
    """A list of facts, those within others indented."""
    lines = []
    for key, value in facts.items():
        shown = f"{indent}- {_escaped(str(key).replace('_', ' '))}"
        if isinstance(value, Mapping):
            lines += [shown, _bullets(value, f"{indent}  ")]
        elif value is not None:
            lines.append(f"{shown}: {_value(value)}")
    return "\n".join(filter(None, lines))


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return f"{value:.4g}" if isinstance(value, float) else _code(value)


def _enumerated(values: Sequence[Any]) -> str:
    shown = ", ".join(_code(value) for value in values[:_MOST])
    left = len(values) - _MOST
    return f"{shown} and {left:,} more" if left > 0 else shown


# --- HTML --------------------------------------------------------------------------------------


def predictor_as_html(parts: PredictorParts) -> str:
    """Return a table of the models, with what was measured about their combination."""
    facts = parts.to_dict()
    rows = [
        [
            model["name"],
            "" if model["weight"] is None or len(parts.models) == 1 else number(model["weight"], 2),
            f"{model['kept']:,} of {model['features']:,}",
            "" if model["parameters"] is None else number(model["parameters"]),
            "" if model["milliseconds"] is None else significant(model["milliseconds"]),
            model["licence"] or "",
        ]
        for model in facts["models"]
    ]
    columns = ["model", "weight", "features", "parameters", "ms / image", "licence"]
    shown = [at for at, _ in enumerate(columns) if any(row[at] for row in rows)]
    choice = shown_choice(parts.provenance.choice, parts.models)
    outputs = parts.task.count_outputs(len(parts.classes))
    models = count(len(rows), "model")
    return Table.of(
        [columns[at] for at in shown],
        [[row[at] for at in shown] for row in rows],
        caption=f"Predictor ({choice}): {outputs} from {models}",
        notes=[*_accuracy_notes(parts), *_sets_notes(parts), _trained_note(parts)],
        left=("licence",),
    ).html()


def _accuracy_notes(parts: PredictorParts) -> list[str]:
    provenance = parts.provenance
    if provenance.accuracy is None:
        return []
    interval = provenance.accuracy_interval
    between = "" if interval is None else f" (90 % interval for one domain: {span(*interval)})"
    by_domain = [f"{name} {value:.1f}" for name, value in provenance.accuracy_by_domain.items()]
    domains = f": {some_of(by_domain, 10)}" if by_domain else ""
    metric = parts.task.measure.title
    value = number(provenance.accuracy, 1)
    return [f"{metric} on held-out domains: {value} %{between}{domains}."]


def _sets_notes(parts: PredictorParts) -> list[str]:
    if parts.left_out is None:
        return []
    provenance = parts.provenance
    but = caveat(provenance.choice, adapted=provenance.adapted is not None)
    return [
        f"Prediction sets (coverage=0.9): {sets_text(each, parts.classes)}{but}."
        for each in parts.left_out.sets
        if each.level == 0.9
    ]


def _trained_note(parts: PredictorParts) -> str:
    provenance = parts.provenance
    samples = count(provenance.n_images, "sample")
    of = f" of {provenance.name}" if provenance.name else ""
    domains = count(len(provenance.domains), "domain")
    return f"Trained on {samples}{of}, {domains}: {some_of(provenance.domains, 10)}."
