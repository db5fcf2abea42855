"""Fit a predictor to features: choose models and their combination, train on all domains."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.combination import Chosen, Combination, FinalHead, Training
from oodzoo.combining.evaluation.protocol import evaluate
from oodzoo.combining.evaluation.result import Evaluation, Recommended, require_no_oracle
from oodzoo.combining.evaluation.tasks import compute_heads
from oodzoo.combining.one_head import ENSEMBLE, NAMED
from oodzoo.combining.pool import POOL
from oodzoo.combining.predictions import pool_columns
from oodzoo.combining.selection import (
    SELECTION,
    Selection,
    SelectionSummary,
    require_method,
)
from oodzoo.combining.statements import FINE_TUNED
from oodzoo.combining.ways import COMBINATIONS, decide, require_choice
from oodzoo.core.backend import Array, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners, Stage, extent
from oodzoo.core.limits import LimitOptions, Limits
from oodzoo.core.options import Compute, options_of, require_known
from oodzoo.core.text import count
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.engines import open_engine
from oodzoo.extraction.features import (
    ArraySource,
    FeatureSource,
    StoreSource,
    require_task,
    with_models,
)
from oodzoo.extraction.target import Target, TargetImages, as_target
from oodzoo.linear.heads.adaptive import MIN_IMAGES
from oodzoo.linear.heads.samples import require_classes_to_tell_apart
from oodzoo.predictor.chunks import Encoder, encode_all, require_encoders
from oodzoo.predictor.gaussian import fit_gaussian
from oodzoo.predictor.models import (
    FeatureModel,
    PredictorModel,
    array_feature_model,
    find_model,
    has_features_only,
)
from oodzoo.predictor.parts import Provenance, hashed_images
from oodzoo.predictor.prediction_sets import measure_left_out
from oodzoo.predictor.predictor import Predictor
from oodzoo.ranking.constraints import TOP_K, TopK, apply, parse_top_k
from oodzoo.ranking.ranker import rank, require_score
from oodzoo.store.feature_store import FeatureStore
from oodzoo.tasks import require_kind
from oodzoo.zoo import ModelSpec, load_zoo


class ChoiceOptions(LimitOptions, total=False):
    method: str
    threshold: float | None
    recommended: Recommended | Evaluation | None
    selection: Selection | SelectionSummary | None


class FitOptions(ChoiceOptions, total=False):
    task: str | None
    inputs: Iterable[Any] | None
    encoders: Mapping[str, Encoder] | None
    zoo: str | Path | Sequence[ModelSpec] | None
    engine: str
    address: str | None


def fit(
    features: FeatureStore | Mapping[str, Array] | Mapping[str, Encoder] | str | os.PathLike[str],
    y: Sequence[Any] | Array | None = None,
    domains: Sequence[Any] | Array | None = None,
    groups: Sequence[Any] | None = None,
    *,
    choose: str | None = None,
    top_k: TopK | None = None,
    models: Sequence[str] | None = None,
    score: str = "unseen",
    target: TargetImages | None = None,
    device: str | None = None,
    listener: Listeners | None = None,
    **options: Unpack[FitOptions],
) -> Predictor:
    """Fit a predictor to the features of several models, trained on all domains.

    Parameters
    ----------
    features : FeatureStore, path or mapping
        A store, or a dict {model: array (n, d)}. With `inputs`, a dict {model: function}: each
        function maps a batch of inputs to features (n, d), as an array or a tensor.
    y, domains, groups : sequence, optional
        Label, domain and group of each row; a store has its own. See :func:`oodzoo.rank`.
    task : {"classification", "regression", "multilabel"}, optional
        What the labels are, where they could be of two kinds.
    inputs : iterable, optional
        What the functions take: texts, waveforms, rows of a table. A batch is a list; of an
        array, a tensor or a pandas table it is a slice.
    encoders : dict, optional
        Functions that compute the given features, by model, so that the predictor takes inputs,
        too. It needs one for each model that it uses.
    choose : {"auto", "single", "pool", "ensemble", "selection"}, optional
        How to combine the models. "auto", the default, is what :func:`oodzoo.evaluate` recommends;
        the evaluation is part of the fit, unless the store has its results. "single" is the
        top-ranked model; "pool" a pool of heads; "ensemble" all features of the `top_k` best
        models; "selection" the features selected from all models, or from the `top_k` best.
    top_k : int, sequence of int or "auto", optional
        Number of models of an ensemble, 3 if None, or to select features from. Of several numbers,
        and of 1, 3, 5 and 7 for "auto", the one that is best on held-out domains. If it is given
        and `choose` is not, an ensemble is fitted. With `choose="auto"` it is as in
        :func:`oodzoo.evaluate`.
    models : sequence of str, optional
        Use only these models. If neither `choose` nor `top_k` is given, all their features are
        used.
    score : str, default "unseen"
        The score to rank by, as in :func:`oodzoo.rank`.
    target : str or mapping, optional
        Unlabelled images of the target domain: the name of an unlabelled domain of the store, or
        features by model, as in :func:`oodzoo.rank`. A pool adapts to them.
    max_models, max_ms : int and float, optional
        Largest number of models, and time per image in milliseconds (the sum over the models).
    max_parameters, licence : optional
        Use only models that meet these constraints, see :func:`oodzoo.rank`.
    method : {"consistent", "paper"}
        How features are selected, see :func:`oodzoo.select_features`; "paper" needs
        `choose="selection"`.
    threshold : float, optional
        Inclusion probability above which a feature is kept; method "paper" only.
    recommended : Evaluation or Recommended, optional
        An evaluation of the same features: what it recommends is fitted, with the same models.
        If there are fewer models or narrower limits now, and another pool or selection is fitted
        for that reason, a warning says so, and the predictor states no accuracy.
    selection : Selection or SelectionSummary, optional
        Features of the same models that :func:`oodzoo.select_features` has selected; one head is
        fitted to them.
    zoo : str, path or sequence of ModelSpec, optional
        New location of the models, if they moved since the extraction: what
        :func:`oodzoo.load_zoo` takes or returns.
    device : str, optional
        Device for computations: NumPy if None, else PyTorch on this device ("cuda"). Several, as
        "cuda:0,cuda:1", are used by a process each.
    engine, address : str, optional
        Where heads are trained and held-out domains are judged, see :func:`oodzoo.evaluate`; used
        for a recommendation and for a pool.
    listener : Listener or sequence of Listener, optional
        Receives the events of the stage "predictor" and, within it, of the evaluation and the
        ranking; see :mod:`oodzoo.core.events`.

    Returns
    -------
    Predictor
        One that takes images, if all of its models can be loaded from a zoo; otherwise one that
        takes features, and inputs if there are encoders.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y, domains = np.tile(["no", "yes"], 60), np.repeat(["a", "b", "c"], 40)
    >>> X = rng.normal(size=(120, 5)) + (y == "yes")[:, None]
    >>> predictor = fit({"shifted": X}, y, domains)
    >>> predictor.predict({"shifted": np.full((1, 5), 2.0)}).tolist()
    ['yes']
    """
    require_known("fit", options, FitOptions)
    compute = options_of(Compute, {"device": device, **options})
    asked = _asked(choose, top_k, models, options)
    inputs, encoders = options.get("inputs"), options.get("encoders")
    milliseconds: dict[str, float] = {}
    if inputs is not None:
        if encoders is not None:
            raise InputError("give the encoders as the first argument, or features and encoders")
        encoders = require_encoders(features)
        features, milliseconds = encode_all(encoders, inputs)
    source = _source(features, y, domains, groups, models, options.get("task"))
    _require_known(encoders, source)
    specs = _specs(options.get("zoo"))
    source, asked = _allowed(source, asked)
    if asked.named and target is not None:
        raise InputError(
            "a target is only used to rank the models and to fit a pool; leave it out if the "
            "models are named, or choose a pool"
        )
    facts = extent(source) | {"choose": asked.choose, "score": score}
    with Stage(listener, "predictor", **facts) as stage:
        phase = stage.phases({"evaluation": 8.0, "choice": 2.0, "predictor": 2.0})
        found = asked.recommended
        with phase("evaluation"):
            if asked.needs_evaluation and len(source.domains) > 2:
                found = evaluate(
                    source,
                    top_k=min(TOP_K, len(source.models)) if asked.top_k is None else asked.top_k,
                    score=score,
                    baselines=False,
                    max_models=asked.limits.max_models,
                    max_ms=asked.limits.max_ms,
                    device=device,
                    engine=compute.engine,
                    address=compute.address,
                    listener=stage.events,
                ).recommended
            elif asked.choose in ("auto", POOL.name) and asked.selection is None:
                with open_engine(compute) as opened:
                    if opened is not None:
                        compute_heads(source, opened)
        here = compute.arrays
        with phase("choice"):
            images = None if target is None else as_target(source, target)
            order, scores = list(source.models), {}
            if not asked.named:
                ranking = rank(
                    source, score=score, target=images, device=here, listener=stage.events
                )
                order, scores = ranking.models, {row.model: row.score for row in ranking}
            way, training, chosen = _choose(source, asked, found, order, images, here)
            final = way.fit(training, chosen)
            columns = final.columns
            promised = _promised(asked, found, way, columns.models, images)
        with phase("predictor"):
            provenance = Provenance(
                **_facts_of_data(source),
                scores=scores,
                n_features=chosen.n_candidates,
                threshold=asked.kept_threshold(way),
                choice=NAMED if asked.named else way.name,
                pool=final.weights,
                accuracy=None if promised is None else promised.average,
                accuracy_interval=None if promised is None else promised.interval,
                target=images.name if images is not None and way.adapts else None,
                adapted=images.n if images is not None and way.adapts else None,
                score=score if scores else None,
                accuracy_by_domain={} if promised is None else promised.domains,
                choice_by_domain={} if promised is None else promised.choices,
            )
            predictor = assemble(
                source,
                _models(source, columns.models, specs, milliseconds),
                final,
                provenance,
                left_out=measure_left_out(way, training, chosen),
                encoders={m: each for m, each in (encoders or {}).items() if m in columns.models},
            )
        metrics = {} if promised is None else {source.task.metric: promised.average}
        stage.finish(predictor, metrics)
    return predictor


def assemble(
    source: FeatureSource,
    models: Sequence[PredictorModel] | Sequence[FeatureModel],
    final: FinalHead,
    provenance: Provenance,
    **others: Any,
) -> Predictor:
    """Make a predictor of a head that was trained on these features; `others` are attributes."""
    columns = final.columns
    samples = columns.samples(source, source.domains)
    groups = [source.groups(domain) for domain in source.domains]
    return Predictor(
        tuple(models),
        Columns({name: columns.by_model[name] for name in columns.models}, columns.normalised),
        list(source.classes),
        final.head,
        fit_gaussian(samples, groups, source.task),
        provenance,
        final.adaptive,
        **others,
    )


def require_fittable(
    store: FeatureStore,
    *,
    choose: str | None = None,
    top_k: TopK | None = None,
    models: Sequence[str] | None = None,
    score: str = "unseen",
    **options: Unpack[ChoiceOptions],
) -> None:
    """Raise an InputError for what :func:`fit` refuses, before images of a target are extracted."""
    asked = _asked(choose, top_k, models, options)
    require_score(score)
    _allowed(_source(store, None, None, None, models, None), asked)


# --- what was asked for --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """What was asked for.

    Attributes
    ----------
    choose : str
        "auto", or the name of a combination.
    named : bool
        Whether all features of the models that were named are used.
    top_k : int, sequence of int or "auto", optional
        Number of models of an ensemble, or to select features from; None if it was not given.
    limits : Limits
    method, threshold
        See :func:`oodzoo.select_features`.
    recommended : Recommended, optional
        What an evaluation recommends.
    selection : SelectionSummary, optional
        Features that were selected before.
    narrowed : bool
        Whether there are fewer models, or narrower limits, than the evaluation chose within.
    """

    choose: str
    named: bool
    top_k: TopK | None
    limits: Limits
    method: str
    threshold: float | None
    recommended: Recommended | None
    selection: SelectionSummary | None
    narrowed: bool = False

    @property
    def needs_evaluation(self) -> bool:
        return self.choose == "auto" and self.recommended is None and self.selection is None

    def kept_threshold(self, way: Combination) -> float | None:
        """Inclusion probability above which features were kept; None if that is not so."""
        if self.selection is not None:
            return self.selection.threshold
        if way is not SELECTION or self.method != "paper":
            return None
        return 0.5 if self.threshold is None else self.threshold


def _asked(
    choose: str | None,
    top_k: TopK | None,
    models: Sequence[str] | None,
    options: Mapping[str, Any],
) -> _Asked:
    """Check what was asked for."""
    limits = options_of(Limits, options)
    method, threshold = options.get("method", "consistent"), options.get("threshold")
    recommended, selection = options.get("recommended"), options.get("selection")
    if top_k is not None:
        parse_top_k(top_k)
    require_method(method, threshold)
    if recommended is not None and selection is not None:
        raise InputError("recommended and selection both say what to fit; leave one out")
    if recommended is not None or selection is not None:
        if choose not in (None, "auto"):
            decided = "recommended" if recommended is not None else "selection"
            raise InputError(f"choose={choose!r} and {decided} exclude each other; leave one out")
        choose = "auto"
    named = models is not None and choose in (None, ENSEMBLE.name) and top_k is None
    if choose is None:
        choose = "auto" if top_k is None and models is None else ENSEMBLE.name
    require_choice(choose)
    if method == "paper" and choose != SELECTION.name and selection is None:
        raise InputError(
            f"the method {method!r} is of features that are selected, and choose={choose!r}; add "
            "choose='selection' (--choose selection), or leave the method out"
        )
    if top_k is not None and choose != "auto" and COMBINATIONS[choose].from_heads:
        raise InputError(
            f"top_k is the number of models of an ensemble, and choose={choose!r}; leave it out, "
            "or limit the models of a pool with max_models (--max-models)"
        )
    if isinstance(recommended, Evaluation):
        require_no_oracle(recommended.rule)
        recommended = recommended.recommended
    if isinstance(selection, Selection):
        selection = selection.summary()
    return _Asked(choose, named, top_k, limits, method, threshold, recommended, selection)


def _allowed(source: FeatureSource, asked: _Asked) -> tuple[FeatureSource, _Asked]:
    """The models that may be used; within the limits that an evaluation chose within, if any.

    The accuracy that it measured is that of a choice among its models, within its limits. Within
    narrower ones, another pool or selection may be fitted, which was not measured.
    """
    allowed, left_out = apply(source, asked.limits)
    if asked.named and left_out:
        name, reason = next(iter(left_out.items()))
        raise InputError(f"the model {name!r} was named, but not allowed: {reason}")
    source = with_models(source, allowed) if left_out else source
    _require_enough(source)
    found = asked.recommended
    if found is None:
        return source, asked
    if found.choice == FINE_TUNED:
        raise InputError(
            "fine-tuning is recommended, which needs images and not only features; fit with "
            "choose='single' (--choose single), then run oodzoo tune on the predictor"
        )
    if found.domains.keys() != set(source.domains):
        raise InputError(
            f"the evaluation is of the domains {', '.join(sorted(found.domains))}, the "
            f"features are of {', '.join(sorted(source.domains))}; evaluate them first"
        )
    if missing := [model for model in found.models if model not in source.models]:
        raise InputError(
            f"the evaluation recommends {missing[0]!r}, but there are only features of "
            f"{', '.join(source.models)}"
        )
    models = [model for model in source.models if model in found.candidates]
    if models and len(models) < len(source.models):
        source = with_models(source, models)
    evaluated = Limits(max_models=found.max_models, max_ms=found.max_ms)
    limits = Limits(
        max_models=_least(asked.limits.max_models, found.max_models),
        max_ms=_least(asked.limits.max_ms, found.max_ms),
    )
    narrowed = limits != evaluated or not set(found.candidates) <= set(source.models)
    return source, replace(asked, limits=limits, narrowed=narrowed)


def _least(one: Any, other: Any) -> Any:
    """The narrower one of two limits; None is none."""
    return min((limit for limit in (one, other) if limit is not None), default=None)


# --- the choice ----------------------------------------------------------------------------------


def _choose(
    source: FeatureSource,
    asked: _Asked,
    found: Recommended | None,
    order: Sequence[str],
    images: Target | None,
    device: str | None,
) -> tuple[Combination, Training, Chosen]:
    """Choose how to combine the models, and which features of which models.

    Parameters
    ----------
    source : FeatureSource
    asked : _Asked
    found : Recommended, optional
        What an evaluation recommends.
    order : sequence of str
        The models, the best of the ranking first.
    images : Target, optional
        Unlabelled images of the target.
    device : str, optional
    """
    top_k = len(order) if asked.named else asked.top_k
    training = Training(
        source,
        order,
        asked.limits,
        top_k,
        device,
        method=asked.method,
        threshold=asked.threshold,
    )
    if asked.selection is not None:
        return SELECTION, training, _selected(training, asked.selection)
    if found is not None:
        way, n = COMBINATIONS[found.choice], len(found.models)
        # the ranking for a target may have another order than what was evaluated
        best = found.models if images is None else order[:n]
        training = replace(training, order=best, top_k=n)
    else:
        name = asked.choose
        if name == "auto":  # two domains, which are too few for an evaluation
            name = POOL.name if images is not None else decide(training).recommended
        way = COMBINATIONS[name]
        training = way.limited(training)
    if images is not None and way.adapts:
        training = replace(training, target=_features_of(source, images))
    chosen = way.choose(training)
    _require_within(way, training, chosen)
    return way, training, chosen


def _selected(training: Training, summary: SelectionSummary) -> Chosen:
    """Features that were selected before."""
    columns = Columns.from_dict(summary.columns, training.source)
    if not len(columns):
        raise InputError("the selection has no columns; select features again with oodzoo select")
    again = tuple(summary.models) if summary.method == "consistent" else ()
    chosen = Chosen(columns, summary.n_features, selected_from=again)
    _require_within(SELECTION, training, chosen)
    return chosen


def _require_within(way: Combination, training: Training, chosen: Chosen) -> None:
    if not way.from_heads and not training.allows(chosen.models):
        raise InputError(
            f"choose={way.name!r} uses {count(len(chosen.models), 'model')}, more than max_models "
            "or max_ms allow; choose a pool, or raise the limit"
        )


def _features_of(source: FeatureSource, images: Target) -> Callable[[str], NDArray[np.float32]]:
    """Returns the features of the target, by the name of a model."""
    if images.n < MIN_IMAGES:
        raise InputError(
            f"the target {images.name!r} has {count(images.n, 'image')}; at least {MIN_IMAGES} "
            "are needed to adapt to them; give more, or leave the target out"
        )

    def features(model: str) -> NDArray[np.float32]:
        columns = pool_columns(source, [model])
        blocks = [columns.of(model, to_numpy(block)) for block in images.blocks(model)]
        return np.concatenate(blocks).astype(np.float32, copy=False)

    return features


def _promised(
    asked: _Asked,
    found: Recommended | None,
    way: Combination,
    used: Sequence[str],
    images: Target | None,
) -> Recommended | None:
    """What an evaluation has measured, unless that is another predictor than the one fitted."""
    if found is None or images is not None:
        return found
    other = set(used) != set(found.models)
    wanted = ", ".join(found.models)
    if len(found.models) > 1:
        wanted = f"a {way.name} of {wanted}"
    if asked.narrowed and (other or way is SELECTION):
        warnings.warn(
            f"the evaluation recommends {wanted}, chosen from more models or within wider limits; "
            f"the accuracy of this one, of {', '.join(used)}, was not measured: evaluate with the "
            "same models and limits",
            stacklevel=3,
        )
        return None
    if other:
        warnings.warn(
            f"the evaluation recommends {wanted}, but what this machine fits is of "
            f"{', '.join(used)}",
            stacklevel=3,
        )
    return found


# --- features and models -------------------------------------------------------------------------


def _source(
    features: Any,
    y: Sequence[Any] | Array | None,
    domains: Sequence[Any] | Array | None,
    groups: Sequence[Any] | None,
    models: Sequence[str] | None,
    task: str | None,
) -> FeatureSource:
    """The features of the models to use: all, or those that are named."""
    names = None if models is None else list(models)
    if names is not None and (not names or len(set(names)) < len(names)):
        raise InputError(f"models must name one or more models, each of them once, got {names}")
    if not isinstance(features, Mapping):
        store = features if isinstance(features, FeatureStore) else FeatureStore(features)
        if y is not None or domains is not None or groups is not None:
            raise InputError("a store has its own labels, domains and groups; leave them out")
        if task is not None:
            require_task(store, require_kind(task))
        return StoreSource(store, names)
    if y is None or domains is None:
        raise InputError("arrays need the label (y) and the domain (domains) of each row")
    for name, array in features.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"the name of a model must be a string, got {name!r}")
        if callable(array):
            raise InputError(f"{name!r} is a function; give what it takes as inputs=")
    if unknown := [name for name in names or () if name not in features]:
        raise InputError(
            f"there are no features of {unknown[0]!r}; there are those of "
            f"{', '.join(map(repr, features))}"
        )
    chosen = features if names is None else {name: features[name] for name in names}
    return ArraySource(chosen, y, domains, groups, task)


def _require_known(encoders: Mapping[str, Encoder] | None, source: FeatureSource) -> None:
    """Raise InputError for an encoder of a model without features, or one that can be loaded."""
    if encoders is None:
        return
    require_encoders(encoders)
    if unknown := [name for name in encoders if name not in source.models]:
        raise InputError(
            f"there are no features of the encoder {unknown[0]!r}; there are those of "
            f"{', '.join(map(repr, source.models))}"
        )
    if isinstance(source, StoreSource):
        for name in encoders:
            if not has_features_only(source.store.model(name)):
                raise InputError(
                    f"model {name!r} of the store can be loaded and needs no encoder; leave it out"
                )


def _require_enough(source: FeatureSource) -> None:
    where = "the features have samples"
    if isinstance(source, StoreSource):
        where = f"the store {source.store.location!r} has images"
    if len(source.domains) < 2:
        raise InputError(
            f"{where} of {count(len(source.domains), 'domain')} ({', '.join(source.domains)}); a "
            "predictor needs two or more domains, because its models and its regularisation are "
            "chosen by leaving one domain out"
        )
    if source.task.one_class and len(source.classes) < 2:
        raise InputError(
            f"{where} of one class, {source.classes[0]!r}; a predictor needs two or more classes"
        )
    require_classes_to_tell_apart(source)


def _models(
    source: FeatureSource,
    names: Sequence[str],
    zoo: Sequence[ModelSpec],
    milliseconds: Mapping[str, float],
) -> list[PredictorModel] | list[FeatureModel]:
    """The models of a predictor: all of them can be loaded, or all have features only."""
    if not isinstance(source, StoreSource):
        return [array_feature_model(source, name, milliseconds.get(name)) for name in names]
    store = source.store
    without = [name for name in names if has_features_only(store.model(name))]
    if not without:
        return [find_model(store, name, zoo) for name in names]
    if len(without) < len(names):
        warnings.warn(
            f"{', '.join(map(repr, without))}: features only, so the predictor takes the features "
            f"of all of its models ({', '.join(names)}) instead of images; leave them out with "
            "models= (--models) for one that takes images",
            stacklevel=3,
        )
    return [
        FeatureModel(
            name,
            (stored := store.model(name)).feature_dim,
            stored.fingerprint,
            stored.parameters,
            store.milliseconds_per_image(name),
        )
        for name in names
    ]


def _facts_of_data(source: FeatureSource) -> dict[str, Any]:
    """What the provenance says about the training data.

    Its fingerprint is of labels and domains, and of the images of a store, or the features.
    """
    if isinstance(source, StoreSource):
        store = source.store
        columns = [(store.images(domain), store.label_texts(domain)) for domain in store.domains]
        return {
            "domains": source.domains,
            "n_images": store.n_images,
            "data": store.data_fingerprint,
            "name": store.name,
            "images": hashed_images(pair for each in columns for pair in zip(*each, strict=True)),
        }
    digest = hashlib.sha256()
    labels = {domain: source.labels(domain) for domain in source.domains}
    for domain, each in labels.items():
        digest.update(f"{domain}\n".encode())
        digest.update(each.tobytes())
    for model in source.models:
        digest.update(array_feature_model(source, model).fingerprint.encode())
    n_images = sum(map(len, labels.values()))
    return {"domains": source.domains, "n_images": n_images, "data": digest.hexdigest()}


def _specs(zoo: str | Path | Sequence[ModelSpec] | None) -> list[ModelSpec]:
    if zoo is None:
        return []
    if not isinstance(zoo, str | Path) and all(isinstance(spec, ModelSpec) for spec in zoo):
        return list(zoo)
    return load_zoo(zoo)  # type: ignore[arg-type]
