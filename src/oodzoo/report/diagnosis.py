"""The section "Mistakes": what is recommended, by class, confidence and held-out domain."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from oodzoo._text import count
from oodzoo.data.files import StoredFile
from oodzoo.diagnostics.classes import ClassDiagnosis, Mistake, add_up
from oodzoo.evaluation.result import Evaluation
from oodzoo.report.blocks import Block, Chooser, Section
from oodzoo.report.classes import classes_figure
from oodzoo.report.confusion import confusion_figure
from oodzoo.report.mistakes import mistakes_gallery
from oodzoo.report.numbers import number
from oodzoo.report.reliability import reliability_figure

MOST_DOMAINS = 12
"""Domains with a confusion matrix of their own: the hardest ones."""

PER_DOMAIN = 12
IN_TOTAL = 72
"""Largest number of mistakes that are shown."""


def hardest_first(evaluation: Evaluation) -> dict[str, ClassDiagnosis]:
    """The diagnosis of each test domain, the hardest domain first."""
    accuracy, found = evaluation.recommended.domains, evaluation.diagnosis
    return {domain: found[domain] for domain in sorted(found, key=accuracy.__getitem__)}


def shown_mistakes(evaluation: Evaluation) -> dict[str, tuple[Mistake, ...]]:
    """The mistakes that the page shows, by domain."""
    found = dict(list(hardest_first(evaluation).items())[:MOST_DOMAINS])
    most = min(PER_DOMAIN, IN_TOTAL // max(len(found), 1))
    return {domain: each.mistakes[:most] for domain, each in found.items()}


def diagnosis_section(evaluation: Evaluation, files: Mapping[str, StoredFile]) -> Section:
    """Confusions and confident mistakes in each domain; classes and calibration over all."""
    domains = hardest_first(evaluation)
    total = add_up(domains.values())
    trial = " in the first trial" if evaluation.trials > 1 else ""
    lead = (
        f"Predictions{trial} for {count(total.images, 'image')} of held-out domains, each by what "
        "was chosen and trained without its domain."
    )
    error = fmean(evaluation.recommended_row.measure("calibration_error").values())
    blocks: list[Block] = [
        _by_domain(evaluation, domains, files),
        classes_figure(total, "classes", "Accuracy of each class", domains),
        reliability_figure(total, "reliability", "Can its confidence be trusted?", error),
    ]
    return Section("mistakes", "Where it is wrong", lead, blocks, short="Mistakes")


def _by_domain(
    evaluation: Evaluation, domains: Mapping[str, ClassDiagnosis], files: Mapping[str, StoredFile]
) -> Block:
    mistakes = shown_mistakes(evaluation)
    options: list[tuple[str, list[Block]]] = []
    for at, (domain, shown) in enumerate(mistakes.items()):
        accuracy = number(evaluation.recommended.domains[domain], 1)
        title = f"Which classes are confused in {domain}?"
        blocks: list[Block] = [confusion_figure(domains[domain], f"confusion-{at + 1}", title)]
        if shown:
            blocks.append(mistakes_gallery(shown, files, f"Most confident mistakes in {domain}"))
        options.append((f"{domain} ({accuracy} %)", blocks))
    if len(domains) > 1:
        figure = confusion_figure(
            add_up(domains.values()), "confusion", "Which classes are confused in all domains?"
        )
        options.append(("All domains", [figure]))
    more = len(domains) - len(mistakes)
    label = f"Held-out domain, the {len(mistakes)} hardest" if more else "Held-out domain"
    return Chooser("confusion", label, options)
