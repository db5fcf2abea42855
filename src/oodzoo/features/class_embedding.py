"""Embed the classes of a store with the text towers of its models, after the extraction."""

from __future__ import annotations

from collections.abc import Sequence

from oodzoo.engine.choice import parse_devices
from oodzoo.errors import InputError
from oodzoo.store.class_embeddings import ClassEmbeddings, write_class_embeddings
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.writer import writing
from oodzoo.zoo import Model, ModelSpec
from oodzoo.zoo.device import resolve_device
from oodzoo.zoo.prompts import PROMPTS, Prompts, default_text, texts_of
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.text_tower import embed_classes


def add_class_embeddings(
    store: FeatureStore,
    members: Sequence[ModelSpec | Model],
    prompts: Prompts,
    *,
    device: str = "auto",
) -> tuple[list[str], dict[str, str]]:
    """Embed the classes with each model that has a text tower, unless the store has the result.

    What was not asked for is as it was the last time, and at first the default. A store of another
    task than classification has no classes to embed.

    Returns
    -------
    list of str
        The models that embedded them now.
    dict of str to str
        Why models with a text tower have no embeddings.
    """
    done: list[str] = []
    problems: dict[str, str] = {}
    if not store.task.is_classification:
        return done, problems
    for member in members:
        if isinstance(member, Model) or member.name not in store.models:
            continue
        if member.layer is not None:  # its features are not in the space of the texts
            continue
        try:
            if _add(store, member, prompts, device):
                done.append(member.name)
        except InputError as error:
            problems[member.name] = str(error)
    return done, problems


def _add(store: FeatureStore, spec: ModelSpec, prompts: Prompts, device: str) -> bool:
    """Embed the classes with a model; False if there is nothing to do."""
    stored = store.model(spec.name)
    try:
        earlier = store.class_embeddings(spec.name)
    except InputError:  # damaged: made again
        earlier = None
    names, templates = _texts(store.classes, prompts, earlier)
    if earlier is not None and (earlier.classes, earlier.names, earlier.prompts) == (
        store.classes,
        names,
        templates,
    ):
        return False
    where = resolve_device(parse_devices(device)[0], spec.kind)
    tower = get_source(spec.kind).text_tower(spec, device=where)
    if tower is None:
        return False
    embeddings = embed_classes(tower, names, templates)
    if embeddings.shape[1] != stored.feature_dim:
        raise InputError(
            f"its text embeddings have {embeddings.shape[1]} numbers, its image features "
            f"{stored.feature_dim}"
        )
    found = ClassEmbeddings(store.classes, names, templates, embeddings, tower.scale, tower.bias)
    with writing(store.path):
        write_class_embeddings(store.path, spec.name, stored.identity, found)
    return True


def _texts(
    classes: Sequence[str], prompts: Prompts, earlier: ClassEmbeddings | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The name of each class, and the templates."""
    templates = prompts.templates or (PROMPTS if earlier is None else earlier.prompts)
    if prompts.class_names is not None or earlier is None:
        return texts_of(classes, prompts.class_names), templates
    known = dict(zip(earlier.classes, earlier.names, strict=True))
    names = {label: known.get(label, default_text(label)) for label in classes}
    return texts_of(classes, names), templates
