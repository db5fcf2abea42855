"""Data sets of the Hugging Face Hub, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from oodzoo._text import did_you_mean, one_line
from oodzoo.data.listing import Listing
from oodzoo.data.sources.huggingface import list_datasets, using_datasets
from oodzoo.data.sources.options import Options
from oodzoo.errors import InputError
from oodzoo.remote.location import Url

_FORM = "hf://datasets/OWNER/NAME[@REVISION][?config=CONFIG&split=SPLIT]"


class HubName(NamedTuple):
    """What a URL of the Hub names."""

    repository: str
    revision: str | None = None
    config: str | None = None
    split: str | None = None


def parse_hub_url(url: Url) -> HubName:
    """Read `hf://datasets/OWNER/NAME@REVISION?config=CONFIG&split=SPLIT`.

    Raises
    ------
    InputError
        If it has another form.

    Examples
    --------
    >>> parse_hub_url(Url("hf://datasets/ada/photos@v1?split=train"))
    HubName(repository='ada/photos', revision='v1', config=None, split='train')
    """
    path, _, query = str(url).removeprefix("hf://datasets/").partition("?")
    repository, _, revision = path.rstrip("/").partition("@")
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise InputError(f"{str(url)!r} does not name a data set; expected {_FORM}")
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if key not in ("config", "split") or not value:
            advice = "" if equals else "; expected NAME=VALUE"
            near = did_you_mean(key, ("config", "split"))
            raise InputError(
                f"unknown option {part!r} in {str(url)!r}; {near or f'expected {_FORM}'}{advice}"
            )
        options[key] = unquote(value)
    return HubName(repository, unquote(revision) or None, **options)


def list_named(url: Url, options: Options) -> Listing:
    """Download a data set of the Hub, or find it in the cache of `datasets`, and list it.

    No code of a data set is run: those with a loading script are refused.
    """
    name = parse_hub_url(url)
    with using_datasets(f"reading {str(url)!r}") as datasets:
        if int(datasets.__version__.partition(".")[0]) < 4:
            raise InputError(
                f"datasets {datasets.__version__} may run the script of a data set; install "
                "datasets>=4"
            )
        if Path(name.repository).exists():
            raise InputError(
                f"datasets would read the local folder {name.repository!r} instead of "
                f"{str(url)!r}; work in another folder"
            )
        try:
            loaded = datasets.load_dataset(
                name.repository, name.config, split=name.split, revision=name.revision
            )
        except Exception as error:
            raise InputError(_explain(error, name)) from error
    return list_datasets(loaded, options, name=str(url))


def _explain(error: Any, name: HubName) -> str:
    """Say in one line why a data set cannot be loaded, and what to do."""
    text, what = one_line(error).rstrip("."), f"the data set {name.repository!r}"
    if "scripts are no longer supported" in text:
        return (
            f"{what} needs its own script, which would run code of others; refused. Try its copy "
            f"without a script: hf://datasets/{name.repository}@refs%2Fconvert%2Fparquet"
        )
    if "gated" in text.lower():
        return (
            f"{what} is gated; accept its conditions on its page of the Hugging Face Hub, and log "
            "in with: hf auth login"
        )
    if "Revision" in text and "doesn't exist" in text:
        return f"{what} has no revision {name.revision!r}"
    if type(error).__name__ == "DatasetNotFoundError":
        return (
            f"{what} does not exist on the Hugging Face Hub, or is private; check its name, or "
            "log in with: hf auth login"
        )
    if isinstance(error, ConnectionError):
        return (
            f"cannot reach the Hugging Face Hub for {what}: {text}; connect, or give a folder "
            "that save_to_disk has written"
        )
    advice = ""
    if "Config name is missing" in text or "BuilderConfig" in text:
        advice = "; choose one with ?config=NAME"
    elif "Unknown split" in text:
        advice = "; choose one with ?split=NAME"
    return f"cannot load {what}: {text}{advice}"
