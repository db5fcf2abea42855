"""What is said about results, once: sentences of the terminal, notebooks, reports and model cards.

Each function returns a sentence, or a part of one; most return nothing where there is nothing to
say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from oodzoo.combining.one_head import ENSEMBLE, NAMED
from oodzoo.combining.pool import POOL
from oodzoo.combining.ways import COMBINATIONS
from oodzoo.core.limits import Cost, cost_of
from oodzoo.core.text import count, listed, number, span
from oodzoo.tasks import Kind, task_of
from oodzoo.tasks.classification import ClassDiagnosis, add_up

if TYPE_CHECKING:
    from oodzoo.combining.evaluation.learning_curve import FewerDomains, LearningCurve
    from oodzoo.combining.evaluation.result import Evaluation, Recommended
    from oodzoo.combining.evaluation.rows import Gain
    from oodzoo.ranking.ranking import Ranking, Row

# --- combinations ---------------------------------------------------------------------------------

FINE_TUNED = "fine_tuned"
"""Recommended beside the combinations: the top model, fine-tuned."""


def titles() -> dict[str, str]:
    """What can be recommended, as it is called in texts."""
    return {name: way.title for name, way in COMBINATIONS.items()} | {FINE_TUNED: "Fine-tuned"}


def shown_choice(choice: str, models: Sized) -> str:
    """How a choice is called where people read it: a pool of one model is a single model.

    Examples
    --------
    >>> shown_choice("pool", ["a"]), shown_choice("pool", ["a", "b"])
    ('single', 'pool')
    """
    return COMBINATIONS[choice].shown(models) if choice in COMBINATIONS else choice


def titled(choice: str, models: Sequence[str]) -> str:
    """The title of a combination of these models.

    Examples
    --------
    >>> titled("pool", ["a"]), titled("pool", ["a", "b"])
    ('Pool, a single model', 'Pool')
    """
    same = shown_choice(choice, models) == choice
    return titles()[choice] + ("" if same else ", a single model")


def described(choice: str, models: Sequence[str]) -> str:
    """Describe a combination of these models."""
    if choice == FINE_TUNED:
        return f"{models[0]}, fine-tuned"
    return COMBINATIONS[ENSEMBLE.name if choice == NAMED else choice].described(models)


# --- numbers --------------------------------------------------------------------------------------

SAME = "the same"
"""A difference that is not shown, in words."""


def compared(value: float, other: float) -> str:
    """How a percentage compares with another one, in words."""
    difference = round(value, 1) - round(other, 1)  # as both are shown
    if abs(difference) < 0.05:
        return "equal to"
    return f"{abs(difference):.1f} points {'above' if difference > 0 else 'below'}"


def points(gain: float) -> str:
    """A difference in words.

    Examples
    --------
    >>> points(-10.32), points(0.5), points(0.01)
    ('10.3 points less', '0.5 points more', 'the same')
    """
    if abs(gain) < 0.05:
        return SAME
    return f"{abs(gain):.1f} points {'more' if gain > 0 else 'less'}"


# --- the recommendation ---------------------------------------------------------------------------

_LEAST_DISAGREEMENT = 1.0
"""Points by which both estimates must prefer another combination."""

_MOST_DOMAINS = 2
"""More domains are counted, not named."""


def findings(evaluation: Evaluation) -> list[str]:
    """Summarise an evaluation, one sentence per line."""
    best, rows = evaluation.recommended, evaluation.rows
    others = [
        f"{title} {rows[name].average:.1f} %"
        for name, title in titles().items()
        if name in rows and name != best.choice
    ]
    main = (
        f"Recommended: {described(best.choice, best.models)}. Chosen in the same way without each "
        f"domain, it {task_of(evaluation.task).achieves(best.average)} ({', '.join(others)})."
    )
    lines = [main]
    if evaluation.rule == "oracle":
        lines.append(
            "The oracle selected the heads of Single, Ensemble and Selection by labels of the "
            "held-out domain. A new domain has none: expect less there."
        )
    if oracle := evaluation.oracle:
        lines.append(
            f"That is {compared(best.average, oracle.average)} the best single model on each "
            f"held-out domain ({oracle.average:.1f} %), which is unknown in advance."
        )
    lines += [chosen_otherwise(evaluation), caution(evaluation), best.disagreement]
    if beyond := [titles()[name] for name in evaluation.beyond_limits if name in titles()]:
        options = {"--max-models": best.max_models, "--max-ms": best.max_ms}
        limits = [f"{name} {value:g}" for name, value in options.items() if value is not None]
        one = len(beyond) == 1
        lines.append(
            f"{' and '.join(beyond)} {'exceeds' if one else 'exceed'} {', '.join(limits)}: shown "
            f"for comparison, and not recommended where {'it does' if one else 'they do'}."
        )
    lines += [weak_points(evaluation.diagnosis), gain_of_tuning(evaluation)]
    if pool := evaluation.with_target.get(POOL.name):
        lines.append(with_target(pool.average))
    if zero_shot := evaluation.baselines.get("zero_shot"):
        lines.append(
            "Zero-shot, from the names of the classes and without training, the best model "
            f"reaches {zero_shot.average:.1f} %."
        )
    if random := evaluation.baselines.get("random_features"):
        lines.append(
            f"Selection keeps {100 * fmean(evaluation.feature_ratio.values()):.0f} % of the "
            f"features, {compared(evaluation.selection.average, random.average)} as many random "
            f"ones ({random.average:.1f} %)."
        )
    for domain, classes in evaluation.unseen.items():
        one, names = len(classes) == 1, ", ".join(map(repr, classes))
        if not task_of(evaluation.task).one_class:
            found = f"label {names} occurs" if one else f"labels {names} occur"
            fate = "cannot be learned without it"
        else:
            found = f"class {names} occurs" if one else f"classes {names} occur"
            fate = f"{'is' if one else 'are'} always misclassified there"
        lines.append(f"The {found} only in domain {domain!r} and {fate}.")
    return [*filter(None, lines), *(each.text for each in most_useful(evaluation.advice))]


def chosen_otherwise(evaluation: Evaluation) -> str:
    """Say why the metric is not of the recommended combination in every domain; or empty."""
    best = evaluation.recommended
    row = evaluation.rows.get(best.choice)
    others = [domain for domain, choice in best.choices.items() if choice != best.choice]
    if row is None or not others or f"{row.average:.1f}" == f"{best.average:.1f}":
        return ""
    where = " and ".join(others)
    if len(others) > _MOST_DOMAINS:
        where = f"{len(others)} of {count(len(best.choices), 'domain')}"
    return (
        f"For {where}, another combination was chosen without "
        f"{'it' if len(others) == 1 else 'them'}, and the choice is part of what is measured; "
        f"{titles()[best.choice]} in every domain has {row.average:.1f} %."
    )


def caution(evaluation: Evaluation) -> str:
    """Where what is recommended is worse than no model at all; empty if it is not."""
    best = evaluation.recommended
    worse = [name for name, value in best.domains.items() if value < 0]
    if not worse:
        return ""
    where = "domain" if len(worse) == 1 else "domains"
    on_average = ", and on average" if best.average < 0 else ""
    return (
        f"In the {where} {', '.join(map(repr, worse))}{on_average} it is worse than predicting the "
        "mean of the domain: look whether the numbers mean the same there (oodzoo data)."
    )


def disagreement(best: Recommended) -> str:
    """What it means if held-out domains and the domains within disagree; empty if they do not."""
    here = {name: value for name, value in best.estimates.items() if name in best.within}
    if not here:
        return ""
    out, inside = max(here, key=here.__getitem__), max(here, key=best.within.__getitem__)
    gains = here[out] - here[inside], best.within[inside] - best.within[out]
    if min(gains) < _LEAST_DISAGREEMENT:
        return ""
    return (
        f"The two estimates disagree: {titles()[out]} is best on held-out domains "
        f"({here[out]:.1f} %), but {titles()[inside]} within the domains "
        f"({best.within[inside]:.1f} %). What fits the known domains best carries over less "
        "well; images of more domains would show which one to trust."
    )


def why_not_the_highest(evaluation: Evaluation) -> str:
    """Say why a combination with a higher number is not recommended; empty if there is none."""
    best = evaluation.recommended
    averages = {name: row.average for name, row in evaluation.rows.items() if name in titles()}
    first = max(averages, key=averages.__getitem__)
    if first == best.choice or round(averages[first], 1) <= round(best.average, 1):
        return ""
    if first in evaluation.beyond_limits:
        reason = "it exceeds the limits"
    elif first in evaluation.tied:
        reason = "the difference is within a standard error between the domains"
    else:
        reason = "it is not clearly better on the training domains, which decide"
    return f"{titles()[first]} has {averages[first]:.1f} %, but {reason}."


def with_target(average: float) -> str:
    """What the pool reaches with unlabelled images of the target."""
    return f"With unlabelled images of each held-out domain, the pool reaches {average:.1f} %."


_FEW = 3
"""Classes and confusions that a sentence names."""

_GOOD = 99.5
"""Classes with a recall above this, in percent, are not named as the worst ones."""

_FAR_BELOW = 20.0
"""Points of recall below the mean of the other classes from which a class fails."""


def failing_class(diagnosis: Mapping[str, ClassDiagnosis]) -> tuple[str, float] | None:
    """Return the class that is recognised worst, with its recall in percent.

    None unless its recall, over all domains, is far below the mean of the other classes.

    Examples
    --------
    >>> import numpy as np
    >>> from oodzoo.tasks import CLASSIFICATION
    >>> right = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]])
    >>> paths, names = ["a.jpg", "b.jpg", "c.jpg"], ["cat", "dog"]
    >>> y = np.array([0, 1, 1])
    >>> found = CLASSIFICATION.diagnose(right, y, names, paths=paths, domains="photo")
    >>> failing_class({"photo": found})
    ('dog', 50.0)
    """
    recalls = _recalls(diagnosis)
    if len(recalls) < 2:
        return None
    worst = min(recalls, key=recalls.__getitem__)
    rest = (sum(recalls.values()) - recalls[worst]) / (len(recalls) - 1)
    return (worst, recalls[worst]) if rest - recalls[worst] >= _FAR_BELOW else None


def weak_points(diagnosis: Mapping[str, ClassDiagnosis]) -> str:
    """Name the classes that are recognised worst and taken for one another, over all domains.

    Examples
    --------
    >>> import numpy as np
    >>> from oodzoo.tasks import CLASSIFICATION
    >>> right = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]])
    >>> paths, names = ["a.jpg", "b.jpg", "c.jpg"], ["cat", "dog"]
    >>> y = np.array([0, 1, 1])
    >>> found = CLASSIFICATION.diagnose(right, y, names, paths=paths, domains="photo")
    >>> weak_points({"photo": found})
    "Recognised worst: 'dog' (50 %). Most often confused: 'dog' taken for 'cat' (1 image)."
    """
    known = _recalls(diagnosis)
    worst = [name for name in sorted(known, key=known.__getitem__) if known[name] <= _GOOD][:_FEW]
    if not worst:
        return ""
    classes = ", ".join(f"{name!r} ({known[name]:.0f} %)" for name in worst)
    pairs = ", ".join(
        f"{label!r} taken for {predicted!r} ({count(images, 'image')})"
        for label, predicted, images in add_up(diagnosis.values()).confusions[:_FEW]
    )
    return f"Recognised worst: {classes}. Most often confused: {pairs}."


def _recalls(diagnosis: Mapping[str, ClassDiagnosis]) -> dict[str, float]:
    """The recall of each class that occurs, over all domains."""
    figures = add_up(diagnosis.values()).per_class if diagnosis else {}
    return {name: each.recall for name, each in figures.items() if each.recall is not None}


# --- what would change it -------------------------------------------------------------------------

LEAST_GAIN = 0.5
"""Points that doubling the images must have gained for more images to be recommended."""

NOISE = "within the noise between held-out domains"
"""A gain that is no larger than its standard error, in words."""


def is_enough(gain: float) -> bool:
    """Whether a gain, as it is shown, is worth the effort."""
    return round(gain, 1) >= LEAST_GAIN


KINDS = ("more_images", "more_domains", "target_images", "fine_tuning", "budget")
"""What advice is about, in the order in which it is given."""

TUNE = "oodzoo fit STORE --choose single --out MODEL, then oodzoo tune MODEL DATA --out NEW"


@dataclass(frozen=True)
class Advice:
    """What would change the result.

    Attributes
    ----------
    kind : {"more_images", "more_domains", "target_images", "fine_tuning", "budget"}
    text : str
        One or two sentences.
    gain : float, optional
        Measured points of the main metric, compared with what is recommended; for "more_images" and
        "more_domains", what the last ones gained. None if it was not measured: the text says how.
    """

    kind: str
    text: str
    gain: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"advice must be one of {', '.join(KINDS)}, got {self.kind!r}")


def on_images(curve: LearningCurve) -> Advice:
    """Say whether more images of the same domains would help."""
    how = " Add them to the data and run the same command again." if curve.helps else ""
    return Advice("more_images", curve.text + how, curve.gain)


def on_domains(found: FewerDomains, metric: str) -> Advice:
    """Say whether images of a further domain would help."""
    what = metric.replace("_", " ")
    moved = "raised" if found.gain >= 0 else "lowered"
    text = (
        f"Training on {found.training} domains instead of {found.training - 1} {moved} the {what} "
        f"of the top model by {abs(found.gain):.1f} points"
    )
    more = "labelled images of a further domain would"
    if found.helps:
        text += f": {more} probably help. Add them to the data and run the same command again."
    elif is_enough(found.gain):
        text += f", {NOISE}: it is unclear whether {more} help."
    else:
        text += f": {more} hardly help, unless it is like those that you will meet."
    return Advice("more_domains", text, found.gain)


def on_target(average: float | None, recommended: float) -> Advice:
    """Say what unlabelled images of the target domain gain; `average` is None if not measured."""
    if average is None:
        return Advice(
            "target_images",
            "Unlabelled images of the domain where you will use it may help: oodzoo evaluate STORE "
            "--with-target measures by how much.",
        )
    gain = average - recommended
    text = f"{with_target(average).removesuffix('.')}, {points(gain)}"
    if gain > 0:
        text += ": if you have some, use oodzoo fit STORE --target FOLDER --out MODEL"
    return Advice("target_images", f"{text}.", gain)


def on_tuning(gain: Gain | None, title: str = "", *, recommended: bool = False) -> Advice:
    """Say what fine-tuning gains; None if that was not measured. `title` names what it is over.

    How to do it is said only if it is `recommended`.
    """
    if gain is None:
        return Advice(
            "fine_tuning",
            "Fine-tuning the top model may help: oodzoo evaluate STORE --tune --data DATA measures "
            "by how much.",
        )
    than = "as" if points(gain.average) == SAME else "than"
    how = f": {TUNE}" if recommended else ""
    text = f"Fine-tuning the top model gives {points(gain.average)} {than} {title}{how}."
    return Advice("fine_tuning", text, gain.average)


def gain_of_tuning(evaluation: Evaluation) -> str:
    """What fine-tuning gains; empty if it was not asked for."""
    if evaluation.tuning is None:
        return ""
    gain = evaluation.tuning.gain
    sign = "gains" if gain.average >= 0 else "loses"
    text = (
        f"Fine-tuning {sign} {abs(gain.average):.1f} points compared with "
        f"{titles()[gain.over]}, which is recommended otherwise (standard error between domains "
        f"{gain.error:.1f}; {compared(gain.over_head, 0)} the linear head that it starts from)"
    )
    if evaluation.recommended.choice != FINE_TUNED:
        return f"{text}: it is not recommended."
    return f"{text}. Make such a predictor with {TUNE}."


def on_budget(
    max_ms: float,
    name: str,
    average: float,
    recommended: float,
    times: float,
    metric: str = "accuracy",
) -> Advice:
    """Say what is recommended with less time per image.

    Parameters
    ----------
    max_ms : float
        The limit in milliseconds.
    name : str
        What is recommended within it.
    average, recommended : float
        Its main metric in percent, and that of what is recommended without the limit.
    times : float
        How many times as fast it is.
    metric : str
        Name of the main metric.
    """
    gain = average - recommended
    difference = points(gain)
    if difference == SAME:
        difference += f" {metric.replace('_', ' ')}"
    text = (
        f"With at most {max_ms:g} ms per image (--max-ms {max_ms:g}): {name}, {average:.1f} %, "
        f"{difference}, {times:.{0 if times >= 10 else 1}f} times as fast."
    )
    return Advice("budget", text, gain)


def most_useful(advice: Sequence[Advice]) -> list[Advice]:
    """What to try first, of the advice that other findings do not state: data, and less time."""
    data = [each for each in advice if each.kind in ("more_images", "more_domains")]
    budgets = [each for each in advice if each.kind == "budget"]
    best = [max(data, key=lambda each: each.gain or 0)] if data else []
    return [*best, *budgets[:1]]


# --- rankings -------------------------------------------------------------------------------------

PARETO = "Pareto-optimal, no other model is at least as accurate and cheaper"


def has_target(ranking: Ranking) -> bool:
    """Whether the models are ranked for images of a target."""
    return ranking.rows[0].agreement is not None


def where(ranking: Ranking) -> str:
    """Where the accuracy is expected."""
    return "on the target" if has_target(ranking) else "on an unseen domain"


def interval_words(ranking: Ranking) -> str:
    """What the interval is for."""
    return "90 % interval" if has_target(ranking) else "90 % interval for a new domain"


def interval_text(ranking: Ranking, row: Row, digits: int = 0) -> str:
    """The interval of a model, in words."""
    return f"{interval_words(ranking)}: {span(*row.accuracy_interval, digits=digits)} %"


def choice_is_repeated(ranking: Ranking) -> bool:
    """Whether the choice of the first model is part of the estimate of its accuracy.

    It is for scores that are known for each held-out domain, if there was a choice.
    """
    return len(ranking) > 1 and all(fold.score is not None for fold in ranking.rows[0].folds)


def certainty(ranking: Ranking) -> str:
    """How certain it is that the top model is the best; empty if that is not known."""
    first, others = ranking.rows[0], len(ranking) - 1
    if not first.rank_interval or not others:
        return ""
    if first.rank_interval[1] == 1:
        rest = "the other model" if others == 1 else f"the other {others} models"
        return f"It is clearly ahead of {rest}."
    if not first.tied:
        return f"90 % interval of its rank: {span(*first.rank_interval)}."
    domains = count(len(first.folds), "domain")
    return f"With {domains}, it is statistically tied with {listed(first.tied, 3)}."


def proposed_line(by: str | None) -> str:
    """A sentence to put next to domains; empty if they were given.

    Examples
    --------
    >>> proposed_line("camera")
    'The domains are proposed by camera, not given: accuracy on a truly new domain may differ.'
    >>> proposed_line(None)
    ''
    """
    if by is None:
        return ""
    return (
        f"The domains are proposed by {by}, not given: accuracy on a truly new domain may differ."
    )


# --- what to expect -------------------------------------------------------------------------------


def meaning(
    task: Kind, value: float, interval: tuple[float, float] | None, place: str = "a new domain"
) -> str:
    """What a percentage and its interval mean for a domain."""
    text = task_of(task).expectation.format(place=place, value=number(value))
    if interval is None:
        return f"{text}."
    how_sure = "in nine of ten new domains" if place == "a new domain" else "with 90 % certainty"
    unit = "" if task_of(task).one_class else " %"
    low, high = (number(end) for end in interval)
    return f"{text}: {how_sure}, between {low} and {high}{unit}."


def cost_of_ranked(models: Sequence[str], ranking: Ranking | None) -> Cost:
    """Sum the cost of models of a ranking; layers of one network count once."""
    ranked = {row.model: row for row in ranking.rows} if ranking else {}
    if not ranked.keys() >= set(models):
        return Cost(None, None)
    return cost_of({model: ranked[model] for model in models})


def cost_in_words(models: Sequence[str], ranking: Ranking | None) -> str:
    """The number of models, and what they cost together, as far as it is known."""
    milliseconds, parameters = cost_of_ranked(models, ranking)
    parts = [count(len(models), "model")]
    if milliseconds is not None:
        parts.append(f"{_rounded(milliseconds)} ms per image")
    if parameters is not None:
        parts.append(f"{_rounded(parameters / 1e6)} million parameters")
    return ", ".join(parts)


def _rounded(value: float) -> str:
    """Two significant figures, and whole numbers from 10 on.

    Examples
    --------
    >>> _rounded(0.699), _rounded(123.4)
    ('0.7', '123')
    """
    return f"{value:.2g}" if value < 9.95 else f"{value:,.0f}"
