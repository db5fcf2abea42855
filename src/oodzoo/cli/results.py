"""Results as files: `--out FILE.json`, which `fit --from` takes, and `--plot FILE.svg`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import url_of_path

if TYPE_CHECKING:
    from oodzoo.report.figures import Plot
    from oodzoo.store.feature_store import FeatureStore


def _json_file(path: Path | None) -> Path | None:
    """Reject a file that cannot be written before anything is computed."""
    if path is None or url_of_path(str(path)) is not None:  # a URL is refused with all others
        return path
    if path.suffix.lower() != ".json":
        raise typer.BadParameter(f"{str(path)!r} must end in .json")
    if path.is_dir():
        raise typer.BadParameter(f"{str(path)!r} is a folder")
    if not (nearest := next(each for each in path.parents if each.exists())).is_dir():
        raise typer.BadParameter(f"{str(path)!r} is in no folder: {str(nearest)!r} is a file")
    from oodzoo.store.format import MANIFEST

    if any((folder / MANIFEST).is_file() for folder in path.resolve().parents):
        raise typer.BadParameter(f"{str(path)!r} is inside a feature store; choose another place")
    return path


OutFileOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE.json",
        help="Also write the result to this file, as --json prints it.",
        callback=_json_file,
    ),
]


def show_document(
    terminal: Terminal,
    document: Mapping[str, Any],
    store: FeatureStore,
    out: Path | None,
    options: Mapping[str, Any],
) -> None:
    """Print a result as JSON, if asked for, and write it to a file, with what it was made of.

    Parameters
    ----------
    terminal : Terminal
    document : dict
    store : FeatureStore
    out : path, optional
    options : dict
        Options that :func:`read_decision` needs.
    """
    from oodzoo.core.io import explaining_disk_errors, write_json

    made_of = {"name": store.name, "data": store.data_fingerprint}
    whole = {**document, "store": made_of, "options": dict(options)}
    if out is not None:
        with explaining_disk_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            write_json(out, whole)
        terminal.say(f"Result: {out}")
    terminal.document(whole)


def read_decision(path: Path, store: FeatureStore) -> dict[str, Any]:
    """Read what was decided about the models of a store, as options of :func:`oodzoo.fit`."""
    from oodzoo.combining.evaluation.result import Recommended, require_no_oracle
    from oodzoo.combining.selection import SelectionSummary
    from oodzoo.core.io import read_json, structured

    what = f"the result {str(path)!r}"
    document: dict[str, Any] = {}
    try:
        document = read_json(path, "the result")
    except InputError:  # another kind of file is not a damaged result
        if path.suffix.lower() == ".json" or not path.is_file():
            raise
    kind = _kind(document)
    if kind not in ("evaluation", "selection"):
        raise InputError(
            f"{str(path)!r} is {kind}; --from takes what oodzoo evaluate or oodzoo select has "
            "written with --out"
        )
    made_of, options = document.get("store"), document.get("options")
    if not isinstance(made_of, dict) or not isinstance(options, dict):
        raise InputError(
            f"{str(path)!r} does not say which data it is of; write it again with --out"
        )
    if made_of.get("data") != store.data_fingerprint:
        raise InputError(
            f"{str(path)!r} is of other images or labels ({made_of.get('name')!r}) than the store "
            f"{store.location!r} has now; run oodzoo "
            f"{'evaluate' if kind == 'evaluation' else 'select'} on this store"
        )
    if kind == "selection":
        return {"selection": structured(document, SelectionSummary, what), **_of(options, "score")}
    require_no_oracle(document.get("rule"))
    return {
        "recommended": structured(document["recommended"], Recommended, what),
        **_of(options, "score", "models", "max_models", "max_ms"),
    }


def _kind(document: Mapping[str, Any]) -> str:
    """What a document is."""
    if {"stages", "settings"} <= document.keys():
        return "the record of a run, whose predictor is in its folder model"
    if {"recommended", "single", "pool"} <= document.keys():
        return "evaluation"
    if {"per_model", "n_selected"} <= document.keys():
        return "selection"
    return "a ranking" if "ranking" in document else "no result of oodzoo"


def _of(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}


# --- the option --plot ----------------------------------------------------------------------------


def _known_format(path: Path | None) -> Path | None:
    """Reject an unknown file format before anything is computed."""
    if path is not None:
        from oodzoo.report.figures import check_suffix

        try:
            check_suffix(path)
        except InputError as error:
            raise typer.BadParameter(str(error)) from None
    return path


PlotOption = Annotated[
    Path | None,
    typer.Option(help="Also write the result as a figure: an .svg file.", callback=_known_format),
]


class Plotted(Protocol):
    def plot(self) -> Plot: ...


def save_plot(terminal: Terminal, result: Plotted, path: Path | None) -> None:
    """Write a result as a figure, if a path is given."""
    if path is not None:
        result.plot().save(path)
        terminal.say(f"figure written to {path}")
