"""`oodzoo rank` and `select`: the models and the features of a feature store."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodzoo.cli.app import MODELS_CACHED, PlainCommand, command
from oodzoo.cli.extract import stored_target
from oodzoo.cli.options import (
    LogOptions,
    OutFileOption,
    PlotOption,
    TrackingOptions,
    compute_device,
    domain_weights,
    listening,
    save_plot,
    show_document,
    top_k_of,
    warn_of_left_out,
    warn_of_limits,
)
from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listener, Stage, extent
from oodzoo.core.limits import Limits, ModelLimits
from oodzoo.core.text import count, time_per_image, typed

if TYPE_CHECKING:
    from oodzoo.combining.selection import SelectionSummary
    from oodzoo.ranking.constraints import TopK


_TOP = 5

if TYPE_CHECKING:
    from pathlib import Path

    from oodzoo.ranking.ranking import Ranking, Row


def _score_names() -> list[str]:
    from oodzoo.ranking.scores import names
    from oodzoo.ranking.terms import FOLD_SCORES

    return [*FOLD_SCORES, *names()]


class _NamingScores(PlainCommand):
    """A command whose help lists all scores, those of plugins included."""

    def get_help(self, ctx: Any) -> str:
        for option in self.params:
            if option.name == "score":
                option.help = f"Score to rank by: {', '.join(_score_names())}."  # type: ignore[attr-defined]
        return super().get_help(ctx)


@command(
    "rank",
    example="oodzoo rank features/ --score accuracy",
    interrupted=MODELS_CACHED,
    cls=_NamingScores,
)
def rank(
    terminal: Terminal,
    store: str,
    score: Annotated[
        str,
        typer.Option(metavar="NAME", help="Score to rank by.", autocompletion=_score_names),
    ] = "unseen",
    stability: str = "robust",
    target: str | None = None,
    zoo: str | None = None,
    *,
    limits: ModelLimits,
    domain_weight: list[str] | None = None,
    pareto: bool = False,
    device: str = "cpu",
    out: OutFileOption = None,
    plot: PlotOption = None,
    tracking: TrackingOptions,
) -> None:
    """Rank the models of a feature store by how well they do on unseen domains.

    Options
    -------
    stability : HOW
        Stability term: robust, or paper for the published formula.
    zoo
        New location of the models, if they moved; for --target FOLDER. {zoo}
    pareto
        Show only Pareto-optimal models, cheapest first.
    device
        Compute device: cpu (NumPy) or cuda (PyTorch).
    """
    from oodzoo.extraction.features import as_source
    from oodzoo.ranking.ranker import require_rankable
    from oodzoo.store.feature_store import FeatureStore

    if zoo is not None and target is None:
        raise InputError("--zoo is only used with --target FOLDER")
    weights = domain_weights(domain_weight)
    others = tracking.listeners()
    if target is not None:  # before its images are extracted
        require_rankable(
            as_source(FeatureStore(store)),
            score=score,
            stability=stability,
            domain_weights=weights,
            limits=limits,
            device=compute_device(device),
        )
    target = stored_target(terminal, store, target, score, zoo, device)
    ranking = ranked(
        terminal,
        store,
        score,
        stability,
        device,
        target,
        others,
        **vars(limits),
        domain_weights=weights,
    )
    if pareto:
        ranking = _front(ranking)
    show_ranking(terminal, ranking)
    options = {"score": score, "models": [row.model for row in ranking.rows]}
    show_document(terminal, ranking.to_dict(), FeatureStore(store), out, options)
    save_plot(terminal, ranking, plot)


def ranked(
    terminal: Terminal,
    store: str,
    score: str = "unseen",
    stability: str = "robust",
    device: str = "cpu",
    target: str | None = None,
    others: Sequence[Listener] = (),
    **options: Any,
) -> Ranking:
    """Rank the models of a store with a progress bar; see :func:`oodzoo.rank` for the options."""
    from oodzoo.ranking.ranker import rank as rank_store
    from oodzoo.store.feature_store import FeatureStore

    if target is not None:
        options["target"] = target
    with listening(terminal, "Ranking", others) as listener:
        return rank_store(
            FeatureStore(store),
            score=score,
            stability=stability,  # type: ignore[arg-type]
            **options,
            device=compute_device(device),
            listener=listener,
        )


def _front(ranking: Ranking) -> Ranking:
    """Return the ranking with only its Pareto-optimal models, cheapest first."""
    if not ranking.pareto_front:
        raise InputError(
            "--pareto needs the time per image or the number of parameters of the models, but the "
            "store has neither"
        )
    return dataclasses.replace(ranking, rows=ranking.pareto_front)


def show_ranking(terminal: Terminal, ranking: Ranking) -> None:
    """Show a ranking in 80 columns."""
    from oodzoo.combining.statements import PARETO, interval_words, where
    from oodzoo.tasks import task_of

    terms, metric = _terms(ranking), task_of(ranking.task).measure
    numbers = [ranking.score, *terms, f"{metric.short} %", "90 %", "d", "M", "ms"]
    cells = [_cells(row, terms) for row in ranking.rows]
    if ranking.score == ranking.metric:  # the column of percentages has it
        numbers, cells = numbers[1:], [row[:3] + row[4:] for row in cells]
    least = ("d", "M", "trans.", "stab.", "evid.", "discr.", "ms")
    dropped = terminal.table(["rank", "", "model", *numbers, ""], cells, left=3, least=least)
    interval = "" if ranking.rows[0].rank_interval is None else "rank: with its 90 % interval."
    per_domain = ranking.rows[0].folds[0].score is not None
    repeated = "; for the first model the choice is repeated for each one" if per_domain else ""
    expected = (
        f"{metric.short}: {metric.name} to expect {where(ranking)}, with the "
        f"{interval_words(ranking)}{repeated}."
    )
    explained = [
        f"{name}: {text}." for name, text in _EXPLAINED.items() if name in {*terms} - {*dropped}
    ]
    costs = {name: text for name, text in _COSTS.items() if name not in dropped}
    if costs:
        explained.append(f"{', '.join(costs)}: {', '.join(costs.values())}.")
    for text in (interval, expected, metric.means, *explained, f"*: {PARETO}."):
        terminal.paragraph(text)
    if ranking.domains_proposed is not None:
        terminal.line(
            f"Domains: proposed by {ranking.domains_proposed}, not given; oodzoo domains shows how "
            "far the ranking depends on them."
        )
    _warn_of_skipped(terminal, ranking)


def _warn_of_skipped(terminal: Terminal, ranking: Ranking) -> None:
    """Warn of classes of a single domain, and of models that are not ranked."""
    from oodzoo.tasks import task_of

    for domain, classes in {fold.domain: fold.skipped for fold in ranking.rows[0].folds}.items():
        if classes:
            words = task_of(ranking.task)
            one = len(classes) == 1
            found = (
                f"{words.output_noun} {{}} occurs" if one else f"{words.output_nouns} {{}} occur"
            )
            terminal.warn(
                f"{found.format(', '.join(classes))} only in domain {domain!r}; ignored in its "
                "discriminability"
            )
    warn_of_left_out(terminal, ranking.left_out, "ranked")


def show_top(terminal: Terminal, ranking: Ranking, store: Path) -> None:
    """Show the first models of a ranking, and how to see the others."""
    from oodzoo.combining.statements import has_target, interval_words, where
    from oodzoo.tasks import task_of

    metric = task_of(ranking.task).measure
    rows = [_cells(row, ()) for row in ranking.rows[:_TOP]]
    terminal.table(
        ["rank", "", "model", f"{metric.short} %", "90 %", "ms"],
        [[*row[:3], *row[4:6], row[-2]] for row in rows],
        left=3,
    )
    terminal.paragraph(
        f"rank: by {ranking.score}, with its 90 % interval. {metric.short}: {metric.name} to "
        f"expect {where(ranking)}, with the {interval_words(ranking)}. ms: {_COSTS['ms']}."
    )
    if (more := len(ranking.rows) - _TOP) > 0:
        target = " --target NAME" if has_target(ranking) else ""
        terminal.line(f"… {more} more: oodzoo rank {typed(store)}{target}")
    _warn_of_skipped(terminal, ranking)


_EXPLAINED = {
    "evid.": "evidence of all domains (LogME)",
    "trans.": "label variance of a domain that another one predicts, in percent",
    "agree": "agreement with the other models on the target, in percent",
    "discr.": "discriminability",
    "stab.": "stability",
}

_COSTS = {
    "d": "features",
    "M": "million parameters",
    "ms": "milliseconds per image, on one CPU thread or the GPU",
}


def _terms(ranking: Ranking) -> list[str]:
    """The columns of the terms of a score."""
    if ranking.score not in ("zood", "discriminability", "stability"):
        target = ranking.rows[0].agreement is not None
        return ["evid.", "trans.", *(["agree"] if target else [])]
    return ["discr.", "stab."]


def _cells(row: Row, terms: Sequence[str]) -> list[object]:
    low, high = row.accuracy_interval
    values = {
        "evid.": f"{row.evidence:z.2f}",
        "trans.": f"{row.transfer:.0f}",
        "agree": "" if row.agreement is None else f"{row.agreement:.0f}",
        "discr.": f"{row.discriminability:z.3f}",
        "stab.": f"{row.stability:z.2f}",
    }
    return [
        row.rank,
        "" if row.rank_interval is None else "{}-{}".format(*row.rank_interval),
        row.model,
        f"{row.score:z.2f}",
        *(values[name] for name in terms),
        f"{row.expected_accuracy:z.1f}",
        f"{low:.0f} to {high:.0f}" if low < 0 else f"{low:.0f}-{high:.0f}",
        row.feature_dim,
        "-" if row.parameters is None else f"{row.parameters / 1e6:.2g}",
        "-" if row.milliseconds is None else time_per_image(row.milliseconds),
        "*" if row.pareto_optimal else "",
    ]


_WIDTH = 100


@command("select", example="oodzoo select features/", interrupted=MODELS_CACHED)
def select(
    terminal: Terminal,
    store: str,
    top_k: str | None = None,
    method: str = "consistent",
    score: str = "unseen",
    *,
    limits: Limits,
    threshold: float | None = None,
    device: str = "cpu",
    out: OutFileOption = None,
    log: LogOptions,
) -> None:
    """Select the features of a feature store that are useful for unseen domains.

    Options
    -------
    top_k; default all; with --method paper 3
    device
        Compute device: cpu (NumPy) or cuda (PyTorch).
    """
    from oodzoo.combining.selection import METHODS, select_features
    from oodzoo.extraction.features import as_source
    from oodzoo.store.feature_store import FeatureStore

    if method not in METHODS:
        raise InputError(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    if threshold is not None and method != "paper":
        raise InputError(f"--threshold {threshold} only applies to --method paper")
    number = _number(top_k, method)
    if score != "unseen" and number is None and not limits.of_combinations:
        raise InputError(
            f"--score {score} orders the models for --top-k, --max-models and --max-ms; give one "
            "of them, or leave it out"
        )
    opened = FeatureStore(store)
    models = warn_of_limits(terminal, opened, limits)
    if isinstance(number, int) and number > len(models):
        terminal.warn(
            f"the store has only {count(len(models), 'model')}, fewer than {number}; using all"
        )
    terminal.say(f"Selecting features of {count(len(models), 'model')}")
    with (
        listening(terminal, "Selecting", log.listeners()) as listener,
        Stage(listener, "selection", **extent(as_source(opened))) as stage,
        stage.whole.between(0.0, 1.0),
    ):
        selection = select_features(
            opened,
            method=method,
            threshold=threshold,
            top_k=number,
            score=score,
            **vars(limits),
            device=compute_device(device),
            progress=stage.progress,
        )
        summary = selection.summary()
        stage.finish(summary, {})
    if number is not None and not isinstance(number, int):
        best = count(len(summary.models), "model")
        terminal.say(f"--top-k {top_k}: the best {best}, chosen on held-out domains")
    show_selection(terminal, summary)
    show_document(terminal, summary.to_dict(), opened, out, {"score": score})


def _number(top_k: str | None, method: str) -> TopK | None:
    """Number of models to select from; None for all."""
    if top_k is None:
        return 3 if method == "paper" else None
    return None if top_k == "all" else top_k_of(top_k)


def kept_features(summary: SelectionSummary) -> str:
    """How many features were kept."""
    share = f"({100 * summary.ratio:.1f} %)"
    return f"Kept {summary.n_selected:,} of {count(summary.n_features, 'feature')} {share}"


def show_selection(terminal: Terminal, summary: SelectionSummary) -> None:
    """Print how many features were kept, by model and class."""
    classes = summary.per_class
    width = max(len(row.model) for row in summary.per_model) + len(" features kept")
    if width + sum(max(len(label), 4) + 1 for label in classes) > _WIDTH:
        classes = {}  # too many columns to read; the JSON document has them
    terminal.table(
        ["model", "features", "kept", *classes],
        [
            [row.model, row.n_features, row.n_selected]
            + [counts.per_model[row.model] for counts in classes.values()]
            for row in summary.per_model
        ],
    )
    from oodzoo.tasks import task_of

    output = task_of(summary.task).output_noun
    counts = f"--json lists the counts per {output}"
    kept = kept_features(summary)
    if summary.method == "paper":
        kept += f", each for at least one {output}"
        if classes:
            counts = f"The {output} columns count the features kept for each {output}"
    elif classes:
        counts = (
            f"The {output} columns count each feature for the {output} that it contributes most to"
        )
    terminal.line(f"{kept}. {counts}.")
