"""`oodzoo domains`: propose domains for the samples of a feature store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from oodzoo.cli.app import STORE_VALID, command
from oodzoo.cli.options import LogOptions, listening
from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.text import count, typed

if TYPE_CHECKING:
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.data.proposals import Candidate


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
