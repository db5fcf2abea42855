"""What `oodzoo predict` takes: images, lists of them, texts, features."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.text import count

if TYPE_CHECKING:
    from oodzoo.data.files import ImageFile
    from oodzoo.predictor import Predictor
    from oodzoo.predictor.filing import Line, Sorter

STDIN = "-"


@dataclass(frozen=True)
class Batch:
    """Samples that are predicted together.

    Attributes
    ----------
    samples
        Images or texts in a list, or features by model.
    n : int
        Number of samples.
    names : list of str, optional
        What to call each sample, if it is not an image.
    lines : list, optional
        The list and the number of the line that each sample is from; None for one that was given.
    skipped : dict
        The lines that name no image, by the number of samples before them.
    """

    samples: Any
    n: int
    names: list[str] | None = None
    lines: list[tuple[str, int] | None] | None = None
    skipped: dict[int, list[Skipped]] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        """The local files of images."""
        from oodzoo.data.files import LocalFile

        samples = self.samples if isinstance(self.samples, list) else []
        return [file.path for file in samples if isinstance(file, LocalFile)]


@dataclass(frozen=True)
class Skipped:
    """A line that names no image."""

    list: str
    line: Line
    reason: str


class Inputs:
    """What to predict; what is wrong with it is found before the models are loaded.

    Parameters
    ----------
    given : sequence of str
        Images, folders, URLs, files of texts or features; "-" for a list on stdin.
    lists : sequence of str
        Files or URLs of lists.
    null : bool
        Whether lines end with a NUL.
    text_column : str
    """

    def __init__(
        self, given: Sequence[str], lists: Sequence[str], *, null: bool, text_column: str
    ) -> None:
        from oodzoo.predictor.filing import image_files

        self._given = [each for each in given if each != STDIN]
        self._null, self._column = null, text_column
        streams = [each for each in (*given, *lists) if each == STDIN]
        if not given and not lists:
            raise InputError(
                "nothing to predict; give images or folders, --list FILE, or - for a list on stdin"
            )
        if len(streams) > 1:
            raise InputError("stdin is given twice; it can be read once")
        if null and not streams and not lists:
            raise InputError("--null is for lists: give one with --list, or - for stdin")
        self._are_tables = bool(self._given) and _are_tables(self._given)
        self._files: list[ImageFile] = []
        if not self._are_tables:
            self._files = image_files(self._given)
        self._lists = [*(each for each in lists if each != STDIN), *streams]
        for name in self._lists:
            _require_list(name)

    @property
    def listed_names(self) -> str:
        """The names of the lists."""
        return ", ".join("stdin" if name == STDIN else repr(name) for name in self._lists)

    @property
    def paths(self) -> list[str]:
        """What was given, and the lists, as paths; those of images in folders are in batches."""
        return [*self._given, *(name for name in self._lists if name != STDIN)]

    @property
    def waits_for_terminal(self) -> bool:
        """Whether somebody must type the list."""
        return STDIN in self._lists and sys.stdin.isatty()

    def noun(self, predictor: Predictor) -> str:
        """What a sample is called."""
        if predictor.modality == "text" and not _have_features_only(self._given):
            return "text"
        return "row" if self._are_tables else "image"

    def batches(self, predictor: Predictor, sorter: Sorter | None = None) -> Iterator[Batch]:
        """Yield what to predict; with a sorter, no image that is sorted already."""
        noun = self.noun(predictor)
        if noun == "text":
            yield from self._texts()
            return
        if self._are_tables:
            yield self._features(predictor)
            return
        self._require_images(predictor)
        if sorter is not None:
            for file in self._files:
                sorter.require_outside(file)
        if self._files:
            yield Batch(self._files, len(self._files))
        for name in self._lists:
            with _opened(name) as stream:
                yield from _listed(name, stream, self._null, sorter)

    def _texts(self) -> Iterator[Batch]:
        from oodzoo.predictor.filing import read_lines

        if self._given:
            yield _read_texts(self._given, self._column)
        for name in self._lists:
            if name != STDIN:
                raise InputError(
                    f"the models of the predictor take texts; give {name!r} without --list: a .txt "
                    "file has one text per line"
                )
            for group in read_lines(sys.stdin.buffer, null=self._null):
                texts = [line.text for line in group]
                names = [f"line {line.number}" for line in group]
                yield Batch(texts, len(texts), names)

    def _features(self, predictor: Predictor) -> Batch:

        if self._lists:
            raise InputError("features are given as files alone, without lists of images")
        try:
            return _read_features(predictor, self._given)
        except InputError as error:
            if predictor.features_only or _have_features_only(self._given):
                raise
            raise InputError(
                "the models of the predictor take images, and predict does not read tables of "
                "images; give images or folders of them, or a list of them with --list (there are "
                f"no features to use: {error})"
            ) from error

    def _require_images(self, predictor: Predictor) -> None:

        if predictor.features_only:
            raise InputError(
                "the models of this predictor have features only; give their features as one "
                ".npz, .parquet or .csv file, or as .npy files"
            )


def _listed(name: str, stream: BinaryIO, null: bool, sorter: Sorter | None) -> Iterator[Batch]:
    """The images of a list, in groups."""
    from oodzoo.predictor.filing import BadLine, ImageFinder, read_lines

    shown = "stdin" if name == STDIN else name
    finder = ImageFinder()
    for group in read_lines(stream, null=null):
        files: list[ImageFile] = []
        lines: list[tuple[str, int] | None] = []
        skipped: dict[int, list[Skipped]] = {}
        for found in finder.find(group):
            try:
                if isinstance(found, BadLine):
                    raise InputError(found.reason)
                if sorter is not None:
                    sorter.require_outside(found.file)
            except InputError as error:
                line = Skipped(shown, found.line, str(error))
                skipped.setdefault(len(files), []).append(line)
                continue
            files.append(found.file)
            lines.append((shown, found.line.number))
        if files or skipped:
            yield Batch(files, len(files), lines=lines, skipped=skipped)


def together(batches: Iterator[Batch]) -> Iterator[Batch]:
    """All batches of images or texts as one."""
    found = list(batches)
    if len(found) < 2:
        yield from found
        return
    names = [name for each in found for name in each.names or ()]
    lines = [each.lines or [None] * each.n for each in found]
    skipped: dict[int, list[Skipped]] = {}
    before = 0
    for each in found:
        for at, some in each.skipped.items():
            skipped.setdefault(before + at, []).extend(some)
        before += each.n
    yield Batch(
        [sample for each in found for sample in each.samples],
        before,
        names or None,
        [line for some in lines for line in some],
        skipped,
    )


def _require_list(name: str) -> None:
    """Raise an InputError if there is no such list."""
    from oodzoo.data.listing import explaining_errors

    location = parse_location(name)
    if name == STDIN or isinstance(location, Url):
        return
    if location.is_dir():
        raise InputError(f"--list {name!r} is a folder; give it without --list")
    with explaining_errors(location):
        if not location.exists():
            raise InputError(f"no such file: {name!r}")


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    """Open a list: stdin, a file, or an object at a URL."""
    from oodzoo.core.remote.objects import find_file, read_file
    from oodzoo.data.listing import explaining_errors

    location = parse_location(name)
    if name == STDIN:
        yield sys.stdin.buffer
    elif isinstance(location, Url):
        file = find_file(location)
        if file is None:
            raise InputError(f"no such file: {name!r}")
        yield io.BytesIO(read_file(file))
    else:
        with explaining_errors(location), location.open("rb") as stream:
            yield stream


def _are_tables(given: Sequence[str]) -> bool:
    """Whether files of features or texts are given, instead of images."""
    from oodzoo.extraction.importing import SUFFIXES

    known = (*SUFFIXES, ".txt")
    return all(Path(each).suffix.lower() in known and not Path(each).is_dir() for each in given)


def _have_features_only(given: Sequence[str]) -> bool:
    """Whether files are of a kind that has no texts."""
    return bool(given) and all(Path(each).suffix.lower() in (".npz", ".npy") for each in given)


def _read_texts(given: Sequence[str], column: str) -> Batch:
    """Texts, and a name of each."""
    from oodzoo.data.sources.csv_table import read_texts

    if len(given) > 1 or not _are_tables(given):
        raise InputError(
            f"the models of the predictor take texts; give them as one .csv, .parquet or .txt "
            f"file, got {', '.join(map(repr, given))}"
        )
    texts, names = read_texts(Path(given[0]), column)
    if not texts:
        raise InputError(f"{given[0]!r} has no texts")
    return Batch(texts, len(texts), names)


def _read_features(predictor: Predictor, given: Sequence[str]) -> Batch:
    """Features by model, and a name of each row: its path, or its number."""
    from oodzoo.extraction.importing import read_feature_files
    from oodzoo.predictor.chunks import checked_features

    read = read_feature_files([Path(each) for each in given])
    features: Any = read.features
    if not features:
        raise InputError(f"{read.context!r} has no features")
    if not read.named and len(features) == len(predictor.models) == 1:
        (features,) = features.values()  # the name of the file need not be that of the model
    checked = checked_features(features, predictor.models)
    n = len(next(iter(checked.values())))
    paths = read.columns.get("path") or [f"row-{row:07d}" for row in range(n)]
    if len(paths) != n:
        raise InputError(f"{read.context!r} has {len(paths)} paths, but {count(n, 'row')}")
    if not n:
        raise InputError(f"{read.context!r} has no rows")
    return Batch(checked, n, paths)
