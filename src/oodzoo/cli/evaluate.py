"""`oodzoo evaluate`: leave-one-domain-out evaluation of a feature store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from oodzoo.cli.app import MODELS_CACHED, command
from oodzoo.cli.options import (
    OutFileOption,
    TableOptions,
    TrackingOptions,
    compute_device,
    listening,
    open_data,
    rates_of,
    show_document,
    top_k_of,
    warn_of_limits,
)
from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.limits import Limits
from oodzoo.core.options import DEVICE, Compute
from oodzoo.core.text import duration, time_per_image

if TYPE_CHECKING:
    from oodzoo.combining.evaluation import Evaluation, Row
    from oodzoo.tuning.problem import TuneSettings

_MOST_OUTPUTS = 20


@dataclass(frozen=True)
class SearchOptions:
    """DomainBed's search; None if not given.

    Options
    -------
    draws; default 10
        domainbed only: number of hyper-parameter draws.
    steps; default 5001
        domainbed only: number of training steps.
    selection : RULE; default leave-one-domain-out
        domainbed only: what selects among draws and steps, training-domain,
        leave-one-domain-out or oracle; all three are shown side by side.
    """

    draws: int | None = None
    steps: int | None = None
    search_space: str | None = None
    selection: str | None = None

    def given(self, protocol: str) -> dict[str, Any]:
        """The options that are given; another protocol has none."""
        found = {name: value for name, value in vars(self).items() if value is not None}
        if protocol == "fast" and found:
            option = next(iter(found)).replace("_", "-")
            raise InputError(f"--{option} is only used with --protocol domainbed; leave it out")
        return found


@dataclass(frozen=True)
class TuneOptions(TableOptions):
    """Whether to fine-tune, and how.

    Options
    -------
    tune
        Also fine-tune the top model without each held-out domain; needs --data.
    data : DATA
        With --tune: the images of the store.
    zoo
        With --tune: new location of the models, if they moved. {zoo}
    tune_steps; default 300
        With --tune: steps of each training run.
    learning_rate : RATE,…; default 1e-4,1e-3
        With --tune: learning rate; one of several is chosen on held-out domains.
    lora : RANK
        With --tune: train LoRA adapters of this rank, not all weights.
    max_hours; default 3 on the CPU
        With --tune: refuse to start a training that would take longer.
    """

    tune: bool = False
    data: str | None = None
    zoo: str | None = None
    tune_steps: int | None = None
    learning_rate: str | None = None
    lora: int | None = None
    max_hours: float | None = None

    def __post_init__(self) -> None:
        for option, value, needed in (
            ("--data", self.data, "--tune" if not self.tune else None),
            ("--root", self.root, "--data" if self.data is None else None),
            ("--columns", self.columns, "--data" if self.data is None else None),
        ):
            if value is not None and needed is not None:
                raise InputError(f"{option} {value!r} is only used with {needed}; leave it out")

    @property
    def settings(self) -> TuneSettings | bool:
        """The settings of fine-tuning; False without it."""
        from oodzoo.tuning.problem import TuneSettings

        rates = None if self.learning_rate is None else tuple(rates_of(self.learning_rate))
        given = {
            "tune-steps": ("steps", self.tune_steps),
            "learning-rate": ("learning_rates", rates),
            "lora": ("lora", self.lora),
        }
        settings: dict[str, Any] = {}
        for option, (name, value) in given.items():
            if value is None:
                continue
            if not self.tune:
                raise InputError(f"--{option} is only used with --tune; leave it out")
            settings[name] = value
        return TuneSettings(**settings) if self.tune else False


@dataclass(frozen=True)
class EvaluationCompute(Compute):
    """Where to train heads, and to fine-tune."""

    device: Annotated[
        str | None,
        replace(DEVICE, default="cpu; with --tune, the fastest one to fine-tune on"),
    ] = None


@command("evaluate", example="oodzoo evaluate features/ --top-k 1,3,5,7", interrupted=MODELS_CACHED)
def evaluate(
    terminal: Terminal,
    store: str,
    top_k: str = "3",
    protocol: str = "fast",
    score: str = "unseen",
    *,
    trials: int | None = None,
    search: SearchOptions,
    seed: int = 0,
    baselines: bool = True,
    peers: str | None = None,
    with_target: bool = False,
    limits: Limits,
    published: str | None = None,
    tuning: TuneOptions,
    compute: EvaluationCompute,
    out: OutFileOption = None,
    tracking: TrackingOptions,
) -> None:
    """Evaluate single models and their combinations, and recommend one.

    Each domain is held out once; everything is chosen and trained on the others.

    What is done is kept in the store: an evaluation that was stopped continues.

    Options
    -------
    trials; default 1 for fast, 3 for domainbed
        Number of repetitions with different splits, for standard errors.
    peers : NAME,…; default those that are fast to compute
        Other scores to compare with, such as logme,sfda, or all: the top model under each is
        evaluated.
    with_target
        Also evaluate pools that know the unlabelled images of each held-out domain.
    """
    from oodzoo.combining.evaluation import evaluate as evaluate_store
    from oodzoo.ranking import scores
    from oodzoo.store.feature_store import FeatureStore

    compared: bool | list[str] = baselines
    if baselines and peers is not None:
        compared = list(scores.names()) if peers == "all" else peers.split(",")
    searched, tune = search.given(protocol), tuning.settings
    opened = FeatureStore(store)
    data, numbers = tuning.data, top_k_of(top_k)
    on_cpu = (compute.device or "").split(",")[0].strip() == "cpu"
    models = warn_of_limits(terminal, opened, limits)
    others = tracking.listeners()
    with listening(terminal, "Evaluating", others) as listener:
        result = evaluate_store(
            opened,
            top_k=numbers,
            protocol=protocol,  # type: ignore[arg-type]
            score=score,
            trials=trials,
            **searched,
            seed=seed,
            baselines=compared,
            with_target=with_target,
            **vars(limits),
            published=published,
            tune=tune,
            data=None if data is None else open_data(data, tuning, opened.task.kind),
            zoo=tuning.zoo,
            max_hours=tuning.max_hours,
            # cpu means NumPy for arrays, but must still be passed to fine-tuning
            tune_device="cpu" if tuning.tune and on_cpu else None,
            device=compute_device(compute.device),
            engine=compute.engine,
            address=compute.address,
            listener=listener,
        )
    show_evaluation(terminal, result)
    options = {
        "score": score,
        "models": list(models),
        **vars(limits),
    }
    show_document(terminal, result.to_dict(), opened, out, options)


def show_evaluation(terminal: Terminal, evaluation: Evaluation) -> None:
    """Print an evaluation in 80 columns."""
    rows = _main_rows(evaluation)
    baselines = {
        name.replace("_", " "): row
        for name, row in sorted(evaluation.baselines.items(), key=_baseline_order)
    }
    metric = f"{evaluation.metric.replace('_', ' ')} %"
    domains, ratios = evaluation.domains, evaluation.feature_ratio
    terminal.table(
        [metric, "average", *domains],
        [
            *(_cells(name, row, domains) for name, row in rows.items()),
            ["F. Ratio", _percent(ratios), *(f"{100 * ratios[d]:.1f}" for d in domains)],
            *(_cells(name, row, domains) for name, row in baselines.items()),
        ],
    )
    if evaluation.ablation:
        terminal.table(
            ["models", "Ensemble", "Selection", "F. Ratio"],
            [
                [
                    k,
                    f"{each.ensemble.average:.1f}",
                    f"{each.selection.average:.1f}",
                    _percent(each.feature_ratio),
                ]
                for k, each in evaluation.ablation.items()
            ],
        )
    _show_rules(terminal, evaluation)
    _show_outputs(terminal, evaluation)
    _show_cost(terminal, rows)
    _show_estimates(terminal, evaluation)
    if evaluation.tuning is not None:
        terminal.line(
            f"Fine-tuned: {duration(evaluation.tuning.seconds)} of training for a held-out domain, "
            f"on {evaluation.tuning.device}."
        )
    terminal.line(_other_measures(evaluation))
    if (error := evaluation.selection.error) is not None:
        terminal.line(
            f"Standard error of the average of Selection over {evaluation.trials} trials: "
            f"{error['average']:.1f}."
        )
    if isinstance(evaluation.top_k, dict):
        chosen = ", ".join(f"{k} for {domain}" for domain, k in evaluation.top_k.items())
        terminal.line(f"Number of models chosen for each held-out domain: {chosen}.")
    findings = evaluation.findings()
    for line in findings:
        terminal.line(line)
    for each in evaluation.advice:
        if each.text not in findings:
            terminal.line(each.text)
    show_published(terminal, evaluation)


def _main_rows(evaluation: Evaluation) -> dict[str, Row]:
    """The combinations, by their titles."""
    return {
        "Single": evaluation.single,
        "Pool": evaluation.pool,
        **{f"{n.capitalize()} + target": row for n, row in evaluation.with_target.items()},
        "Ensemble": evaluation.ensemble,
        "Selection": evaluation.selection,
        **({} if evaluation.fine_tuned is None else {"Fine-tuned": evaluation.fine_tuned}),
    }


def show_main_rows(terminal: Terminal, evaluation: Evaluation) -> None:
    """Print what each combination reaches, and the results among published ones."""
    rows, metric = _main_rows(evaluation), f"{evaluation.metric.replace('_', ' ')} %"
    cells = [_cells(name, row, evaluation.domains) for name, row in rows.items()]
    best = evaluation.recommended.domains
    hardest_last = sorted(best, key=best.__getitem__, reverse=True)
    terminal.table([metric, "average", *evaluation.domains], cells, least=hardest_last)
    show_published(terminal, evaluation)


def show_published(terminal: Terminal, evaluation: Evaluation) -> None:
    """Print the rows among published accuracies, if a data set was named."""
    table = evaluation.beside_published()
    if table is None:
        return
    terminal.table(
        [table.dataset, "from", "accuracy %"],
        [[each.method, each.source, f"{each.accuracy:.1f}"] for each in table.figures],
        left=2,
    )
    for text in (table.caveat, table.cost):
        terminal.paragraph(text)


def _other_measures(evaluation: Evaluation) -> str:
    """Secondary metrics of the recommended combination, averaged over held-out domains."""
    row = evaluation.recommended_row
    parts = []
    for name in row.measures[1:]:
        value = fmean(row.measure(name).values())
        if name == "absolute_error":
            mean = "mean over outputs" if evaluation.outputs else "in the units of the labels"
            parts.append(f"absolute error {value:.4g}, {mean}")
        else:
            words = "balanced accuracy" if name == "balanced" else name.replace("_", " ")
            unit = "points" if name == "calibration_error" else "%"
            parts.append(f"{words} {value:.1f} {unit}")
    return f"What is recommended, mean over the held-out domains: {', '.join(parts)}."


def _show_rules(terminal: Terminal, evaluation: Evaluation) -> None:
    """Print the averages by each of DomainBed's rules, with standard errors over trials."""
    if not evaluation.by_rule:
        return

    def shown(row: Row) -> str:
        error = "" if row.error is None else f" ± {row.error['average']:.1f}"
        return f"{row.average:.1f}{error}"

    terminal.table(
        ["selected by, %", "Single", "Ensemble", "Selection"],
        [
            [f"{rule} (above)" if rule == evaluation.rule else rule, *map(shown, rows.values())]
            for rule, rows in evaluation.by_rule.items()
        ],
    )


def _show_outputs(terminal: Terminal, evaluation: Evaluation) -> None:
    """Print each measure of several numbers or labels, averaged over held-out domains."""
    best = evaluation.recommended_row.outputs
    shown = sorted(best, key=lambda output: best[output][evaluation.metric])[:_MOST_OUTPUTS]
    if len(shown) < len(best):
        from oodzoo.tasks import task_of

        names = task_of(evaluation.task).output_nouns
        terminal.line(f"The {len(shown)} of {len(best)} {names} that are predicted worst:")
    others = (evaluation.pool.outputs, evaluation.single.outputs)
    for measure in best[shown[0]] if shown else ():
        error = measure == "absolute_error"
        terminal.table(
            [
                f"{measure.replace('_', ' ')}{'' if error else ' %'}",
                "Recommended",
                "Pool",
                "Single",
            ],
            [
                [
                    output,
                    *(
                        f"{each[output][measure]:{'.4g' if error else '.1f'}}"
                        for each in (best, *others)
                    ),
                ]
                for output in best
                if output in shown
            ],
        )


def _show_cost(terminal: Terminal, rows: Mapping[str, Row]) -> None:
    """Print the number of models and their cost, means over the held-out domains."""
    table = []
    for name, row in rows.items():
        cells = list(row.cells.values())
        times = [cell.milliseconds for cell in cells if cell.milliseconds is not None]
        sizes = [cell.parameters for cell in cells if cell.parameters is not None]
        table.append(
            [
                name,
                f"{fmean(len(cell.models) for cell in cells):.1f}",
                time_per_image(fmean(times)) if len(times) == len(cells) else "",
                f"{fmean(sizes) / 1e6:.1f}" if len(sizes) == len(cells) else "",
            ]
        )
    terminal.table(["cost", "models", "ms / image", "M parameters"], table)


def _show_estimates(terminal: Terminal, evaluation: Evaluation) -> None:
    """Print what decided: both estimates of each combination, from all domains."""
    from oodzoo.combining.statements import titles

    best = evaluation.recommended
    table: list[list[object]] = [
        [
            titles()[name],
            f"{value:.1f}",
            f"{best.within[name]:.1f}" if name in best.within else "",
        ]
        for name, value in best.estimates.items()
    ]
    if table:
        terminal.table(["what decided", "held-out domains, %", "within the domains, %"], table)


def _cells(name: str, row: Row, domains: Sequence[str]) -> list[object]:
    metric = row.measure(row.metric)
    return [name, f"{row.average:.1f}", *(f"{metric[domain]:.1f}" for domain in domains)]


def _percent(ratios: Mapping[str, float]) -> str:
    return f"{100 * fmean(ratios.values()):.1f}"


def _baseline_order(baseline: tuple[str, Row]) -> tuple[bool, bool, str]:
    """Random features and the oracle first, then by name."""
    name, _ = baseline
    return name != "random_features", name != "oracle", name
