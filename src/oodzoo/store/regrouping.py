"""Other domains for the samples of a store; features are not touched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from oodzoo.store.contents import old_tables, require_store
from oodzoo.store.files import pulled, remove_files
from oodzoo.store.writer import writing


def regroup_store(store: str | Path, domains: Mapping[str, str], proposed: str | None) -> None:
    """Replace the domains of the samples with labels.

    Parameters
    ----------
    store : path or URL
    domains : dict of str to str
        The domain of each sample, by path. Samples that are not named, because their image cannot
        be read, join the first domain.
    proposed : str or None
        What the domains were proposed by; None for given domains.
    """
    path = pulled(store)
    require_store(path)
    with writing(path, exclusive=True) as writer:
        paths = [p for domain in writer.table.labelled for p in domain.paths]
        rest = min(domains.values())
        writer.table = writer.table.regrouped({p: domains.get(p, rest) for p in paths}, proposed)
        writer.finish()
        remove_files(old_tables(path, writer.manifest))
