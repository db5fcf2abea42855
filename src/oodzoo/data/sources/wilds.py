"""Data sets of WILDS: their metadata have the domains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oodzoo.data.listing import Listing
from oodzoo.data.sources.items import name_classes, read_items
from oodzoo.data.sources.labelled import as_list, list_labelled, row_names
from oodzoo.data.sources.metadata import read_metadata
from oodzoo.data.sources.names import find_columns, split_columns, used_columns
from oodzoo.data.sources.options import Options, require_used


def list_wilds(dataset: Any, options: Options) -> Listing:
    """List a data set of WILDS or a subset of one; `columns` names the field of the domain.

    Transforms of a subset are ignored.
    """
    name = type(dataset).__name__
    require_used(options, name, ("columns", "labels", "domains", "groups"))
    fields = list(dataset.metadata_fields)
    needed = options.missing(("domain",))
    optional = ("label", "group") if needed else ("label", "domain", "group")
    columns = find_columns(fields, options.columns, needed, name, optional=optional)
    names = getattr(dataset, "metadata_map", None) or {}
    by_field = {
        field: _named(as_list(dataset.metadata_array[:, at]), names.get(field))
        for at, field in enumerate(fields)
    }
    own: dict[str, Any] = {r: by_field[field] for r, field in columns.items() if r != "label"}
    if "label" in columns:
        own["label"] = {field: by_field[field] for field in split_columns(columns["label"], fields)}
    own.setdefault("label", _named(as_list(dataset.y_array), names.get("y")))
    inputs = _Inputs(dataset)
    files, _ = read_items(inputs, name, Options(), range(len(inputs)))
    listing = list_labelled(name, row_names(len(files)), files, own, options)
    if options.propose:
        listing.metadata = read_metadata(
            fields, (*used_columns(columns, fields), "y"), lambda f: by_field[f]
        )
    return listing


def _named(values: list[Any], names: Any) -> list[Any]:
    return values if names is None else name_classes(values, list(map(str, as_list(names))))


class _Inputs:
    """The images of a data set, without its labels."""

    def __init__(self, dataset: Any) -> None:
        self._positions: Sequence[int] = range(len(dataset))
        if hasattr(dataset, "indices"):  # a subset has no get_input of its own
            self._positions = as_list(dataset.indices)
            dataset = dataset.dataset
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, i: int) -> Any:
        return self._dataset.get_input(self._positions[i])
