"""From a store to a predictor: rank, select, train on all domains."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from oodzoo.errors import InputError
from oodzoo.events import Progress
from oodzoo.features.columns import Columns
from oodzoo.features.source import StoreSource
from oodzoo.features.store import FeatureStore
from oodzoo.heads.linear import fit_head
from oodzoo.predictor.gaussian import fit_gaussian
from oodzoo.predictor.models import model_of
from oodzoo.predictor.predictor import Origin, Predictor
from oodzoo.ranking.ranker import rank
from oodzoo.selection.select import select_features
from oodzoo.zoo import ModelSpec, load_zoo


def fit(
    store: FeatureStore | str | os.PathLike[str],
    *,
    top_k: int = 3,
    select: bool = True,
    models: Sequence[str] | None = None,
    threshold: float = 0.5,
    zoo: str | Path | Sequence[ModelSpec] | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Predictor:
    """Make a predictor of the best models of a store, trained on all of its domains.

    Parameters
    ----------
    store : FeatureStore or path
    top_k : int
        How many of the best models to put side by side.
    select : bool
        Whether to keep only features that say something about a class (:mod:`oodzoo.selection.selector`).
    models : sequence of str, optional
        These models, whatever their rank.
    threshold : float
        Keep features with a greater inclusion probability for any class.
    zoo : str, path or sequence of ModelSpec, optional
        What :func:`oodzoo.load_zoo` takes or gives: where the models lie, if not where they lay
        when the store was made.
    device : str, optional
        Where to compute: NumPy if None, else PyTorch on this device ("cuda").
    progress : callable, optional
        Called with (models ranked, models).

    Returns
    -------
    Predictor
    """
    store = store if isinstance(store, FeatureStore) else FeatureStore(Path(store))
    usable = [domain for domain in store.domains if len(store.labels(domain))]
    if len(usable) < 2:
        raise InputError(
            f"the store {str(store.path)!r} has images of one domain, {', '.join(usable)!r}; a "
            "predictor needs two or more, as all is chosen by leaving a domain out"
        )
    if len(store.classes) < 2:
        raise InputError(
            f"the store {str(store.path)!r} has one class, {store.classes[0]!r}; there is nothing "
            "to tell apart"
        )
    names, scores = _chosen(store, top_k, models, device, progress)
    known = _specs(zoo)
    # Before the work: a model that is not there would make it vain.
    networks = {name: model_of(store, name, known) for name in names}
    source = StoreSource(store, names)
    columns = Columns.all_of(source, names)
    n_features = len(columns)
    if select:
        columns = select_features(source, names, threshold=threshold, device=device).columns
    if not len(columns):
        raise InputError(
            f"no feature of {', '.join(names)} has an inclusion probability above {threshold}; "
            "give a smaller threshold, or keep all features"
        )
    samples = columns.samples(source, source.domains)
    groups = [source.groups(domain) for domain in source.domains]
    return Predictor(
        [networks[name] for name in columns.models],
        Columns({name: columns.by_model[name] for name in columns.models}),
        source.classes,
        fit_head(samples, len(source.classes)),
        fit_gaussian(samples, groups),
        Origin(
            domains=source.domains,
            n_images=store.n_images,
            data=store.manifest["data"]["fingerprint"],
            scores=scores,
            n_features=n_features,
            threshold=threshold if select else None,
        ),
    )


def _chosen(
    store: FeatureStore,
    top_k: int,
    models: Sequence[str] | None,
    device: str | None,
    progress: Progress | None,
) -> tuple[list[str], dict[str, float]]:
    """The models to take, and the scores by which they were chosen."""
    if models is not None:
        names = list(models)
        if not names or len(set(names)) < len(names):
            raise InputError(f"models to put side by side: {names}; name each of them once")
        for name in names:
            store.model(name)
        return names, {}
    if top_k < 1:
        raise InputError(f"top_k must be 1 or more, and is {top_k}")
    ranking = rank(store, device=device, progress=progress)
    return (
        [row.model for row in ranking.rows[:top_k]],
        {row.model: row.score for row in ranking.rows},
    )


def _specs(zoo: str | Path | Sequence[ModelSpec] | None) -> list[ModelSpec]:
    if zoo is None:
        return []
    if not isinstance(zoo, str | Path) and all(isinstance(spec, ModelSpec) for spec in zoo):
        return list(zoo)
    return load_zoo(zoo)  # type: ignore[arg-type]
