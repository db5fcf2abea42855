"""The option `--target`: unlabelled images of the target domain, by name or from a folder."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oodzoo.cli.extract import extraction_progress, skipped_lines
from oodzoo.cli.options import ZOO_HELP
from oodzoo.cli.terminal import Terminal
from oodzoo.core.remote.location import is_url
from oodzoo.core.text import count

if TYPE_CHECKING:
    from oodzoo.data.unlabelled import UnlabelledImages
    from oodzoo.store.feature_store import FeatureStore

TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="NAME|FOLDER",
        help="Rank for these unlabelled images of the target domain: an unlabelled domain of the "
        "store, or FOLDER or NAME=FOLDER, which is first extracted into the store.",
    ),
]
TargetFolderOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="FOLDER",
        help="Rank for these unlabelled images of the target domain: FOLDER or NAME=FOLDER.",
    ),
]
TargetZooOption = Annotated[
    str | None,
    typer.Option(
        "--zoo",
        help=f"New location of the models, if they moved; for --target FOLDER. {ZOO_HELP}",
    ),
]


def stored_target(
    terminal: Terminal,
    path: str,
    target: str | None,
    score: str,
    zoo: str | None,
    device: str = "cpu",
) -> str | None:
    """Return the name of the unlabelled domain; a folder is first extracted into the store.

    `score` is what the command ranks by. `device` is its compute device; models run on it, or on
    the fastest one if it is cpu.
    """
    from oodzoo.data.unlabelled import parse_unlabelled
    from oodzoo.extraction.target import require_target_score
    from oodzoo.linear.heads.classes import require_classes_for
    from oodzoo.store.feature_store import FeatureStore

    if target is None:
        return None
    require_target_score(score)
    store = FeatureStore(path)
    require_classes_for(store.task, "--target")
    if target in store.unlabelled:
        _warn_of_other_images(terminal, store, target)
        return target
    if not (_is_folder(target) or "=" in target or is_url(target)):
        return target  # refused by the ranking, with the names of the unlabelled domains
    images = parse_unlabelled(target)
    _add(terminal, store, images, zoo, "auto" if device == "cpu" else device)
    return images.name


def _is_folder(text: str) -> bool:
    return os.path.isdir(text)  # noqa: PTH112 - Path.is_dir raises on a name too long


def _warn_of_other_images(terminal: Terminal, store: FeatureStore, name: str) -> None:
    """Warn if a folder of the same name has other files than the domain of the store."""
    from oodzoo.data.sources.folder import list_images

    if not _is_folder(name):
        return
    listed = None
    with suppress(OSError):
        listed, _ = list_images(Path(name))
    if listed != store.table.domain(name).paths:
        terminal.warn(
            f"the folder {name!r} has other images than the unlabelled domain {name!r} of the "
            f"store, which is used; to extract the folder, give --target .{os.sep}{name}"
        )


def _add(
    terminal: Terminal, store: FeatureStore, images: UnlabelledImages, zoo: str | None, device: str
) -> None:
    from oodzoo.extraction.adding import add_unlabelled
    from oodzoo.zoo import load_zoo

    before = store.images(images.name) if images.name in store.unlabelled else None
    specs = load_zoo(zoo) if zoo is not None else []
    with extraction_progress(terminal) as bars:
        opened, done = add_unlabelled(store, images, zoo=specs, device=device, listener=bars)
    domain, reasons = opened.table.domain(images.name), opened.manifest.skipped
    listed = zip(domain.paths, domain.images, strict=True)
    skipped = {path: reasons[image] for path, image in listed if image in reasons}
    for message in skipped_lines({**skipped, **done.unreadable}):
        terminal.warn(message)
    if before is not None and opened.images(images.name) != before:
        terminal.warn(
            f"the unlabelled domain {images.name!r} of the store had other images; its "
            f"{count(len(before), 'image')} were replaced by those of {str(images.location)!r}"
        )
