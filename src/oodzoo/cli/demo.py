"""`oodzoo demo`: the whole pipeline on data and models that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodzoo.cli.app import FEATURES_KEPT, command
from oodzoo.cli.run_display import run_and_show
from oodzoo.cli.terminal import Terminal


@command("demo", example="oodzoo demo --out demo/", interrupted=FEATURES_KEPT)
def demo(
    terminal: Terminal,
    out: Annotated[Path, typer.Option(help="Folder for all results.")] = Path("oodzoo-demo"),
) -> None:
    """Run the whole pipeline on embedded data: handwritten digits and a zoo of tiny models."""
    from oodzoo._io import explaining_disk_errors
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.demo import write_digits
    from oodzoo.features.config import ExtractionConfig
    from oodzoo.pipeline import RunConfig
    from oodzoo.zoo import load_zoo

    _require_demo_folder(out / "data")
    with explaining_disk_errors(out / "data"):
        dataset = ImageDomains(write_digits(out / "data"))
    terminal.say(
        "Scikit-learn's handwritten digits, rendered in six domains, and tiny models that were "
        "not trained on them."
    )
    config = RunConfig(extraction=ExtractionConfig(device="cpu"))
    run_and_show(terminal, dataset, load_zoo("demo"), out, config)
    terminal.say("On your own data, with a folder photos/<domain>/<class>/<image>:")
    terminal.say("  oodzoo run photos/ --zoo modern --out job/")


def _require_demo_folder(folder: Path) -> None:
    """Reject a folder that contains anything but the data of the demo."""
    from oodzoo.demo.digits import DOMAINS
    from oodzoo.errors import InputError

    if folder.is_dir():
        foreign = sorted({entry.name for entry in folder.iterdir()} - set(DOMAINS))
        if foreign:
            raise InputError(
                f"{str(folder)!r} contains {foreign[0]!r}, which was not written by the demo; "
                "choose another folder with --out"
            )
