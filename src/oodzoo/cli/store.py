"""`oodzoo store …` and `domains`: look at and maintain a feature store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import typer

from oodzoo.cli.app import FEATURES_KEPT, STORE_VALID, PlainGroup, app, command
from oodzoo.cli.data import compare_stored, show_near_duplicates
from oodzoo.cli.options import DataOptions, LogOptions, listening
from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.text import count, file_size, some_of, time_per_image, typed

if TYPE_CHECKING:
    from oodzoo.store.maintenance import Contents


group = typer.Typer(
    cls=PlainGroup,
    rich_markup_mode=None,
    help="Look at and maintain a feature store.",
    epilog="Example: oodzoo store ls features/",
    no_args_is_help=True,
)
app.add_typer(group, name="store")


@command("ls", example="oodzoo store ls features/", group=group)
def ls(terminal: Terminal, store: str) -> None:
    """List the models and domains of a feature store."""
    from oodzoo.store.maintenance import list_contents

    contents = list_contents(store)
    terminal.table(
        ["model", "images", "features", "dtype", "size", "ms/image", ""],
        [
            [
                model.name,
                f"{model.images:,}",
                f"{model.features:,}",
                model.dtype,
                file_size(model.bytes),
                "" if model.milliseconds is None else time_per_image(model.milliseconds),
                "" if model.complete else "incomplete",
            ]
            for model in contents.models
        ],
        least=("dtype", "images"),
    )
    _show_measured(terminal, contents)
    terminal.table(
        ["domain", "images", ""],
        [
            [domain.name, f"{domain.images:,}", "" if domain.labelled else "unlabelled"]
            for domain in contents.domains
        ],
    )
    terminal.line(
        f"{count(len(contents.models), 'model')}, {count(len(contents.domains), 'domain')}, "
        f"{contents.task.count_outputs(contents.classes)}"
    )
    if contents.domains_proposed is not None:
        terminal.line(f"domains: proposed by {contents.domains_proposed}")
    terminal.document(msgspec.to_builtins(contents, enc_hook=type(contents.task).to_document))


def _show_measured(terminal: Terminal, contents: Contents) -> None:
    """Say how the times per image were measured, and of which models if not all in one way."""
    models: dict[str, list[str]] = {}
    for model in contents.models:
        if model.measured is not None:
            models.setdefault(model.measured, []).append(model.name)
    for measured, names in models.items():
        of = f" of {some_of(names, 5)}" if len(models) > 1 else ""
        terminal.line(f"ms/image{of}: {measured}")
    if len(models) > 1:
        terminal.warn("times per image that were measured in different ways are not comparable")


@command("du", example="oodzoo store du features/", group=group)
def du(terminal: Terminal, store: str) -> None:
    """Show the disk space of each model, the cache and what can be pruned."""
    from oodzoo.store.maintenance import disk_usage

    usage = disk_usage(store)
    parts = {**usage.models, "samples and index": usage.samples, "cache": usage.cache}
    terminal.table(
        ["part", "size"],
        [[name, file_size(n)] for name, n in [*parts.items(), ("total", usage.total)]],
    )
    if usage.unused:
        terminal.line(
            f"{file_size(usage.unused)} can be freed with `oodzoo store prune {typed(store)}`"
        )
    terminal.document(msgspec.to_builtins(usage))


@command(
    "rm",
    example="oodzoo store rm features/ resnet50 vit_small",
    interrupted="some models may be removed already, rerun the command for the others",
    group=group,
)
def rm(
    terminal: Terminal,
    store: str,
    models: list[str],
) -> None:
    """Remove models and their features.

    Arguments
    ---------
    models : MODEL…
        Names of models.
    """
    from oodzoo.store.maintenance import remove_models

    freed = remove_models(store, models)
    removed = list(dict.fromkeys(models))
    terminal.line(f"{count(len(removed), 'model')} removed, {file_size(freed)} freed")
    terminal.document({"removed": removed, "bytes": freed})


@command("prune", example="oodzoo store prune features/", interrupted=STORE_VALID, group=group)
def prune(
    terminal: Terminal,
    store: str,
    unfinished: bool = False,
    cache: bool = False,
) -> None:
    """Remove features of images that are no longer in the table, and unused files.

    Options
    -------
    unfinished
        Remove features of new images of interrupted extractions too.
    cache
        Remove the cache too.
    """
    from oodzoo.store.maintenance import prune_store

    pruned = prune_store(store, unfinished=unfinished, cache=cache)
    terminal.line(
        f"features of {count(pruned.images, 'image')} removed, {file_size(pruned.bytes)} freed"
    )
    terminal.document(msgspec.to_builtins(pruned))


@command(
    "sync", example="oodzoo store sync features/ photos/", interrupted=STORE_VALID, group=group
)
def sync(
    terminal: Terminal,
    store: str,
    source: str,
    options: DataOptions,
    unlabelled: list[str] | None = None,
    drop: list[str] | None = None,
    yes: bool = False,
) -> None:
    """Adopt removed, moved and relabelled images, without extracting again.

    Options
    -------
    drop : NAME
        Remove a domain without labels.
    yes
        Go on even if most images would be removed, or an image is in two domains.
    """
    from oodzoo.extraction.extract import open_unlabelled
    from oodzoo.store.sync import sync_store

    options.require_request()
    changes = sync_store(
        store,
        source,
        root=options.root,
        columns=options.mapping,
        task=options.task,
        domains=options.domains,
        unlabelled=open_unlabelled(unlabelled or []),
        drop=drop or [],
        yes=yes,
    )
    if changes.task is not None:
        terminal.line(f"the labels are now for {changes.task}")
    if changes.table_lost:
        terminal.warn("the old table was damaged: give domains without labels again (--unlabelled)")
    for path, reason in changes.unreadable.items():
        terminal.warn(f"left out {path!r}: {reason}")
    for kind, names in (("class", changes.classes), ("domain", changes.domains)):
        for old, new in names.items():
            terminal.line(f"{kind} {old!r} renamed to {new!r}")
    for name in changes.unlabelled:
        terminal.line(f"domain {name!r} without labels changed")
    parts = [
        f"{n:,} {word}"
        for word in ("added", "removed", "moved", "relabelled", "regrouped")
        if (n := getattr(changes, word))
    ]
    if parts or not changes.unlabelled:
        terminal.line(", ".join(parts) or "no changes")
    if changes.new:
        terminal.warn(
            f"{count(changes.new, 'image')} without features; compute them with "
            f"`oodzoo extract {typed(source)} --zoo ZOO --store {typed(store)}`"
        )
    terminal.document(msgspec.to_builtins(changes))


@command(
    "check",
    example="oodzoo store check features/",
    interrupted="only --repair changes the store, rerun the command to finish",
    group=group,
)
def check(
    terminal: Terminal,
    store: str,
    repair: bool = False,
    leaks: str = "auto",
) -> None:
    """Verify every checksum of a feature store, and find near-duplicate images.

    Options
    -------
    repair
        Remove damaged files; rerun oodzoo extract to compute them again.
    leaks : PAIRS
        Pairs of images to compare, to find near-duplicates: auto (in about a minute), all,
        class (with the same label), none.
    """
    from oodzoo.store.checking import check_store
    from oodzoo.store.leaks.search import SCOPES

    if leaks not in (*SCOPES, "none"):
        expected = ", ".join((*SCOPES, "none"))
        raise InputError(f"unknown pairs to compare: --leaks {leaks!r}; expected {expected}")
    with terminal.progress("Verifying") as progress:
        found = check_store(store, repair=repair, progress=progress)
    for damage in found.damage:
        terminal.warn(f"{damage.path}: {damage.problem}")
    for name in found.unfinished:
        terminal.warn(f"model {name!r} is incomplete; rerun oodzoo extract to finish it")
    lost = [damage.path for damage in found.damage if damage.path.startswith("samples/")]
    similar = None
    if leaks != "none" and not found.damage:
        similar = compare_stored(terminal, store, leaks)
    terminal.document(
        {
            "files": found.files,
            "damaged": msgspec.to_builtins(found.damage),
            "unfinished": list(found.unfinished),
            "repaired": repair and bool(found.damage) and not lost,
            "near_duplicates": None if similar is None else similar.to_dict(),
        }
    )
    terminal.line(f"{count(found.files, 'file')} verified, {len(found.damage)} damaged")
    if similar is not None:
        show_near_duplicates(terminal, similar)
    if lost and repair:
        raise InputError(
            f"{lost[0]!r} cannot be repaired; restore it with "
            f"`oodzoo store sync {typed(store)} DATA`"
        )
    if found.damage and not repair:
        cached = all(damage.path.startswith("cache/") for damage in found.damage)
        raise InputError(
            f"{store!r} has {count(len(found.damage), 'damaged file')}; remove them with "
            f"`oodzoo store check {typed(store)} --repair`"
            + ("" if cached else ", then rerun `oodzoo extract`")
        )


@command(
    "merge",
    example="oodzoo store merge first/ second/ --out both/",
    interrupted=FEATURES_KEPT,
    group=group,
)
def merge(
    terminal: Terminal,
    stores: list[str],
    out: str,
) -> None:
    """Copy the models of several stores of the same images into a new store.

    Arguments
    ---------
    stores : STORE…
        Stores of the same images.

    Options
    -------
    out : PATH
        Folder or URL of the new store.
    """
    from oodzoo.store.maintenance import list_contents, merge_stores

    merged = merge_stores(stores, out)
    terminal.line(
        f"{count(len(merged.models), 'model')}, {count(merged.n_images, 'image')}, "
        f"{count(len(merged.domains), 'domain')} in {out}"
    )
    _show_measured(terminal, list_contents(out))
    terminal.document({"store": out, "models": list(merged.models), "images": merged.n_images})


@command("domains", example="oodzoo domains features/", interrupted=STORE_VALID)
def domains(
    terminal: Terminal,
    store: str,
    use: str | None = None,
    clusters: int | None = None,
    models: str | None = None,
    compare: str | None = None,
    score: str = "unseen",
    rank: bool = True,
    seed: int = 0,
    *,
    log: LogOptions,
) -> None:
    """Propose domains by columns and clusters, and show how far the ranking depends on them.

    Options
    -------
    use : PROPOSAL
        Give the samples these domains: a column (camera, date:year), clusters, clusters:K, or
        given to undo it. Features stay as they are.
    clusters
        Number of clusters; by default chosen by stability.
    models : NAME,…
        Cluster features of these models; default: all.
    compare : PROPOSAL
        Compare rankings with that by this proposal, not the first.
    rank
        Rank the models by each proposal.
    """
    from oodzoo.ranking.proposing import propose_domains
    from oodzoo.store.feature_store import FeatureStore

    names = None if models is None else [name.strip() for name in models.split(",")]
    if use is not None:
        if clusters is not None:
            raise InputError(f"--clusters is not used with --use; give --use clusters:{clusters}")
        _use(terminal, store, use, names, seed)
        return
    opened = FeatureStore(store)
    with listening(terminal, "Ranking", log.listeners()) as listener:
        found = propose_domains(
            opened,
            models=names,
            clusters=clusters,
            seed=seed,
            score=score,
            chosen=compare,
            sensitivity=rank,
            listener=listener,
        )
    terminal.table(*found.table())
    if found.sensitivity is not None:
        terminal.line("")
        terminal.table(*found.sensitivity_table(), left=1)
        terminal.line("")
        terminal.table(*found.rank_table())
        for name, reason in found.sensitivity.failed.items():
            terminal.warn(f"models cannot be ranked by {name}: {reason}")
    for line in found.lines():
        terminal.line(line)
    if found.recommended is not None and found.recommended == opened.domains_proposed:
        terminal.say(f"They are in use: the domains are proposed by {found.recommended}.")
    elif found.recommended not in (None, "given"):
        chosen = typed(found.recommended)
        terminal.say(f"Use them with: oodzoo domains {typed(store)} --use {chosen}")
    terminal.document(found.to_dict())


def _use(
    terminal: Terminal, store: str, name: str, models: Sequence[str] | None, seed: int
) -> None:
    from oodzoo.ranking.proposing import use_domains

    opened = use_domains(store, name, models=models, seed=seed)
    n_domains = count(len(opened.domains), "domain")
    if opened.domains_proposed is None:
        terminal.line(f"{n_domains} in {store}, as given")
    else:
        terminal.line(f"{n_domains} in {store}, proposed by {opened.domains_proposed}")
        if opened.table.given_domains():
            terminal.say(f"Undo it with: oodzoo domains {typed(store)} --use given")
    terminal.document(
        {
            "store": store,
            "domains": {domain: len(opened.paths(domain)) for domain in opened.domains},
            "domains_proposed": opened.domains_proposed,
        }
    )
