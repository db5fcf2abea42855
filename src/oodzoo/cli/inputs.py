"""The models and images of a command: filters, what must be downloaded, reading with progress."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.options import ZooLimits
from oodzoo.core.text import count, file_size, typed

if TYPE_CHECKING:
    from collections.abc import Collection

    from oodzoo.cli.terminal import Terminal
    from oodzoo.data.files import ImageFile
    from oodzoo.data.listing import ImageFiles
    from oodzoo.zoo import ModelSpec
    from oodzoo.zoo.listing import ListedModel


# --- the zoo --------------------------------------------------------------------------------------


_ASK_FROM = 10 * 10**9
"""Bytes to download from which a person is asked."""


def open_zoo(zoo: str, engine: str | None) -> list[ModelSpec]:
    """Read the zoo of `--zoo`, and require the packages that its models need on an engine."""
    from oodzoo.core.packages import require_extras
    from oodzoo.zoo import load_zoo
    from oodzoo.zoo.sources import extras_of

    specs = load_zoo(zoo)
    if engine == "local":  # the machines of a cluster have their own
        require_extras(extras_of(specs), f"--zoo {typed(zoo)}")
    return specs


def select_zoo(
    terminal: Terminal,
    specs: Sequence[ModelSpec],
    limits: ZooLimits,
) -> list[ListedModel]:
    """Keep the models that are within the limits; a progress bar shows how far counting is."""
    from oodzoo.zoo.listing import select_models

    with terminal.progress("Count parameters") as progress:
        return select_models(
            specs,
            licence=limits.licence,
            max_parameters=limits.max_parameters,
            progress=progress,
        )


def announce_download(terminal: Terminal, models: Sequence[ListedModel], *, yes: bool) -> None:
    """Say what must be downloaded; check the disk, and ask if it is much.

    Only a person at a terminal is asked: a command that nobody watches never waits.
    """
    from oodzoo.zoo.listing import plan_download

    download = plan_download(models)
    if not download.models:
        return
    terminal.say(f"{download}.")
    if yes:
        return
    download.require_space()
    if download.size < _ASK_FROM or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    # Not typer.confirm: it writes a space to stdout, which may be a JSON document.
    sys.stderr.write(f"Download about {file_size(download.size)}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError(
            "nothing was downloaded; leave out models with --max-parameters or --licence, or give "
            "--yes"
        )


def show_models(terminal: Terminal, models: Sequence[ListedModel]) -> list[dict[str, Any]]:
    """Write a table of models and what must be downloaded; return it as a document."""
    from oodzoo.zoo.listing import plan_download

    documents = []
    with terminal.progress("Look up models") as progress:
        for done, model in enumerate(models, start=1):
            documents.append(model.to_dict())
            if progress is not None:
                progress(done, len(models))
    terminal.table(
        ["name", "source", "pretraining", "licence", "d", "parameters", "download"],
        [
            [
                model.name,
                model.spec.kind,
                model.spec.pretraining or "-",
                model.licence or "-",
                model.spec.feature_dim or "-",
                "-" if model.parameters is None else f"{model.parameters / 1e6:.2f} M",
                "no" if model.is_local else "-" if model.size is None else file_size(model.size),
            ]
            for model in models
        ],
        left=4,
        least=("source", "d", "licence", "download"),
    )
    download = plan_download(models)
    todo = f"; {download}" if download.models else ""
    terminal.line(f"{count(len(models), 'model')}{todo}")
    return documents


# --- the images -----------------------------------------------------------------------------------


def announce_remote(terminal: Terminal, files: Collection[ImageFile], name: str) -> None:
    """Say how much is fetched from a remote source; nothing for local files."""
    remote = {file.remote for file in files if file.remote is not None}
    if not remote:
        return
    sizes = [file.size for file in remote if file.size is not None]
    total = f" ({file_size(sum(sizes))})" if len(sizes) == len(remote) else ""
    terminal.say(f"Reading {count(len(files), 'image')}{total} from {name!r}")


def read_images(terminal: Terminal, images: ImageFiles, name: str) -> None:
    """Compute the digests of images; remote ones are fetched into the local cache."""
    announce_remote(terminal, images.all_files, name)
    with terminal.progress("Reading images") as progress:
        images.read_all(progress)
