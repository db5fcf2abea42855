"""Fit a predictor to features: choose models and their combination, train on all domains."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from oodzoo.combining.evaluation.protocol import evaluate
from oodzoo.combining.evaluation.result import Evaluation, Recommended
from oodzoo.combining.evaluation.tasks import compute_heads
from oodzoo.combining.selection import Selection, SelectionSummary
from oodzoo.core.backend import Array
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners, Stage, extent
from oodzoo.core.options import Compute, LimitOptions, Limits, options_of, require_known
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
from oodzoo.extraction.target import TargetImages
from oodzoo.linear.heads.samples import require_classes_to_tell_apart
from oodzoo.predictor.choosing import (
    Options,
    as_evaluated,
    fit_choice,
    parse_options,
    require_decided_here,
)
from oodzoo.predictor.chunks import Encoder, encode_all, require_encoders
from oodzoo.predictor.gaussian import fit_gaussian
from oodzoo.predictor.left_out import measure_left_out
from oodzoo.predictor.models import (
    FeatureModel,
    PredictorModel,
    array_feature_model,
    find_model,
    has_features_only,
)
from oodzoo.predictor.parts import Provenance, hashed_images
from oodzoo.predictor.predictor import Predictor
from oodzoo.ranking.constraints import TOP_K, TopK, apply
from oodzoo.ranking.ranker import require_score
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
    limits = options_of(Limits, options)
    asked = parse_options(choose, top_k, models, limits, **_choice(options))
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
    source, asked = _prepared(source, asked, limits)
    if asked.named and target is not None:
        raise InputError(
            "a target is only used to rank the models and to fit a pool; leave it out if the "
            "models are named, or choose a pool"
        )
    facts = extent(source) | {"choose": asked.choose, "score": score}
    with Stage(listener, "predictor", **facts) as stage:
        found = asked.recommended
        if asked.needs_evaluation and len(source.domains) > 2:
            found = evaluate(
                source,
                top_k=min(TOP_K, len(source.models)) if asked.top_k is None else asked.top_k,
                score=score,
                baselines=False,
                max_models=limits.max_models,
                max_ms=limits.max_ms,
                device=device,
                engine=compute.engine,
                address=compute.address,
                listener=stage.events,
            ).recommended
        elif asked.choose in ("auto", "pool") and asked.selection is None:
            with open_engine(compute) as opened:
                if opened is not None:
                    compute_heads(source, opened, stage.progress)
        here = compute.arrays
        stage.progress(1, 3)
        fitted = fit_choice(source, asked, found, score, target, here, stage.events)
        stage.progress(2, 3)
        columns = fitted.final.columns
        used = _models(source, columns.models, specs, milliseconds)
        samples = columns.samples(source, source.domains)
        groups = [source.groups(domain) for domain in source.domains]
        measured = asked.choose == "auto" and asked.selection is None and fitted.as_evaluated
        promised = found if measured else None
        predictor = Predictor(
            used,
            Columns({name: columns.by_model[name] for name in columns.models}, columns.normalised),
            source.classes,
            fitted.final.head,
            fit_gaussian(samples, groups, source.task),
            Provenance(
                domains=source.domains,
                n_images=_n_samples(source),
                data=_fingerprint(source),
                scores=fitted.scores,
                n_features=fitted.n_features,
                threshold=asked.kept_threshold(fitted.choice),
                choice=fitted.choice,
                pool=fitted.final.weights,
                accuracy=None if promised is None else promised.average,
                accuracy_interval=None if promised is None else promised.interval,
                target=fitted.target,
                adapted=fitted.adapted,
                name=source.store.name if isinstance(source, StoreSource) else None,
                score=score if fitted.scores else None,
                accuracy_by_domain={} if promised is None else promised.domains,
                choice_by_domain={} if promised is None else promised.choices,
                images=_hashed_images(source),
            ),
            fitted.final.adaptive,
            measure_left_out(
                with_models(source, fitted.selected_from) if fitted.selected_from else source,
                fitted.choice,
                columns,
                heads=fitted.heads,
                limits=asked.limits,
                reselect=bool(fitted.selected_from),
                device=here,
            ),
            encoders={m: each for m, each in (encoders or {}).items() if m in columns.models},
        )
        stage.progress(3, 3)
        metrics = {} if promised is None else {source.task.metric: promised.average}
        stage.finish(predictor, metrics)
    return predictor


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
    limits = options_of(Limits, options)
    asked = parse_options(choose, top_k, models, limits, **_choice(options))
    require_score(score)
    source = _source(store, None, None, None, models, None)
    _prepared(source, asked, limits)


def _choice(options: Mapping[str, Any]) -> dict[str, Any]:
    names = ("method", "threshold", "recommended", "selection")
    return {name: options[name] for name in names if name in options}


def _prepared(
    source: FeatureSource, options: Options, limits: Limits
) -> tuple[FeatureSource, Options]:
    """The models that are allowed, and the options within what an evaluation chose from."""
    source = _allowed(source, limits, named=options.named)
    _require_enough(source)
    if options.recommended is None:
        return source, options
    require_decided_here(source, options.recommended)
    return as_evaluated(source, options)


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


def _allowed(source: FeatureSource, limits: Limits, *, named: bool) -> FeatureSource:
    """The models that meet the constraints; if they were named, all of them must."""
    models, left_out = apply(source, limits)
    if named and left_out:
        name, reason = next(iter(left_out.items()))
        raise InputError(f"the model {name!r} was named, but not allowed: {reason}")
    return with_models(source, models) if left_out else source


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


def _n_samples(source: FeatureSource) -> int:
    if isinstance(source, StoreSource):
        return source.store.n_images
    return sum(len(source.labels(domain)) for domain in source.domains)


def _hashed_images(source: FeatureSource) -> str:
    if not isinstance(source, StoreSource):
        return ""
    store = source.store
    columns = [(store.images(domain), store.label_texts(domain)) for domain in store.domains]
    return hashed_images(pair for column in columns for pair in zip(*column, strict=True))


def _fingerprint(source: FeatureSource) -> str:
    """Identify the training data: labels, domains, and the images of a store or the features."""
    if isinstance(source, StoreSource):
        return source.store.data_fingerprint
    digest = hashlib.sha256()
    for domain in source.domains:
        digest.update(f"{domain}\n".encode())
        digest.update(source.labels(domain).tobytes())
    for model in source.models:
        digest.update(array_feature_model(source, model).fingerprint.encode())
    return digest.hexdigest()


def _specs(zoo: str | Path | Sequence[ModelSpec] | None) -> list[ModelSpec]:
    if zoo is None:
        return []
    if not isinstance(zoo, str | Path) and all(isinstance(spec, ModelSpec) for spec in zoo):
        return list(zoo)
    return load_zoo(zoo)  # type: ignore[arg-type]
