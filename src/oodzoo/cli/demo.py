"""`oodzoo demo`: the whole pipeline on data and models that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodzoo._text import typed
from oodzoo.cli.app import RUN_CONTINUES, command
from oodzoo.cli.listening import listeners
from oodzoo.cli.options import LogFileOption
from oodzoo.cli.run_display import require_outside, run_and_show
from oodzoo.cli.terminal import Terminal

_PER_CLASS = 10
"""A third of the digits, so that the demo takes less than a minute."""


@command("demo", example="oodzoo demo --out demo/", interrupted=RUN_CONTINUES)
def demo(
    terminal: Terminal,
    out: Annotated[Path, typer.Option(help="Folder for all results.")] = Path("oodzoo-demo"),
    log_file: LogFileOption = None,
) -> None:
    """Run the whole pipeline on embedded data: handwritten digits and a zoo of tiny models."""
    from oodzoo._io import explaining_disk_errors
    from oodzoo._packages import install_hint
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.demo import write_digits
    from oodzoo.features.config import ExtractionConfig
    from oodzoo.pipeline import RunConfig
    from oodzoo.zoo import load_zoo
    from oodzoo.zoo.sources import extras_of

    require_outside(out, {"--log-file": log_file})
    others = listeners(log_file)
    _require_demo_folder(out / "data")
    with explaining_disk_errors(out / "data"):
        dataset = ImageDomains(write_digits(out / "data", per_class=_PER_CLASS))
    terminal.say(
        "A third of scikit-learn's handwritten digits, rendered in six domains, and tiny models "
        "that were not trained on them."
    )
    # the test bed takes as long as everything else
    config = RunConfig(extraction=ExtractionConfig(device="cpu"))
    needed = install_hint(*extras_of(load_zoo("modern")))
    photos = "oodzoo run photos/ --zoo modern --out job/" + (f"  # {needed}" if needed else "")
    own = [
        ("compare all scores", f"oodzoo testbed {typed(out / 'store')}"),
        ("look at every stage", f"oodzoo demo --out {typed(out)} --verbose"),
        ("your own photos", photos),
        ("", "with photos/<domain>/<class>/<image>"),
    ]
    run_and_show(terminal, dataset, load_zoo("demo"), out, config, others=others, more_steps=own)


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
