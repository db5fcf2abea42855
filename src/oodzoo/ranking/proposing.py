"""Domains proposed for the samples of a store, and how much the ranking depends on them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners
from oodzoo.core.tables import Table, html_text
from oodzoo.core.text import count, did_you_mean, printable, short_name
from oodzoo.data.proposals import (
    Candidate,
    as_table,
    assess,
    candidates,
    find_candidate,
    in_order,
    label_sets,
    reasons,
)
from oodzoo.extraction.features import StoreSource, groups_of
from oodzoo.ranking.clusters import (
    Clusters,
    Floats,
    cluster,
    confined_classes,
    embed,
    separability,
)
from oodzoo.ranking.ranker import rank
from oodzoo.ranking.ranking import Ranking
from oodzoo.ranking.testbed.agreement import correlation
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.sync import regroup_store
from oodzoo.store.table import GIVEN

CAUTION = "Proposed domains are guesses: accuracy on a truly new domain may differ."


@dataclass(frozen=True)
class Sensitivity:
    """Rankings by several proposals, compared with that by the chosen one.

    Attributes
    ----------
    chosen : str
        The proposal that the others are compared with.
    score : str
        The score that models are ranked by.
    agreement : dict of str to float or None
        Weighted Kendall's tau of the scores by each other proposal with those by the chosen one;
        None if all models are tied.
    first : dict of str to str
        The first model by each proposal.
    ranks : dict of str to (int, int)
        The best and the worst rank of each model, the random split aside.
    reference : str
        The random split, which does not count as a proposal.
    failed : dict of str to str
        Proposals that models cannot be ranked by, and why.
    """

    chosen: str
    score: str
    agreement: dict[str, float | None]
    first: dict[str, str]
    ranks: dict[str, tuple[int, int]]
    reference: str
    failed: dict[str, str]

    @property
    def firsts(self) -> dict[str, int]:
        """How often each model is the first, most often first; the random split aside."""
        counts: dict[str, int] = {}
        for name, model in self.first.items():
            if name != self.reference:
                counts[model] = counts.get(model, 0) + 1
        return dict(sorted(counts.items(), key=lambda each: -each[1]))

    @property
    def verdict(self) -> str:
        """One line: how often the first model stays the same."""
        best, total = self.first[self.chosen], sum(self.firsts.values())
        if total == 1:
            return f"There is one proposal, {self.chosen}: nothing to compare its ranking with."
        same = self.firsts[best]
        often = "all" if same == total else f"{same} of"
        return f"The first model, {best}, is the same under {often} {count(total, 'proposal')}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "chosen": self.chosen,
            "score": self.score,
            "weighted_tau": self.agreement,
            "first": self.first,
            "firsts": self.firsts,
            "ranks": {model: list(ranks) for model, ranks in self.ranks.items()},
            "reference": self.reference,
            "failed": self.failed,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class DomainProposals:
    """The result of :func:`oodzoo.propose_domains`; as a string, tables and a verdict.

    Attributes
    ----------
    proposals : tuple of Candidate
        Columns first, the best one first; then clusters, and the given domains if there are
        several. Those that cannot be used have a `reason`.
    recommended : str or None
        The proposal to use; None if there is none.
    stability : dict of int to float
        Stability of clusterings by number of clusters.
    notes : tuple of str
        What to know about the recommended domains.
    sensitivity : Sensitivity or None
        None if models were not ranked.
    """

    proposals: tuple[Candidate, ...]
    recommended: str | None
    stability: dict[int, float]
    notes: tuple[str, ...] = ()
    sensitivity: Sensitivity | None = None

    def find(self, name: str) -> Candidate | None:
        return next((each for each in self.proposals if each.name == name), None)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and rows of the table of proposals, as text."""
        return as_table(self.proposals, self.recommended, "recommended")

    def sensitivity_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and rows of the table of rankings, as text."""
        found = self.sensitivity
        header = ["ranked by", "weighted tau", "first model"]
        if found is None:
            return header, []
        rows = []
        for name, model in found.first.items():
            tau = found.agreement.get(name)
            shown = "chosen" if name == found.chosen else "-" if tau is None else f"{tau:.2f}"
            rows.append([name, shown, model])
        return header, rows

    def rank_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and rows of the table of the ranges of ranks, as text."""
        header = ["model", "first", "ranks"]
        if self.sensitivity is None:
            return header, []
        firsts = self.sensitivity.firsts
        return header, [
            [model, str(firsts.get(model, 0)), f"{low}" if low == high else f"{low}-{high}"]
            for model, (low, high) in self.sensitivity.ranks.items()
        ]

    def lines(self) -> list[str]:
        """Return why columns cannot be used, the notes, the verdict and the caution."""
        verdict = [] if self.sensitivity is None else [self.sensitivity.verdict]
        return [*reasons(self.proposals), *self.notes, *verdict, CAUTION]

    def __repr__(self) -> str:
        number = count(len(self.proposals), "proposal")
        best = "none can be used"
        if self.recommended is not None:
            best = f"recommended {short_name(self.recommended)!r}"
        return f"DomainProposals({number}, {best})"

    def _repr_html_(self) -> str:
        tables = [table.html() for table in self._tables()]
        lines = [f"<p>{html_text(line)}</p>" for line in self.lines()]
        return "\n".join([*tables, *lines])

    def _tables(self) -> list[Table]:
        found = [self.table()]
        if self.sensitivity is not None:
            found += [self.sensitivity_table(), self.rank_table()]
        return [Table.of(*each, left=each[0]) for each in found]

    def __str__(self) -> str:
        tables = [table.text() for table in self._tables()]
        return "\n\n".join([*tables, "\n".join(self.lines())])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON document."""
        return {
            "recommended": self.recommended,
            "proposals": [each.to_dict() for each in self.proposals],
            "stability": {str(k): value for k, value in self.stability.items()},
            "notes": list(self.notes),
            "sensitivity": None if self.sensitivity is None else self.sensitivity.to_dict(),
            "caution": CAUTION,
        }


GIVEN_DOMAINS, CLUSTERS, RANDOM = "given", "clusters", "random"
_LEAST = 0.1
"""Score of a column below which clusters are recommended."""
_MOST_COLUMNS = 6
"""Columns that models are ranked by."""
_CLUSTERS = re.compile(r"clusters(?::(\d+))?")


def propose_domains(
    store: FeatureStore | str | Path,
    *,
    models: Sequence[str] | None = None,
    clusters: int | None = None,
    seed: int = 0,
    score: str = "unseen",
    chosen: str | None = None,
    sensitivity: bool = True,
    listener: Listeners | None = None,
) -> DomainProposals:
    """Propose domains for the samples of a store, and show how far the ranking depends on them.

    Domains are proposed by the further columns of the data set that the store has kept (see
    :mod:`oodzoo.data.proposals`), and by clusters of features
    (:mod:`oodzoo.ranking.clusters`). Then the models are ranked by each proposal: the best
    columns, the recommended number of clusters, one cluster less and more, another seed, and a
    random split as a reference. Nothing is written, apart from the cache of the store.

    Parameters
    ----------
    store : FeatureStore, path or URL
    models : sequence of str, optional
        The models whose features are clustered; by default all.
    clusters : int, optional
        Number of clusters; by default chosen by stability.
    seed : int
        Random seed of clustering and of the random split.
    score : str
        Score to rank by, see :func:`oodzoo.rank`.
    chosen : str, optional
        The proposal that others are compared with; by default the recommended one.
    sensitivity : bool
        Whether to rank the models.
    listener : Listener or sequence of Listener, optional
        Receives the events of the rankings, see :mod:`oodzoo.core.events`.

    Returns
    -------
    DomainProposals
    """
    opened = store if isinstance(store, FeatureStore) else FeatureStore(store)
    work = _Work(opened, opened.models if models is None else tuple(models), seed)
    proposals, found = work.propose(clusters)
    usable = [each for each in proposals if not each.reason]
    best = _recommended(usable)
    compared = best
    if chosen is not None:
        compared = work.find(chosen, proposals)
        if compared.name not in {each.name for each in proposals}:
            proposals = [*proposals, compared]
    result = DomainProposals(
        tuple(proposals),
        None if best is None else best.name,
        {} if found is None else found.stability,
        work.notes(compared),
    )
    if compared is None:
        reason = next((e.reason for e in proposals if e.kind == CLUSTERS), "no column")
        raise InputError(f"no domains can be proposed for {opened.location!r}: {reason}")
    if not sensitivity:
        return result
    ranked = work.variants(proposals, found, compared)
    views = {each.name: work.view(each) for each in ranked}
    reference = work.random(len(compared.domains))
    views[reference.name] = work.view(reference)
    measured = rank_by_each(
        views, compared.name, reference=reference.name, score=score, listener=listener
    )
    return replace(result, sensitivity=measured)


def _recommended(usable: Sequence[Candidate]) -> Candidate | None:
    """Return the given domains, else the best column, else clusters, else any column."""
    given = (each for each in usable if each.kind == GIVEN_DOMAINS)
    columns = (each for each in usable if each.kind == "column" and each.score >= _LEAST)
    clusters = (each for each in usable if each.kind == CLUSTERS)
    return next((each for kind in (given, columns, clusters, usable) for each in kind), None)


def use_domains(
    store: str | Path,
    name: str,
    *,
    models: Sequence[str] | None = None,
    seed: int = 0,
) -> FeatureStore:
    """Give the samples of a store the domains of a proposal; features are not touched.

    Parameters
    ----------
    store : path or URL
    name : str
        "camera" or "date:year", "clusters" or "clusters:4", or "given" for the domains before any
        proposal.
    models, seed : optional
        See :func:`propose_domains`.

    Returns
    -------
    FeatureStore
        With :attr:`~oodzoo.FeatureStore.domains_proposed`.
    """
    opened = FeatureStore(store)
    work = _Work(opened, opened.models if models is None else tuple(models), seed)
    found = work.find(name, ())
    assignment = dict(zip(work.paths, found.assignment, strict=True))
    if found.kind == GIVEN_DOMAINS:
        regroup_store(opened.location, opened.table.given_domains(), None)
    else:
        regroup_store(opened.location, assignment, work.describe(found))
    return FeatureStore(store)


class _Work:
    """The samples of a store, in the order of its domains with labels."""

    def __init__(self, store: FeatureStore, models: Sequence[str], seed: int) -> None:
        self.store, self.models, self.seed = store, models, seed
        self.source = StoreSource(store, models)
        domains = self.source.domains
        self.paths = [path for domain in domains for path in store.paths(domain)]
        self.groups = groups_of(self.source, domains)
        texts = [label for domain in domains for label in store.label_texts(domain)]
        self.labels: list[Collection[str]] = label_sets(store.task, texts)
        parts = [store.metadata(domain) for domain in domains]
        shared = [name for name in parts[0] if all(name in part for part in parts)]
        self.metadata = {name: [v for part in parts for v in part[name]] for name in shared}
        self.given = self._given()

    def _given(self) -> Candidate | None:
        """Return the domains that were given, if there were several."""
        by_path = self.store.table.given_domains()
        names = [by_path[path] for path in self.paths] if by_path else []
        if not names:
            return None
        return assess(GIVEN_DOMAINS, names, self.labels, kind=GIVEN_DOMAINS)

    @cached_property
    def coordinates(self) -> Floats:
        return embed(self.source, self.models, seed=self.seed)

    def columns(self) -> list[Candidate]:
        metadata = {name: values for name, values in self.metadata.items() if name != GIVEN}
        return candidates(metadata, self.labels)

    def with_separability(self, each: Candidate) -> Candidate:
        if each.reason or len(each.domains) < 2:
            return each
        value = separability(self.coordinates, each.assignment, self.groups, seed=self.seed)
        return replace(each, separability=value)

    def clusters(self, k: int | None, seed: int | None = None) -> tuple[Candidate, Clusters]:
        seed = self.seed if seed is None else seed
        found = cluster(self.coordinates, self.labels, self.groups, k=k, seed=seed)
        names = [f"cluster {number + 1}" for number in found.numbers.tolist()]
        name = f"{CLUSTERS}:{found.k}" + (f" seed {seed}" if seed != self.seed else "")
        return assess(name, names, self.labels, kind=CLUSTERS), found

    def propose(self, k: int | None) -> tuple[list[Candidate], Clusters | None]:
        """Return all proposals, those that cannot be used included, and the clusters."""
        proposals = in_order([self.with_separability(each) for each in self.columns()])
        found: Clusters | None = None
        try:
            clusters, found = self.clusters(k)
        except InputError as error:
            clusters = Candidate(CLUSTERS, reason=str(error), kind=CLUSTERS)
        given = self.given
        several = [given] if given is not None and len(given.domains) > 1 else []
        return [*proposals, clusters, *map(self.with_separability, several)], found

    def find(self, name: str, known: Sequence[Candidate]) -> Candidate:
        """Return the proposal of a name; reject one that does not exist or cannot be used."""
        for each in known:
            if each.name == name and not each.reason:
                return each
        if name == GIVEN_DOMAINS:
            if self.given is None:
                raise InputError(
                    f"the data of the store {self.store.location!r} had no domains; they are "
                    f"proposed by {self.store.domains_proposed}"
                )
            return self.given
        if match := _CLUSTERS.fullmatch(name):
            return self.clusters(None if match[1] is None else int(match[1]))[0]
        columns = self.columns()
        column = name.removeprefix("column:")
        if not any(column in (e.name, e.name.rpartition(":")[0]) for e in columns):
            names = [*(e.name for e in columns), CLUSTERS, GIVEN_DOMAINS]
            advice = printable(did_you_mean(name, names))
            raise InputError(
                f"the store {self.store.location!r} has no proposal {name!r}; it has "
                f"{', '.join(names)}" + (f": {advice}" if advice else "")
            )
        return find_candidate(column, columns, self.store.location)

    def describe(self, each: Candidate) -> str:
        """Say what domains are proposed by, as the store records it."""
        if each.kind != CLUSTERS:
            return each.name
        k, _, _ = each.name.removeprefix(f"{CLUSTERS}:").partition(" ")
        merged = "" if int(k) == len(each.domains) else f" of {k}"
        models = count(len(self.models), "model")
        return f"{len(each.domains)}{merged} clusters of features of {models}, seed {self.seed}"

    def notes(self, each: Candidate | None) -> tuple[str, ...]:
        if each is None:
            return ()
        confined = confined_classes(each.assignment, self.labels)
        if not confined:
            return ()
        label, domain = next(iter(confined.items()))
        what = f"class {label!r} is"
        if len(confined) > 1:
            what = f"{len(confined)} classes are each in a single domain; the first, {label!r}, is"
        note = (
            f"By {each.name}, {what} in {domain!r} only: no other domain can teach it, and it is "
            "ignored where this one is left out."
        )
        return (note,)

    def variants(
        self, proposals: Sequence[Candidate], found: Clusters | None, chosen: Candidate
    ) -> list[Candidate]:
        """Return the proposals to rank by, each a different division of the samples."""
        usable = [each for each in proposals if not each.reason and len(each.domains) > 1]
        columns = [each for each in usable if each.kind == "column"][:_MOST_COLUMNS]
        others = [each for each in usable if each.kind != "column"]
        ranked = [chosen, *columns, *others]
        if found is not None:
            tries = [(found.k - 1, None), (found.k + 1, None), (found.k, self.seed + 1)]
            for k, seed in tries:
                try:
                    ranked.append(self.clusters(k, seed)[0])
                except InputError:  # too few or too many clusters
                    continue
        distinct: dict[tuple[int, ...], Candidate] = {}
        for each in ranked:
            distinct.setdefault(_division(each.assignment), each)
        return list(distinct.values())

    def random(self, k: int) -> Candidate:
        """Divide the samples at random, groups kept whole."""
        rng = np.random.default_rng(self.seed)
        of_group: dict[str, int] = {}
        numbers = []
        order = rng.permutation(len(self.paths))
        for row, group in enumerate(self.groups):
            number = int(order[row]) % max(k, 2)
            numbers.append(number if group is None else of_group.setdefault(group, number))
        names = [f"part {number + 1}" for number in numbers]
        return assess(f"{RANDOM}:{max(k, 2)}", names, self.labels, kind=RANDOM)

    def view(self, each: Candidate) -> FeatureStore:
        """Return the store with the domains of a proposal."""
        names = dict(zip(self.paths, each.assignment, strict=True))
        rest = min(each.assignment)
        paths = [path for domain in self.store.table.labelled for path in domain.paths]
        # A name of its own for each division: the cache has one entry for equal names.
        domains = {path: f"{each.name}: {names.get(path, rest)}" for path in paths}
        return self.store.with_table(self.store.table.regrouped(domains, each.name))


def _division(assignment: Sequence[str]) -> tuple[int, ...]:
    """Number the domains in the order in which they occur: equal for equal divisions."""
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(name, len(numbers)) for name in assignment)


# --- sensitivity ----------------------------------------------------------------------------------


def rank_by_each(
    stores: Mapping[str, FeatureStore],
    chosen: str,
    *,
    reference: str,
    score: str = "unseen",
    listener: Listeners | None = None,
) -> Sensitivity:
    """Rank the models of a store by several divisions into domains.

    Parameters
    ----------
    stores : dict of str to FeatureStore
        Views of the store by the name of the proposal.
    chosen : str
        The proposal that others are compared with.
    reference : str
        The random split.
    score : str
    listener : Listener or sequence of Listener, optional

    Raises
    ------
    InputError
        If models cannot be ranked by the chosen proposal.
    """
    rankings: dict[str, Ranking] = {}
    failed: dict[str, str] = {}
    for name, store in stores.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the ranking by the domains in use repeats them
                rankings[name] = rank(store, score=score, listener=listener)
        except InputError as error:
            if name == chosen:
                raise
            failed[name] = str(error)
    return compare_rankings(rankings, chosen, reference=reference, failed=failed)


def compare_rankings(
    rankings: Mapping[str, Ranking],
    chosen: str,
    *,
    reference: str,
    failed: Mapping[str, str] | None = None,
) -> Sensitivity:
    """Compare rankings with the one by the chosen proposal; see :class:`Sensitivity`."""
    base = {row.model: row.score for row in rankings[chosen].rows}
    agreement = {}
    ranks = {row.model: [row.rank] for row in rankings[chosen].rows}
    for name, ranking in rankings.items():
        if name == chosen:
            continue
        scores = {row.model: row.score for row in ranking.rows}
        models = [model for model in base if model in scores]
        agreement[name] = correlation(
            "weighted_tau", [base[m] for m in models], [scores[m] for m in models]
        )
        if name != reference:
            for row in ranking.rows:
                ranks.setdefault(row.model, []).append(row.rank)
    return Sensitivity(
        chosen,
        rankings[chosen].score,
        agreement,
        {name: ranking.best for name, ranking in rankings.items()},
        {model: (min(found), max(found)) for model, found in ranks.items()},
        reference,
        dict(failed or {}),
    )
