"""`oodzoo demo`: the whole job on data and models that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodzoo.cli.app import command
from oodzoo.cli.run import job
from oodzoo.cli.terminal import Terminal


@command("demo", example="oodzoo demo --out demo/")
def demo(
    terminal: Terminal,
    out: Annotated[Path, typer.Option(help="Folder for what the demo makes.")] = Path(
        "oodzoo-demo"
    ),
) -> None:
    """Do the whole job on embedded data: handwritten digits and a zoo of tiny models."""
    from oodzoo._io import explaining_disk_errors
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.demo import write_digits
    from oodzoo.features.extract import Settings
    from oodzoo.pipeline.stages import RunConfig
    from oodzoo.zoo import load_zoo

    _refuse_other_data(out / "data")
    with explaining_disk_errors(out / "data"):
        dataset = ImageDomains(write_digits(out / "data"))
    terminal.say(
        "Scikit-learn's handwritten digits, each in one of six domains, and tiny models that "
        "have never seen them."
    )
    job(terminal, dataset, load_zoo("demo"), out, RunConfig(extraction=Settings(device="cpu")))
    terminal.say(
        "On your own data, with a folder photos/<domain>/<class>/<image>:\n"
        "  oodzoo run photos/ --zoo modern --out job/"
    )


def _refuse_other_data(folder: Path) -> None:
    from oodzoo.demo.digits import DOMAINS
    from oodzoo.errors import InputError

    if folder.is_dir():
        foreign = sorted({entry.name for entry in folder.iterdir()} - set(DOMAINS))
        if foreign:
            raise InputError(
                f"{str(folder)!r} holds {foreign[0]!r}, which is not the demo's; "
                "choose another folder with --out"
            )
