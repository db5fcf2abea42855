"""Sequences of samples: `(image, label)`, `(image, label, domain)` or with a group, or dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.text import count, one_line
from oodzoo.data.files import ImageFile, ObjectImage, UnreadableImageError
from oodzoo.data.listing import Listing
from oodzoo.data.sources.base import Options, require_used
from oodzoo.data.sources.columns import find_columns, split_columns
from oodzoo.data.sources.labelled import as_list, list_labelled, row_names
from oodzoo.data.sources.pixels import image_bytes, require_image

_ROLES = ("image", "label", "domain", "group")
_READ_TWICE = 8


def is_item(value: Any) -> bool:
    """Whether an element of a sequence is an image with its label."""
    return isinstance(value, tuple) or (isinstance(value, Mapping) and "bytes" not in value)


def list_items(items: Any, name: str, options: Options) -> Listing:
    """List a sequence of samples that are read when they are needed; its images are numbered."""
    require_used(options, name, ("columns", "labels", "domains", "groups"))
    files, own = read_items(items, name, options, range(len(items)))
    return list_labelled(name, row_names(len(files)), files, own, options)


def split_items(
    items: Sequence[Any], name: str, options: Options
) -> tuple[list[Any], dict[str, Any]]:
    """Return the images of samples in memory, and what the samples say about them by role."""
    opener = _Items(items, name)
    opener.fields = _fields(items[0], name, options)
    columns: dict[str, list[Any]] = {role: [] for role in opener.fields}
    for i in range(len(items)):
        for role, value in opener.parts(i).items():
            columns[role].append(value)
    return columns.pop("image"), opener.by_column(columns)


def read_items(
    items: Any, name: str, options: Options, positions: Sequence[int]
) -> tuple[list[ImageFile], dict[str, Any]]:
    """Return the images at some positions, and what the samples say about them by role.

    Labels come from an attribute `targets` or `labels`, as data sets of torchvision have it, if
    there is one; an attribute `classes` names them. For all that the options, the attributes and
    the form of the first sample leave open, every sample is read once.

    Raises
    ------
    InputError
        If a sample cannot be read, or gives another image each time.
    """
    opener = _Items(items, name)
    own: dict[str, list[Any]] = {}
    if len(positions):
        opener.fields = _fields(opener.item(positions[0]), name, options)
        opener.require_same(positions[:_READ_TWICE])
        labels = _attribute(items, ("targets", "labels"), len(items))
        known = {} if labels is None else {"label": [labels[i] for i in positions]}
        wanted = [role for role in opener.fields if role != "image"]
        wanted = [role for role in wanted if options.given(role) is None and role not in known]
        own = {role: [] for role in wanted} | known
        for i in positions if wanted else ():
            values = opener.parts(i)
            for role in wanted:
                own[role].append(values[role])
        if "label" in own:
            own["label"] = name_classes(own["label"], getattr(items, "classes", None))
    return [ObjectImage(opener, i, f"{name}: {i}") for i in positions], opener.by_column(own)


def name_classes(labels: list[Any], classes: Any) -> list[Any]:
    """Replace numbers of classes by their names, where there are names for all of them."""
    is_list = isinstance(classes, list | tuple) and all(isinstance(c, str) for c in classes)
    if not is_list or not all(type(label) is int and 0 <= label < len(classes) for label in labels):
        return labels
    return [classes[label] for label in labels]


def _attribute(items: Any, names: Sequence[str], n: int) -> list[Any] | None:
    for name in names:
        values = getattr(items, name, None)
        if values is None or isinstance(values, str | Mapping) or not hasattr(values, "__len__"):
            continue
        if len(values) == n and len(getattr(values, "shape", (n,))) == 1:
            return as_list(values)
    return None


def _fields(item: Any, name: str, options: Options) -> dict[str, Any]:
    """Return where the image, and what is known about it, is in each sample."""
    if isinstance(item, Mapping):
        needed = ("image", *options.missing(("label", "domain")))
        optional = tuple(role for role in _ROLES if role not in needed)
        found: dict[str, Any] = {}
        found |= find_columns(list(item), options.columns, needed, name, optional=optional)
        if "label" in found and found["label"] not in item:
            found["label"] = tuple(split_columns(found["label"], list(item)))
        return found
    if options.columns is not None:
        raise InputError(
            f"columns= is not used with {name!r}: its samples have no names for their parts"
        )
    if not isinstance(item, tuple | list):
        return {"image": None}
    if not 1 < len(item) <= len(_ROLES):
        raise InputError(
            f"{name!r}: a sample has {count(len(item), 'part')}; expected (image, label), "
            "(image, label, domain) or (image, label, domain, group)"
        )
    return {role: at for at, role in enumerate(_ROLES[: len(item)])}


class _Items:
    """Opens the images of samples, one at a time: data sets need not be safe for threads."""

    def __init__(self, items: Any, name: str) -> None:
        self._items = items
        self._name = name
        self._lock = Lock()
        self.fields: dict[str, Any] = {}

    def open(self, i: int, /) -> bytes:
        with self._lock:
            item = self._items[i]
        return image_bytes(self._part(item, "image"))

    def item(self, i: int) -> Any:
        try:
            return self._items[i]
        except Exception as error:  # of code that somebody else has written
            raise InputError(
                f"{self._name!r}: sample {i} cannot be read: {type(error).__name__}: "
                f"{one_line(error)}"
            ) from error

    def parts(self, i: int) -> dict[str, Any]:
        item = self.item(i)
        try:
            return {
                role: self._part(item, role) if role == "image" else _plain(self._part(item, role))
                for role in self.fields
            }
        except (KeyError, IndexError, TypeError) as error:
            raise InputError(
                f"{self._name!r}: sample {i} has other parts than the first sample"
            ) from error

    def require_same(self, positions: Sequence[int]) -> None:
        """Reject pixels of another range, and images that are random.

        What cannot be read or decoded here is reported as unreadable later.
        """
        for i in positions:
            try:
                first, second = (self._part(self._items[i], "image") for _ in range(2))
            except Exception:  # of code that somebody else has written
                continue
            try:
                require_image(first)
            except UnreadableImageError as error:
                raise InputError(f"{self._name!r}, sample {i}: {error}") from error
            with suppress(UnreadableImageError, OSError):
                if image_bytes(first) != image_bytes(second):
                    raise InputError(
                        f"{self._name!r}: sample {i} gives another image each time; leave out "
                        "random transforms"
                    )

    def _part(self, item: Any, role: str) -> Any:
        at = self.fields[role]
        if isinstance(at, tuple):  # several labels
            return [_plain(item[each]) for each in at]
        return item if at is None else item[at]

    def by_column(self, own: dict[str, list[Any]]) -> dict[str, Any]:
        """Return labels of several columns by column."""
        names = self.fields.get("label")
        if "label" not in own or not isinstance(names, tuple):
            return {**own}
        rows = own["label"]
        return own | {"label": {name: [row[at] for row in rows] for at, name in enumerate(names)}}


def _plain(value: Any) -> Any:
    """Convert a scalar of NumPy or PyTorch to one of Python, and an array to a list."""
    to_list = getattr(value, "tolist", None)
    return value if to_list is None else to_list()
