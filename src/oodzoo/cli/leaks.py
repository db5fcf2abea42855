"""Near-duplicate images on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oodzoo.cli.terminal import Terminal
from oodzoo.core.text import count

if TYPE_CHECKING:
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.store.leaks.pairs import NearDuplicates, Pairs

_SHOWN = 8


def compare_stored(terminal: Terminal, store: str, pairs: str) -> NearDuplicates | None:
    """Find near-duplicates in a feature store; None if it has no finished model."""
    from oodzoo.store.feature_store import FeatureStore, UnfinishedStoreError
    from oodzoo.store.leaks.similar import similar_images

    try:
        opened = FeatureStore(store)
    except UnfinishedStoreError:
        return None
    with terminal.progress("Comparing images") as progress:
        return similar_images(opened, pairs=pairs, progress=progress)


def compare_images(terminal: Terminal, dataset: ImageDomains, store: str) -> NearDuplicates:
    """Find near-duplicates in a data set by its features in a store, and by its pixels."""
    from oodzoo.store.feature_store import FeatureStore
    from oodzoo.store.leaks.similar import similar_images

    opened = FeatureStore(store)
    files = dataset.files_by_digest
    absent = len(files.keys() - set(opened.table.images()))
    if absent:
        terminal.warn(
            f"{count(absent, 'image')} without features in {store!r}, not compared; compute them "
            "with oodzoo extract"
        )
    with terminal.progress("Comparing images") as progress:
        return similar_images(opened, files=files, progress=progress)


def show_near_duplicates(terminal: Terminal, found: NearDuplicates) -> None:
    """Show the worst pairs, and what to do about them."""
    _show_pairs(terminal, found.across, "Near-duplicate images in different domains")
    _show_pairs(terminal, found.within, "Near-duplicate images in the same domain")
    show_problems(terminal, found)


def show_problems(terminal: Terminal, found: NearDuplicates, where: str = "") -> None:
    """Say what to do about near-duplicates, where to see them, and what was compared."""
    for problem in found.problems:
        terminal.warn(problem)
    if found.problems and where:
        terminal.line(where)
    if not found.problems:
        terminal.line("No near-duplicate images found.")
    terminal.line(found.extent)


def _show_pairs(terminal: Terminal, pairs: Pairs, title: str) -> None:
    worst = pairs.worst[:_SHOWN]
    if not worst:
        return
    columns = ["image", "domain", "image", "domain", "evidence", "similarity"]
    rows = [
        [
            *(cell for image in zip(pair.paths, pair.domains, strict=True) for cell in image),
            pair.evidence_in_words + (", labels differ" if pair.labels_differ else ""),
            f"{pair.similarity:.2f}",
        ]
        for pair in worst
    ]
    if any(pair.correlation is not None for pair in worst):
        columns.append("pixels")
        for row, pair in zip(rows, worst, strict=True):
            row.append("" if pair.correlation is None else f"{pair.correlation:.3f}")
    terminal.table(columns, rows, title=title, left=5)
    if (more := len(pairs) - len(worst)) > 0:
        terminal.line(f"… {count(more, 'more pair')}; --json lists the first 100")
