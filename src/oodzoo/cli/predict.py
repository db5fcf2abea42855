"""`oodzoo predict`: predictions for images, texts or features."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from oodzoo._text import count
from oodzoo.cli.app import FILES_COMPLETE, command
from oodzoo.cli.options import DeviceOption, PredictorArgument
from oodzoo.cli.predictions import FORMS, Write, fields, writer
from oodzoo.cli.terminal import Terminal

if TYPE_CHECKING:
    from oodzoo.predictor import Predictor


@command(
    "predict", example="oodzoo predict model/ photos/new/ --format csv", interrupted=FILES_COMPLETE
)
def predict(
    terminal: Terminal,
    model: PredictorArgument,
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGE|FOLDER|TEXTS|FEATURES...",
            help="Images, folders of them, or URLs; texts in one .csv, .parquet or .txt file; or "
            "features in one .npz, .parquet or .csv file, or .npy files, as oodzoo import reads "
            "them.",
        ),
    ],
    format: Annotated[  # noqa: A002 - the name of the option
        str | None, typer.Option("--format", help="Output format: table, jsonl or csv.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="File to write; its suffix sets the format.")
    ] = None,
    adapt: Annotated[
        bool,
        typer.Option(
            "--adapt",
            help="Adapt to these images first: at least 20 images of one domain, without labels.",
        ),
    ] = False,
    text_column: Annotated[
        str, typer.Option(help="Column of the texts in a .csv or .parquet file.")
    ] = "text",
    device: DeviceOption = "auto",
    batch_size: Annotated[
        int | None,
        typer.Option(help="Images in one forward pass; chosen for the device if not given."),
    ] = None,
) -> None:
    """Predict images, texts or features, and warn about those unlike the training samples."""
    from oodzoo.errors import InputError
    from oodzoo.predictor import Prediction, load
    from oodzoo.predictor.images import image_files

    chosen = _format(format, output, terminal)
    tables = _are_tables(images)
    files: Any = None if tables else image_files(images)
    predictor = load(model, device=device, batch_size=batch_size)
    noun, paths = "image", None
    if predictor.modality == "text" and not _have_features_only(images):
        noun = "text"
        files, paths = _read_texts(images, text_column)
    elif tables:
        noun = "row"
        try:
            files, paths = _read_features(predictor, images)
        except InputError as error:
            if predictor.features_only or _have_features_only(images):
                raise
            raise InputError(
                "the models of the predictor take images, and predict does not read tables of "
                f"images; give images or folders of them (there are no features to use: {error})"
            ) from error
    elif predictor.features_only:
        raise InputError(
            f"the models of the predictor {model!r} have features only; give their features as one "
            ".npz, .parquet or .csv file, or as .npy files"
        )
    classes = [str(label) for label in predictor.classes_.tolist()]
    kind = predictor.task.kind
    predicted: list[dict[str, Any]] = []  # only for --json
    unreadable: list[dict[str, Any]] = []
    n = far = 0
    with _opened(output) as stream:
        write: Write | None = None
        for found in predictor.stream(files, adapt=adapt):
            if paths is not None:
                found = replace(found, path=paths[found.position])
            if not isinstance(found, Prediction):
                terminal.warn(f"cannot read {found.path!r}: {found.reason}")
                unreadable.append({"path": found.path, "reason": found.reason})
                continue
            n, far = n + 1, far + found.out_of_domain
            if chosen is None:
                predicted.append(fields(found, kind, classes))
                continue
            # the header is not before an error
            write = write or writer(chosen, stream, kind, classes, noun)
            write(found)
            stream.flush()
        if not n:
            first = unreadable[0]
            raise InputError(
                f"none of the {noun}s can be read; first error: {first['path']!r}: "
                f"{first['reason']}"
            )
    if adapt:
        terminal.say(f"adapted to {count(n, noun)}, without labels")
    if far:
        terminal.warn(
            f"{far} of {count(n, noun)} {'is' if far == 1 else 'are'} unlike the training "
            f"{noun}s (distance above 1); their predictions are unreliable"
        )
    terminal.document(
        {"predictions": predicted, "unreadable": unreadable, "adapted": n if adapt else None}
    )


def _are_tables(given: Sequence[str]) -> bool:
    """Whether files of features or texts are given, instead of images."""
    from oodzoo.features.feature_files import SUFFIXES

    known = (*SUFFIXES, ".txt")
    return all(Path(each).suffix.lower() in known and not Path(each).is_dir() for each in given)


def _have_features_only(given: Sequence[str]) -> bool:
    """Whether files are of a kind that has no texts."""
    return all(Path(each).suffix.lower() in (".npz", ".npy") for each in given)


def _read_texts(given: Sequence[str], column: str) -> tuple[list[str], list[str]]:
    """Texts, and a name of each."""
    from oodzoo.data.sources.texts import read_texts
    from oodzoo.errors import InputError

    if len(given) > 1 or not _are_tables(given):
        raise InputError(
            f"the models of the predictor take texts; give them as one .csv, .parquet or .txt "
            f"file, got {', '.join(map(repr, given))}"
        )
    texts, names = read_texts(Path(given[0]), column)
    if not texts:
        raise InputError(f"{given[0]!r} has no texts")
    return texts, names


def _read_features(predictor: Predictor, given: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Features by model, and a name of each row: its path, or its number."""
    from oodzoo.errors import InputError
    from oodzoo.features.feature_files import read_feature_files
    from oodzoo.predictor.arrays import checked_features

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
    return checked, paths


def _format(wanted: str | None, output: Path | None, terminal: Terminal) -> str | None:
    """The format of the output; None for one JSON document."""
    from oodzoo.errors import InputError

    if terminal.json:
        if wanted is not None or output is not None:
            raise InputError("--json prints one JSON document; leave out --format and --output")
        return None
    if output is not None and output.is_dir():
        raise InputError(f"--output {str(output)!r} is a folder; name a file")
    if wanted is not None:
        if wanted not in FORMS:
            raise InputError(f"unknown format {wanted!r}; expected one of {', '.join(FORMS)}")
        return wanted
    if output is None:
        return "table"
    if output.suffix.lower() not in _SUFFIXES:
        raise InputError(
            f"--output {str(output)!r}: the suffix {output.suffix!r} sets no format; "
            f"use {' or '.join(_SUFFIXES)}, or give --format"
        )
    return _SUFFIXES[output.suffix.lower()]


@contextmanager
def _opened(output: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that gets its name when it is complete."""
    from oodzoo._io import explaining_disk_errors
    from oodzoo.predictor.temporaries import replacing_text

    if output is None:
        yield sys.stdout
        return
    if output.exists() and not output.is_file():  # a pipe or a device
        with explaining_disk_errors(output), output.open("w", encoding="utf-8") as stream:
            yield stream
        return
    with replacing_text(output) as stream:
        yield stream


_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl"}
