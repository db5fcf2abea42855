"""A feature store as a table in a notebook."""

from __future__ import annotations

from collections.abc import Mapping

from oodzoo._html import html_table
from oodzoo._numbers import number, significant
from oodzoo._text import count, some_of
from oodzoo.store.manifest import StoredModel


def store_as_html(
    name: str,
    models: Mapping[str, StoredModel],
    milliseconds: Mapping[str, float | None],
    domains: Mapping[str, int],
    outputs: str,
) -> str:
    """Return a table of the models.

    Parameters
    ----------
    name : str
        Name of the store.
    models : mapping of str to StoredModel
    milliseconds : mapping of str to float or None
        Time per image of each model, where it is known.
    domains : mapping of str to int
        Number of images of each domain with labels.
    outputs : str
        What the labels are, in words.
    """
    rows = []
    for model, time in sorted(milliseconds.items()):
        stored = models[model]
        counts = [stored.feature_dim, stored.n_logits, stored.parameters]
        cells = ["" if n is None else number(n) for n in counts]
        rows.append([model, *cells, "" if time is None else significant(time)])
    listed = [f"{domain} ({images:,})" for domain, images in domains.items()]
    return html_table(
        ["model", "features", "logits", "parameters", "ms / image"],
        rows,
        caption=f"{name}: {count(len(rows), 'model')}, {count(sum(domains.values()), 'image')}",
        notes=[f"{count(len(domains), 'domain')}: {some_of(listed, 10)}; {outputs}."],
    )
