"""Removing models from a store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from oodzoo.core.errors import InputError
from oodzoo.core.io import explaining_disk_errors, locked, shown
from oodzoo.core.text import did_you_mean
from oodzoo.store.contents import require_store
from oodzoo.store.files import folder_size, pulled, remove_files, remove_folder
from oodzoo.store.places import MODELS, model_folder, require_no_links
from oodzoo.store.writer import writing


def remove_models(store: str | Path, models: Sequence[str]) -> int:
    """Remove models, finished or not, with their features; return the number of bytes freed.

    A model that another process is extracting on this machine is not removed.
    """
    path = pulled(store)
    require_store(path)
    # a killed removal leaves a folder without model.json
    known = sorted(folder.name for folder in (path / MODELS).glob("*") if folder.is_dir())
    for name in models:
        if name not in known:
            raise InputError(
                f"the store {shown(path)!r} has no model {name!r}; "
                + (did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}")
            )
    with writing(path) as writer, ExitStack() as locks:
        names = dict.fromkeys(models)
        folders = [require_no_links(path, model_folder(path, name)) for name in names]
        freed = sum(map(folder_size, folders))
        for folder in folders:
            locks.enter_context(locked(folder))
        with explaining_disk_errors(path):
            for folder in folders:  # without it, a model does not count any more
                remove_files([folder / "model.json"])
            writer.finish()
            for folder in folders:
                remove_folder(folder)
    return freed
