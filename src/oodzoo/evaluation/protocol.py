"""Leave-one-domain-out evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from oodzoo._text import count
from oodzoo.backend import Array, backend
from oodzoo.combination.decision import FEWEST_DOMAINS, Decision, decide
from oodzoo.combination.heads import Heads, predict_with_heads
from oodzoo.combination.pool import Limits
from oodzoo.evaluation.choice import choose, choose_top_k
from oodzoo.evaluation.folds import WITH_TARGET, Fold, kept_fold, put_together
from oodzoo.evaluation.options import (
    TOP_K,
    limited_top_k,
    main_top_k,
    parse_peers,
    parse_top_k,
    require_seed,
    require_target_images,
    require_usable,
    resolve_trials,
)
from oodzoo.evaluation.result import Evaluation
from oodzoo.evaluation.scoring import cell_with_target, score_choice, trial_rows
from oodzoo.evaluation.training import TrainingView, domainbed_trainer, fast_trainer
from oodzoo.events import Listeners, Progress, Stage, extent
from oodzoo.features.source import Features, FeatureSource, as_source, groups_of
from oodzoo.heads.classes import require_classes_to_tell_apart
from oodzoo.heads.domainbed.protocol import require_search_space
from oodzoo.heads.domainbed.sweep import STEPS
from oodzoo.ranking.ranker import rank, rank_for_test_domains, require_score


def evaluate(
    features: Features,
    y: Sequence[Any] | Array | None = None,
    domains: Sequence[Any] | Array | None = None,
    *,
    groups: Sequence[Any] | None = None,
    top_k: int | Sequence[int] | Literal["auto"] = TOP_K,
    protocol: Literal["fast", "domainbed"] = "fast",
    score: str = "unseen",
    trials: int | None = None,
    draws: int = 10,
    steps: int = STEPS,
    search_space: Literal["default", "DomainNet"] = "default",
    seed: int = 0,
    baselines: bool | Sequence[str] = True,
    with_target: bool = False,
    max_models: int | None = None,
    max_ms: float | None = None,
    device: str | None = None,
    listener: Listeners | None = None,
) -> Evaluation:
    """Evaluate single models and their combinations on test domains, and recommend one.

    Each domain is the test domain once. Models are ranked, pools and features are chosen,
    hyper-parameters are tuned and heads are trained on the other domains only. In a store, the
    result of each test domain is kept, so that an evaluation that was stopped continues.

    Parameters
    ----------
    features : mapping, FeatureStore, path or FeatureSource
        Features (n, d) of each model by name, with `y` and `domains`; or a feature store. At least
        three domains.
    y, domains : sequence
        Class and domain of each row, strings or integers.
    groups : sequence, optional
        Group of each row (a patient, a video), None for a row without one; splits keep groups
        whole. A store has its own groups.
    top_k : int, sequence of int or "auto"
        Number of models to concatenate. Several numbers are all evaluated (the paper's ablation);
        the main rows are those of 3 if given, else of the smallest. "auto" chooses 1, 3, 5 or 7 by
        leave-one-domain-out validation on the training domains.
    protocol : {"fast", "domainbed"}
        How heads are trained: logistic regression, or DomainBed's random search.
    score : str, default "unseen"
        Score to rank by, see :func:`oodzoo.rank`.
    trials : int, optional
        Repetitions with different splits, for standard errors. By default 1 for "fast" (trained on
        all samples) and 3 for "domainbed".
    draws, steps : int
        Hyper-parameter draws and training steps; "domainbed" only.
    search_space : {"default", "DomainNet"}
        Distribution of the draws: DomainBed draws smaller batches for DomainNet than for its other
        data sets; "domainbed" only.
    seed : int
        Seed of random features and of "domainbed".
    baselines : bool or sequence of str
        Whether to evaluate every single model, random features and the paper's selection as well;
        or names of other scores whose top model is evaluated.
    with_target : bool
        Whether to evaluate, too, what unlabelled images of the test domain are worth.
    max_models, max_ms : int and float, optional
        Largest number of models, and time per image in milliseconds (the sum over the models), of
        what is recommended.
    device : str, optional
        PyTorch device such as "cuda"; NumPy if None.
    listener : Listener or sequence of Listener, optional
        Receives the events of the stage "evaluation", see :mod:`oodzoo.events`.

    Examples
    --------
    >>> import numpy as np, oodzoo
    >>> rng = np.random.default_rng(0)
    >>> y, domains = np.tile([0, 1], 60), np.repeat(["a", "b", "c"], 40)
    >>> good = np.stack([y, 1 - y], 1) + 0.3 * rng.normal(size=(120, 2))
    >>> zoo = {"noise": rng.normal(size=(120, 2)), "good": good}
    >>> result = oodzoo.evaluate(zoo, y, domains, top_k=2)
    >>> result.single.cells["a"].models
    ('good',)
    >>> result.selection.average > 95
    True
    """
    require_score(score)
    require_seed(seed)
    require_search_space(search_space)
    backend(device)
    peers = parse_peers(baselines)
    numbers = parse_top_k(top_k)
    trials = resolve_trials(protocol, trials)
    train = fast_trainer(trials)
    if protocol == "domainbed":
        train = domainbed_trainer(trials, draws, steps, seed, device, search_space)
    source = as_source(features, y, domains, groups)
    require_classes_to_tell_apart(source)
    require_usable(source, with_splits=trials > 1 or protocol == "domainbed")
    if with_target:
        require_target_images(source)
    if numbers is not None:
        numbers = limited_top_k(numbers, len(source.models))
    main = None if numbers is None else main_top_k(numbers)
    limits = Limits(max_models, max_ms)
    # The final recommendation is made in the same way as those that are measured.
    compare = len(source.domains) > FEWEST_DOMAINS
    facts = extent(source) | {"protocol": protocol, "score": score, "top_k": top_k}
    with Stage(listener, "evaluation", **facts) as stage:
        steps_of = _Steps(len(source.models), len(source.domains), stage.progress)
        models = count(len(source.models), "model")
        stage.say(f"ranking {models} without each test domain")
        rankings = rank_for_test_domains(source, score=score, device=device)
        stage.say(f"heads of {models}, trained without each domain and each pair")
        heads = predict_with_heads(source, device=device, progress=steps_of.heads)

        def judge(test: str) -> Fold:
            choice = choose(
                TrainingView.without(source, test),
                rankings[test],
                heads[test],
                train,
                top_k=numbers,
                main=main,
                limits=limits,
                compare=compare,
                peers=peers,
                retrain=protocol == "domainbed" or trials > 1,
                seed=seed,
                device=device,
                log=lambda message: stage.say(f"test domain {test!r}: {message}"),
            )
            cells = score_choice(source, test, choice, trial_rows(source, test, protocol, trials))
            if with_target:
                stage.say(f"test domain {test!r}: heads for its unlabelled images")
                cells[WITH_TARGET] = cell_with_target(
                    source, test, heads[test], choice, limits, device
                )
            return Fold(
                cells,
                choice.top_k,
                {str(k): ratio for k, ratio in choice.paper_ratios.items()},
                choice.selection_ratio,
                choice.decision.recommended,
            )

        costs = [[each.parameters, each.milliseconds] for each in map(source.facts, source.models)]
        settings = [score, protocol, trials, numbers, peers, seed, with_target, max_models, max_ms]
        settings += [costs, groups_of(source, source.domains)]
        if protocol == "domainbed":
            settings += [draws, steps, search_space]
        folds = {}
        for test in source.domains:
            folds[test] = kept_fold(source, test, settings, lambda test=test: judge(test))  # type: ignore[misc]
            steps_of.fold()
        stage.say("deciding on all domains")
        final = _final(source, heads[None], score, main, limits, compare, device)
        steps_of.fold()
        result = put_together(source, folds, final, protocol, score, trials, numbers)
        stage.finish(result, result.metrics)
    return result


def _final(
    source: FeatureSource,
    heads: Heads,
    score: str,
    top_k: int | None,
    limits: Limits,
    compare: bool,
    device: str | None,
) -> Decision:
    """Decide on all domains."""
    order = [row.model for row in rank(source, score=score, device=device).rows]
    number = choose_top_k(source, order) if top_k is None else top_k
    return decide(source, order, heads, top_k=number, limits=limits, compare=compare, device=device)


class _Steps:
    """Progress of an evaluation: the heads of each model, then each test domain."""

    def __init__(self, n_models: int, n_domains: int, progress: Progress) -> None:
        self._progress = progress
        self._fold = max(1, n_models // 2)
        self._total = n_models + (n_domains + 1) * self._fold
        self._done = 0
        progress(0, self._total)

    def heads(self, done: int, total: int) -> None:
        self._done = done
        self._progress(self._done, self._total)

    def fold(self) -> None:
        self._done += self._fold
        self._progress(self._done, self._total)
