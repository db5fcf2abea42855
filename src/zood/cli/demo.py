"""`zood demo`: the whole job on data and networks that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zood.cli.app import command
from zood.cli.data import show_counts
from zood.cli.extract import extraction_progress, report_extraction
from zood.cli.rank import ranked, ranking_document, show_ranking
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
    from zood.features.extract import Settings, run_extraction
    from zood.features.store import FeatureStore
    from zood.zoo import load_zoo

    terminal.say("1. Data: scikit-learn's handwritten digits, each in one of six domains.")
    _refuse_other_data(out / "data")
    with explaining_disk_errors(out / "data"):
        dataset = ImageDomains(write_digits(out / "data"))
    show_counts(terminal, dataset)

    zoo = load_zoo("demo")
    terminal.say(f"2. Features: {len(zoo)} tiny networks that have never seen these digits.")
    with extraction_progress(terminal) as reporter:
        done = run_extraction(dataset, zoo, out / "store", Settings(device="cpu"), reporter)
    store = FeatureStore(out / "store")
    report_extraction(terminal, done, store.skipped)

    terminal.say("3. Ranking: each domain is left out in turn; nothing is fine-tuned.")
    ranking = ranked(terminal, out / "store")
    show_ranking(terminal, ranking)
    best = ranking.rows[0]
    terminal.say(
        f"{best.model} comes first: {store.model(best.model).pretraining}. On a domain it has not "
        f"seen, expect {best.expected_accuracy:.0f} % from a linear model on its features."
    )
    terminal.say(
        "On your own data, with a folder photos/<domain>/<class>/<image>:\n"
        "  zood data photos/\n"
        "  zood extract photos/ --zoo modern --store features/\n"
        "  zood rank features/"
    )
    terminal.document({"store": str(out / "store"), **ranking_document(ranking)})


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
