"""Other samples, labels and domains for a store, without computing features."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from oodzoo.core.errors import InputError
from oodzoo.core.io import shown
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.text import count
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.listing import Sample
from oodzoo.data.sources.folder import UnlabelledImages, list_images
from oodzoo.store.format import read_manifest
from oodzoo.store.mirror import pulled, remove_files
from oodzoo.store.table import (
    SampleTable,
    newest_table,
    old_tables,
    registered_models,
    require_store,
)
from oodzoo.store.writer import StoreWriter, writing
from oodzoo.tasks import Kind


@dataclass(frozen=True)
class Changes:
    """What a synchronisation has changed: numbers of samples, and renamed classes and domains.

    Attributes
    ----------
    added : int
        Samples of images that had features already.
    new : int
        Samples of the data set that the store has no features of; they are not in the table.
    removed, moved, relabelled, regrouped : int
        A moved sample has another path or domain.
    classes, domains : dict of str to str
        New names by old ones.
    unlabelled : tuple of str
        Domains without labels that were added, changed or removed; they do not count above.
    unreadable : dict of str to str
        Why image files could not be read, by path; they count as removed.
    table_lost : bool
        The old table was damaged: nothing is known of what has changed, and domains without labels
        must be given again.
    task : str or None
        What the labels are now, if that has changed: the kind of task, and its outputs.
    """

    added: int = 0
    new: int = 0
    removed: int = 0
    moved: int = 0
    relabelled: int = 0
    regrouped: int = 0
    classes: dict[str, str] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    unlabelled: tuple[str, ...] = ()
    unreadable: dict[str, str] = field(default_factory=dict)
    table_lost: bool = False
    task: str | None = None


def sync_store(
    store: str | Path,
    data: ImageDomains | str | Path,
    *,
    root: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    task: str | None = None,
    domains: str | None = None,
    unlabelled: Sequence[UnlabelledImages] = (),
    drop: Sequence[str] = (),
    yes: bool = False,
) -> Changes:
    """Replace the samples of a store by those of a data set.

    Images may have been removed, moved, relabelled or added, and classes and domains renamed; an
    image is recognised by its content. No feature is computed: images without features are counted
    as `new` and left out until they are extracted. Features of removed images are kept until
    :func:`oodzoo.store.maintenance.prune_store`. Domains without labels are kept unless they are
    given, and proposed domains as long as the samples are the same.

    Parameters
    ----------
    store : path or URL
    data : ImageDomains or path
    root, columns, task, domains : optional
        See :class:`oodzoo.ImageDomains`.
    unlabelled : sequence of UnlabelledImages
    drop : sequence of str
        Names of domains without labels to remove.
    yes : bool
        Go on even if more than half of the images would be removed, or if an image would be in two
        domains.
    """
    path = pulled(store)
    require_store(path)
    dataset = _dataset(data, root, columns, task or _known_kind(path), domains, yes=yes)
    given = SampleTable.of(dataset, unlabelled)
    with writing(path, exclusive=True, without_table=True) as writer:
        names = _complete_models(writer)
        if not names:
            raise InputError(
                f"the store {shown(path)!r} has no finished model; finish it with oodzoo extract"
            )
        old = writer.table
        if missing := [name for name in drop if name not in {d.name for d in old.unlabelled}]:
            known_names = ", ".join(repr(domain.name) for domain in old.unlabelled) or "none"
            raise InputError(
                f"the store {shown(path)!r} has no unlabelled domain {missing[0]!r}; it has "
                f"{known_names}"
            )
        known = [_known(writer, name) for name in names]
        table = msgspec.structs.replace(
            given,
            domains=[
                *SampleTable(given.labelled).only(set.intersection(*known)).domains,
                *SampleTable(given.unlabelled).only(set.union(*known)).domains,
            ],
        )
        table = writer.keeping_proposed(table)
        if dataset is not None and not table.labelled:
            raise InputError(
                f"none of the {count(len(dataset), 'image')} of {dataset.name!r} has "
                f"features in the store {shown(path)!r}; is it another data set?"
            )
        if not yes:
            _require_few_removed(old, table, path)
            _require_no_new_leak(old, table, writer.manifest.skipped)
        replaced = {domain.name for domain in given.unlabelled} | set(drop)
        kept = SampleTable([domain for domain in old.unlabelled if domain.name not in replaced])
        writer.table = table.keeping_unlabelled(kept)
        writer.finish()
        changes = replace(
            _changes(old, table),
            new=sum(1 for _ in given.images()) - sum(1 for _ in table.images()),
            unreadable={} if dataset is None else dataset.unreadable,
            unlabelled=_changed_targets(old, writer.table),
            table_lost=writer.table_lost,
            task=str(table.task) if table.labelled and table.task != old.task else None,
        )
        remove_files(old_tables(path, writer.manifest))
    return changes


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
        rest = min(domains.values())
        names = {s.path: domains.get(s.path, rest) for s, _ in writer.table.samples()}
        writer.table = writer.table.regrouped(names, proposed)
        writer.finish()
        remove_files(old_tables(path, writer.manifest))


def _dataset(
    data: ImageDomains | str | Path,
    root: str | Path | None,
    columns: Mapping[str, str] | None,
    task: str | None,
    domains: str | None,
    *,
    yes: bool,
) -> ImageDomains | None:
    """Open the data set; None for a folder without any image, if the caller agrees."""
    if isinstance(data, ImageDomains):
        return data
    try:
        return ImageDomains(data, root=root, columns=columns, task=task, domains=domains)
    except InputError:
        source = parse_location(data)
        if isinstance(source, Url) or not source.is_dir() or list_images(source)[0]:
            raise
    if yes:
        return None
    raise InputError(
        f"{str(source)!r} has no images: all samples would be removed from the store; confirm "
        "with --yes"
    )


def _known_kind(path: Path) -> Kind | None:
    """The kind of task of a store with other labels than classes."""
    _, table = newest_table(path, read_manifest(path), lost=True)
    return None if table is None or table.task.one_class else table.task.kind


def _complete_models(writer: StoreWriter) -> list[str]:
    """List the models whose images the table may have.

    A model that has lost a shard does not count, unless all have. If the table is lost, those with
    the most images count, even if the manifest is lost too.
    """
    if writer.table_lost:
        names = list(writer.manifest.models) or registered_models(writer.path)
        sizes = {name: len(_known(writer, name)) for name in names}
        return [name for name, n in sizes.items() if n and n == max(sizes.values())]
    names = list(writer.manifest.models)
    images = set(writer.table.images(labelled=True))
    return [name for name in names if not writer.coverage(name).missing(images)] or names


def _changed_targets(old: SampleTable, new: SampleTable) -> tuple[str, ...]:
    before, after = ({d.name: d for d in table.unlabelled} for table in (old, new))
    names = sorted(before.keys() | after.keys())
    return tuple(name for name in names if before.get(name) != after.get(name))


def _known(writer: StoreWriter, name: str) -> set[str]:
    coverage = writer.coverage(name)
    return coverage.rows.keys() | coverage.unreadable.keys()


def _require_few_removed(old: SampleTable, new: SampleTable, store: Path) -> None:
    before, after = set(old.images(labelled=True)), set(new.images(labelled=True))
    removed = len(before - after)
    if removed > len(before) / 2:
        raise InputError(
            f"{removed:,} of the {count(len(before), 'image')} in the store {shown(store)!r} are "
            "not in the data set, or unreadable; if that is right, confirm with --yes"
        )


def _require_no_new_leak(old: SampleTable, new: SampleTable, unreadable: Collection[str]) -> None:
    """Reject an image in two domains with labels, unless it was in both before."""
    before = _domains_of(old)
    for image, places in _domains_of(new).items():
        if image in unreadable:  # for example all empty files
            continue
        if len(places) > max(1, len(before.get(image, {}))):
            (first, path), (second, other) = list(places.items())[:2]
            raise InputError(
                f"{path!r} ({first!r}) and {other!r} ({second!r}) are the same image in two "
                "domains, which makes accuracies on held-out domains too optimistic; remove one "
                "of them, or confirm with --yes"
            )


def _domains_of(table: SampleTable) -> dict[str, dict[str, str]]:
    """Return a path in each domain, by image."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for sample, image in table.samples():
        found[image].setdefault(sample.domain, sample.path)
    return found


def _changes(old: SampleTable, new: SampleTable) -> Changes:
    before, after = _by_image(old), _by_image(new)
    counts: Counter[str] = Counter()
    pairs: list[tuple[Sample, Sample]] = []
    for image in before.keys() | after.keys():
        was, now = before.get(image, []), after.get(image, [])
        same = set(was) & set(now)
        was = [sample for sample in was if sample not in same]
        now = [sample for sample in now if sample not in same]
        pairs += [(sample, sample) for sample in same]
        pairs += zip(was, now, strict=False)
        counts["removed"] += max(0, len(was) - len(now))
        counts["added"] += max(0, len(now) - len(was))
    for was_sample, is_sample in pairs:
        counts["moved"] += was_sample[:2] != is_sample[:2]
        counts["relabelled"] += was_sample.label != is_sample.label
        counts["regrouped"] += was_sample.group != is_sample.group
    classes = old.task.one_class and new.task.one_class
    return Changes(
        added=counts["added"],
        removed=counts["removed"],
        moved=counts["moved"],
        relabelled=counts["relabelled"],
        regrouped=counts["regrouped"],
        classes=_renamed([(was.label, now.label) for was, now in pairs]) if classes else {},
        domains=_renamed([(was.domain, now.domain) for was, now in pairs]),
    )


def _by_image(table: SampleTable) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample, image in table.samples():
        found[image].append(sample)
    return found


def _renamed(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return names that were replaced everywhere by one name, which was not in use before."""
    names = defaultdict(set)
    for was, now in pairs:
        names[was].add(now)
    return {
        was: next(iter(now))
        for was, now in sorted(names.items())
        if len(now) == 1 and not now & names.keys()
    }
