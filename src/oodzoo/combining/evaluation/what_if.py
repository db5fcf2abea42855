"""What would change the result: measured for each test domain, and put into words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oodzoo.combining.decision import Decision
from oodzoo.combining.evaluation import advice
from oodzoo.combining.evaluation.advice import Advice
from oodzoo.combining.evaluation.folds import Fold
from oodzoo.combining.evaluation.judge import Judge, Limited, budgets_of, milliseconds_of
from oodzoo.combining.evaluation.learning_curve import (
    FewerDomains,
    LearningCurve,
    learning_curve,
    parts_of,
    with_fewer_domains,
)
from oodzoo.combining.evaluation.recommended import FINE_TUNED, TITLES, described
from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.combining.evaluation.rows import mean_of
from oodzoo.combining.evaluation.settings import Settings
from oodzoo.combining.evaluation.work import CurveTask, FewerTask, FoldTask, Task
from oodzoo.combining.heads import Heads
from oodzoo.extraction.source import FeatureSource, StoreSource
from oodzoo.linear.heads.adaptive import MIN_IMAGES


class WhatIf:
    """Measures what would change the result of an evaluation.

    Parameters
    ----------
    source : FeatureSource
    settings : Settings
    judge : Judge
    heads : dict of str or None to Heads
    final : Decision
        What was decided on all domains.
    device : str, optional
    """

    def __init__(
        self,
        source: FeatureSource,
        settings: Settings,
        judge: Judge,
        heads: Mapping[str | None, Heads],
        final: Decision,
        device: str | None,
    ) -> None:
        self._source = source
        self._judge = judge
        self._heads = heads
        self._final = final
        self._device = device
        self._tops = judge.top_models
        self.budgets: list[float] = []
        # the heads of other protocols would have to be trained again
        if settings.protocol == "fast" and settings.trials == 1:
            self.budgets = budgets_of(source, final.models(final.recommended))

    @property
    def tasks(self) -> list[Task]:
        """All that is to be computed for it, with the test domains, as tasks of an engine."""
        tests, tops = self._source.domains, self._tops
        settings = {test: self._heads[test].alone[tops[test]].setting for test in tests}
        return [
            *(FoldTask(test, self.budgets) for test in tests),
            *(CurveTask(part) for part in parts_of(self._source, tops)),
            *(
                FewerTask(model, {test: settings[test] for test in tests if tops[test] == model})
                for model in dict.fromkeys(tops.values())
            ),
        ]

    def add_to(self, result: Evaluation, folds: Mapping[str, Fold]) -> Evaluation:
        """Add the learning curve and the advice to an evaluation."""
        source, measured = self._source, (self._tops, self._heads)
        curve = learning_curve(source, *measured, device=self._device)
        fewer = with_fewer_domains(source, *measured, device=self._device)
        found = [*_of_data(curve, fewer, result.metric), *_of_options(result, source)]
        return replace(
            result, learning_curve=curve, advice=(*found, *self._of_budgets(result, folds))
        )

    def _of_budgets(self, result: Evaluation, folds: Mapping[str, Fold]) -> list[Advice]:
        best, found = result.recommended, []
        now = milliseconds_of(self._source, best.models)
        before: Limited | None = None
        for max_ms in self.budgets:
            each = self._judge.limited_final(self._final, max_ms)
            time = milliseconds_of(self._source, each.models)
            if now is None or time is None or time >= now or each == before:
                continue
            before = each
            metrics = {
                test: self._judge.limited(test, fold, max_ms).metric or 0.0
                for test, fold in folds.items()
            }
            name = described(each.choice, each.models)
            average, times = mean_of(metrics), now / time
            found.append(
                advice.on_budget(max_ms, name, average, best.average, times, result.metric)
            )
        return found


def _of_data(curve: LearningCurve | None, fewer: FewerDomains, metric: str) -> list[Advice]:
    found = [] if curve is None else [advice.on_images(curve)]
    return [*found, advice.on_domains(fewer, metric)]


def _of_options(result: Evaluation, source: FeatureSource) -> list[Advice]:
    """What options of the evaluation found, or could find."""
    found: list[Advice] = []
    pool = result.with_target.get("pool")
    enough = min(len(source.labels(domain)) for domain in source.domains) >= MIN_IMAGES
    if pool is not None or (source.task.is_classification and enough):
        average = None if pool is None else pool.average
        found.append(advice.on_target(average, result.recommended.average))
    if result.tuning is not None:
        gain = result.tuning.gain
        recommended = result.recommended.choice == FINE_TUNED
        found.append(advice.on_tuning(gain, TITLES[gain.over], recommended=recommended))
    elif isinstance(source, StoreSource):
        found.append(advice.on_tuning(None))
    return found
