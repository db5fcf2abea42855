"""`zood demo`: the whole job on data and networks that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zood.cli.app import command
from zood.cli.run import job
from zood.terminal import Terminal


@command("demo", example="zood demo --out demo/")
def demo(
    terminal: Terminal,
    out: Annotated[Path, typer.Option(help="Folder for what the demo makes.")] = Path("zood-demo"),
) -> None:
    """Do the whole job on embedded data: handwritten digits and a zoo of tiny networks."""
    from zood.dataset import ImageDomains
    from zood.demo import write_digits
    from zood.features.disk import explaining_disk_errors
    from zood.features.extract import Settings
    from zood.job.stages import Choices
    from zood.zoo import load_zoo

    _refuse_other_data(out / "data")
    with explaining_disk_errors(out / "data"):
        dataset = ImageDomains(write_digits(out / "data"))
    terminal.say(
        "Scikit-learn's handwritten digits, each in one of six domains, and tiny networks that "
        "have never seen them."
    )
    job(terminal, dataset, load_zoo("demo"), out, Choices(extraction=Settings(device="cpu")))
    terminal.say(
        "On your own data, with a folder photos/<domain>/<class>/<image>:\n"
        "  zood run photos/ --zoo modern --out job/"
    )


def _refuse_other_data(folder: Path) -> None:
    from zood.demo.digits import DOMAINS
    from zood.errors import InputError

    if folder.is_dir():
        foreign = sorted({entry.name for entry in folder.iterdir()} - set(DOMAINS))
        if foreign:
            raise InputError(
                f"{str(folder)!r} holds {foreign[0]!r}, which is not the demo's; "
                "choose another folder with --out"
            )
