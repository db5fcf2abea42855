"""`oodzoo data` and `models`: the images and models of a command, and their problems."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oodzoo.cli.app import command
from oodzoo.cli.options import DataOptions, open_data
from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError, NoDomainsError
from oodzoo.core.limits import ZooLimits
from oodzoo.core.packages import require_extras
from oodzoo.core.text import count, file_size, typed

if TYPE_CHECKING:
    from collections.abc import Collection

    from oodzoo.data.dataset import ImageDomains
    from oodzoo.data.files import ImageFile
    from oodzoo.data.listing import ImageFiles
    from oodzoo.data.proposals import Candidate
    from oodzoo.data.summary import Summary
    from oodzoo.store.leaks.similar import NearDuplicates, Pairs
    from oodzoo.zoo import ModelSpec
    from oodzoo.zoo.listing import ListedModel


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


_MOST_ROWS = 20
_MOST_COLUMNS = 12


def counted(dataset: ImageDomains) -> str:
    """The numbers of images, domains and classes, labels or numbers."""

    what = dataset.task.count_outputs(len(dataset.classes))
    if not dataset.task.has_probabilities:
        what += f" to predict: {', '.join(map(repr, dataset.classes))}"
    return f"{count(len(dataset), 'image')}, {count(len(dataset.domains), 'domain')}, {what}"


def images_used(dataset: ImageDomains, used: int) -> str:
    """Say why fewer images are used than there are; empty if all are used, each once."""
    known = [digest for digest in dataset.digests if digest is not None]
    different, lost = len(set(known)), len(dataset) - used
    reasons = []
    if copies := len(known) - different:
        verb = "is identical to another" if copies == 1 else "are identical to others"
        reasons.append(f"{copies:,} {verb}, so the models run on {different:,}")
    if lost:
        reasons.append(f"{lost:,} cannot be read, so {used:,} are used")
    return f"{count(len(dataset), 'image')}: {'; '.join(reasons)}" if reasons else ""


def show_counts(terminal: Terminal, dataset: ImageDomains, *, full: bool = False) -> None:
    """Show the number of images by class and domain; not all of many, unless `full`.

    Several labels are counted likewise; numbers are not.
    """
    if not dataset.task.has_probabilities:
        terminal.line(counted(dataset))
        return
    counts = dataset.counts()
    if len(dataset.domains) <= len(dataset.classes):  # columns for whichever is fewer
        classes = dataset.task.one_class
        noun, plural = ("class", "classes") if classes else ("label", "labels")
        columns = dataset.domains
        rows = {label: [counts[d][label] for d in columns] for label in dataset.classes}
    else:
        noun, plural, columns = "domain", "domains", dataset.classes
        rows = {d: [counts[d][label] for label in columns] for d in dataset.domains}
    sums = [sum(column) for column in zip(*rows.values(), strict=True)]
    abbreviated = not full and len(rows) > _MOST_ROWS
    if full or len(columns) <= _MOST_COLUMNS:
        all_rows = [[name, *row] for name, row in rows.items()]
        table = _largest_and_smallest(rows) if abbreviated else all_rows
        terminal.table([noun, *columns], [*table, ["all", *sums]])
    terminal.line(counted(dataset))
    if abbreviated or (not full and len(columns) > _MOST_COLUMNS):
        terminal.line(f"oodzoo data --counts shows the images of all {len(rows):,} {plural}.")


def _largest_and_smallest(rows: Mapping[str, list[int]]) -> list[list[object]]:
    names = sorted(rows, key=lambda name: -sum(rows[name]))
    half = _MOST_ROWS // 2
    largest, smallest = (
        [[name, *rows[name]] for name in part] for part in (names[:half], names[-half:])
    )
    n_columns = len(rows[names[0]])
    return [*largest, [f"… {len(rows) - 2 * half:,} more", *["…"] * n_columns], *smallest]


@command("data", example="oodzoo data photos/")
def data(
    terminal: Terminal,
    source: str,
    options: DataOptions,
    quick: bool = False,
    counts: bool = False,
    store: str | None = None,
) -> None:
    """Count the images of each domain and class, label or number, and report problems.

    Options
    -------
    quick
        Only count; do not open the images.
    counts
        Show the images of all classes, however many.
    store
        Folder or URL of their feature store, to find near-duplicates, too.
    """
    if quick and store is not None:
        raise InputError("--store compares the images, --quick does not open them; give one")
    dataset = _opened(terminal, source, options)
    summary = _summary(terminal, dataset, quick)
    terminal.table(*summary.table())
    terminal.line("")
    show_counts(terminal, dataset, full=counts)
    for issue in summary.issues:
        terminal.warn(str(issue))
    if not summary.issues and len(dataset.domains) > 1 and not quick and store is None:
        terminal.line("No problems found.")
    # unknown if a remote image could not be fetched
    fingerprint = dataset.fingerprint if dataset.is_read else None
    document = {**summary.to_dict(), "fingerprint": fingerprint}
    if dataset.proposals or dataset.domains_proposed is not None:
        document["domains_proposed"] = dataset.domains_proposed
        document["proposals"] = [each.to_dict() for each in dataset.proposals]
    if store is not None:
        found = compare_images(terminal, dataset, store)
        show_near_duplicates(terminal, found)
        document["near_duplicates"] = found.to_dict()
    terminal.document(document)


def _opened(terminal: Terminal, source: str, options: DataOptions) -> ImageDomains:
    """Open the data set; if it has no domains, show what could be proposed."""
    try:
        dataset = open_data(source, options)
    except NoDomainsError as error:
        if options.domains is not None:
            raise
        terminal.warn(str(error).partition(";")[0])
        options = replace(options, domains="propose")
        dataset = open_data(source, options)
    if options.domains is not None:
        show_proposals(terminal, dataset.proposals, dataset.domains_proposed)
        announce_proposed(terminal.line, dataset, options.domains)
    return dataset


def _summary(terminal: Terminal, dataset: ImageDomains, quick: bool) -> Summary:
    if quick:
        return dataset.summary(quick=True)
    announce_remote(terminal, dataset.files, dataset.name)
    with terminal.progress("Reading images") as progress:
        return dataset.summary(progress)


@command("models", example="oodzoo models modern --name '*vit*' --max-parameters 100M")
def models(
    terminal: Terminal,
    zoo: str = "demo",
    name: str | None = None,
    source: str | None = None,
    pretraining: str | None = None,
    *,
    limits: ZooLimits,
) -> None:
    """List the models of a zoo, and which of them must be downloaded.

    Arguments
    ---------
    zoo : ZOO
        {zoo}

    Options
    -------
    name
        Only models whose name matches, e.g. '*vit*'.
    source
        Only models from this source, e.g. timm.
    pretraining
        Only models whose pre-training mentions this.
    """
    from oodzoo.zoo import load_zoo, zoo_names
    from oodzoo.zoo.sources import source_kinds
    from oodzoo.zoo.zoos import filter_models, missing

    if source is not None and source not in source_kinds():
        raise InputError(f"unknown source {source!r}; expected one of {', '.join(source_kinds())}")
    specs = filter_models(load_zoo(zoo), pattern=name, source=source, pretraining=pretraining)
    models = select_zoo(terminal, specs, limits)
    documents = show_models(terminal, models)
    absent = missing(zoo) if zoo in zoo_names() else {}
    for each, reason in absent.items():
        terminal.say(f"not available: {each}: {reason}")
    terminal.document(
        {
            "models": documents,
            "missing": [{"name": each, "reason": reason} for each, reason in absent.items()],
        }
    )


# --- the zoo --------------------------------------------------------------------------------------


_ASK_FROM = 10 * 10**9
"""Bytes to download from which a person is asked."""


def open_zoo(zoo: str, engine: str | None) -> list[ModelSpec]:
    """Read the zoo of `--zoo`, and require the packages that its models need on an engine."""
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


def show_proposals(terminal: Terminal, found: Sequence[Candidate], chosen: str | None) -> None:
    """Show the columns that domains could be proposed by."""
    from oodzoo.data.proposals import as_table, reasons

    header, rows = as_table(found, chosen, "used")
    if rows:
        terminal.table(header, rows)
    for line in reasons(found):
        terminal.line(line)


def announce_proposed(
    write: Callable[[str], None],
    dataset: ImageDomains,
    domains: str | None,
    *,
    clusters: bool = False,
) -> None:
    """Write in one line which domains a data set has, if they were to be proposed."""
    from oodzoo.data.proposals import describe

    if domains is not None:
        by, names = dataset.domains_proposed, dataset.domains
        write(describe(by, names, dataset.proposals, clusters=clusters))
