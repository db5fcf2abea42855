"""Fitting a predictor to a feature store: rank models, select features, train on all domains."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from oodzoo._text import count
from oodzoo.errors import InputError
from oodzoo.events import Progress
from oodzoo.features.columns import Columns
from oodzoo.features.source import StoreSource
from oodzoo.features.target import TargetImages
from oodzoo.heads.linear import fit_head
from oodzoo.predictor.gaussian import fit_gaussian
from oodzoo.predictor.models import find_model
from oodzoo.predictor.parts import Provenance
from oodzoo.predictor.predictor import Predictor
from oodzoo.ranking.ranker import rank
from oodzoo.selection.select import select_features
from oodzoo.store.feature_store import FeatureStore
from oodzoo.zoo import ModelSpec, load_zoo


def fit(
    store: FeatureStore | str | os.PathLike[str],
    *,
    top_k: int = 3,
    select: bool = True,
    models: Sequence[str] | None = None,
    score: str = "unseen",
    target: TargetImages | None = None,
    threshold: float = 0.5,
    zoo: str | Path | Sequence[ModelSpec] | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Predictor:
    """Fit a predictor with the best models of a feature store, trained on all of its domains.

    Parameters
    ----------
    store : FeatureStore or path
    top_k : int
        Number of top-ranked models whose features are concatenated.
    select : bool
        Whether to keep only informative features (:mod:`oodzoo.selection.selector`).
    models : sequence of str, optional
        Names of the models to use instead of the top-ranked ones.
    score : str, default "unseen"
        The score to rank by, as in :func:`oodzoo.rank`.
    target : str or mapping, optional
        Unlabelled images of the target domain to rank for: the name of an unlabelled domain of the
        store, or features by model, as in :func:`oodzoo.rank`.
    threshold : float
        Keep the features whose inclusion probability exceeds this for any class.
    zoo : str, path or sequence of ModelSpec, optional
        New location of the models, if they moved since the extraction: what
        :func:`oodzoo.load_zoo` takes or returns.
    device : str, optional
        Device for ranking and selection: NumPy if None, else PyTorch on this device ("cuda").
    progress : callable, optional
        Called with (models ranked, models).

    Returns
    -------
    Predictor
    """
    store = store if isinstance(store, FeatureStore) else FeatureStore(Path(store))
    _require_enough(store)
    names, scores = _choose_models(store, top_k, models, score, target, device, progress)
    specs = _specs(zoo)
    found = {name: find_model(store, name, specs) for name in names}  # fails before the long work
    source = StoreSource(store, names)
    columns = Columns.all_of(source, names)
    n_features = len(columns)
    if select:
        columns = select_features(source, names, threshold=threshold, device=device).columns
    if not len(columns):
        raise InputError(
            f"no feature of {', '.join(names)} has an inclusion probability above {threshold}; "
            "lower the threshold, or keep all features"
        )
    samples = columns.samples(source, source.domains)
    groups = [source.groups(domain) for domain in source.domains]
    return Predictor(
        [found[name] for name in columns.models],
        Columns({name: columns.by_model[name] for name in columns.models}),
        source.classes,
        fit_head(samples, len(source.classes)),
        fit_gaussian(samples, groups),
        Provenance(
            domains=source.domains,
            n_images=store.n_images,
            data=store.data_fingerprint,
            scores=scores,
            n_features=n_features,
            threshold=threshold if select else None,
        ),
    )


def _require_enough(store: FeatureStore) -> None:
    domains = [domain for domain in store.domains if len(store.labels(domain))]
    if len(domains) < 2:
        raise InputError(
            f"the store {str(store.path)!r} has images of {count(len(domains), 'domain')} "
            f"({', '.join(domains)}); a predictor needs two or more domains, because its models "
            "and its regularisation are chosen by leaving one domain out"
        )
    if len(store.classes) < 2:
        raise InputError(
            f"the store {str(store.path)!r} has one class, {store.classes[0]!r}; a predictor needs "
            "two or more classes"
        )


def _choose_models(
    store: FeatureStore,
    top_k: int,
    models: Sequence[str] | None,
    score: str,
    target: TargetImages | None,
    device: str | None,
    progress: Progress | None,
) -> tuple[list[str], dict[str, float]]:
    """The models to use, and the scores of all models if they were ranked."""
    if models is not None:
        if target is not None:
            raise InputError(
                "a target is only used to rank the models; leave it out if the models are named"
            )
        names = list(models)
        if not names or len(set(names)) < len(names):
            raise InputError(f"models must name one or more models, each of them once, got {names}")
        for name in names:
            store.model(name)
        return names, {}
    if top_k < 1:
        raise InputError(f"top_k must be 1 or more, got {top_k}")
    rows = rank(store, score=score, target=target, device=device, progress=progress).rows
    return [row.model for row in rows[:top_k]], {row.model: row.score for row in rows}


def _specs(zoo: str | Path | Sequence[ModelSpec] | None) -> list[ModelSpec]:
    if zoo is None:
        return []
    if not isinstance(zoo, str | Path) and all(isinstance(spec, ModelSpec) for spec in zoo):
        return list(zoo)
    return load_zoo(zoo)  # type: ignore[arg-type]
