"""`oodzoo extract`: images to a feature store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodzoo._text import count
from oodzoo.cli.app import FEATURES_KEPT, command
from oodzoo.cli.options import (
    DataArgument,
    DeviceOption,
    DtypeOption,
    LimitOption,
    NewStoreOption,
    PrecisionOption,
    RootOption,
    UnlabelledOption,
    ZooOption,
)
from oodzoo.cli.terminal import Terminal

if TYPE_CHECKING:
    from oodzoo.features.config import Reporter
    from oodzoo.record import ExtractionSummary


@command(
    "extract",
    example="oodzoo extract photos/ --zoo timm/resnet50.a1_in1k --store features/",
    interrupted=FEATURES_KEPT,
)
def extract(
    terminal: Terminal,
    source: DataArgument,
    zoo: ZooOption,
    store: NewStoreOption,
    root: RootOption = None,
    device: DeviceOption = "auto",
    batch_size: Annotated[str, typer.Option(help="Images in one forward pass, or auto.")] = "auto",
    precision: PrecisionOption = "float32",
    dtype: DtypeOption = "float32",
    on_error: Annotated[
        str, typer.Option(help="If an image is unreadable: skip it, or fail.")
    ] = "skip",
    limit: LimitOption = None,
    seed: Annotated[int, typer.Option(help="Random seed of the sample.")] = 0,
    unlabelled: UnlabelledOption = None,
) -> None:
    """Extract features of every image with every model; rerun the command to resume."""
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.features.config import ExtractionConfig
    from oodzoo.features.extract import open_unlabelled, run_extraction

    config = ExtractionConfig(
        device,
        _batch_size(batch_size),
        precision,
        dtype,
        on_error,  # type: ignore[arg-type]
    )
    dataset = ImageDomains(source, root=root)
    if limit is not None:
        dataset = dataset.sample(limit, seed=seed)
    targets = open_unlabelled(unlabelled or [])
    for issue in dataset.leaks(targets):
        terminal.warn(issue.message)
    with extraction_progress(terminal) as reporter:
        opened, done = run_extraction(dataset, zoo, store, config, reporter, unlabelled=targets)
    skipped = {**opened.skipped, **done.unreadable}
    for message in [*skipped_lines(skipped), *done.warnings()]:
        terminal.warn(message)
    if done.shards:
        terminal.say(
            f"{count(done.decoded, 'image')} decoded; {done.running:.1f} s inference, "
            f"{done.waiting:.1f} s waiting for images (bottleneck: {done.bottleneck})"
        )
    terminal.line(
        f"{count(len(opened.models), 'model')}, {count(opened.n_images, 'image')}, "
        f"{count(len(opened.domains), 'domain')} in {store}"
        + (f" ({len(opened.unlabelled)} more without labels)" if opened.unlabelled else "")
    )
    terminal.document(
        {
            "store": str(store),
            "models": list(opened.models),
            "failed": done.failed,
            "outdated": done.outdated,
            "images": opened.n_images,
            "unlabelled": list(opened.unlabelled),
            "skipped": skipped,
            "decoded": done.decoded,
            "shards_written": done.shards,
            "bottleneck": done.bottleneck,
        }
    )


def skipped_lines(images: dict[str, str]) -> list[str]:
    """Format the reasons, by path, for which images were skipped."""
    return [f"skipped {path!r}: {reason}" for path, reason in images.items()]


def show_summary(terminal: Terminal, done: ExtractionSummary) -> None:
    """Warn of images and models that were skipped."""
    failed = [f"model {name!r} is left out: {reason}" for name, reason in done.failed.items()]
    for message in [*skipped_lines(done.skipped), *failed]:
        terminal.warn(message)


@contextmanager
def extraction_progress(terminal: Terminal) -> Iterator[Reporter]:
    """Show two bars on stderr: all models together, and the current one."""
    if not terminal.shows_progress:
        yield _Lines(terminal)
        return
    with terminal.bars("{task.fields[speed]}") as bars:
        yield _Bars(terminal, bars)


class _Lines:
    """Reports the start and every failed model as a line."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def start(self, models: Sequence[str], n_images: int) -> None:
        self._terminal.say(f"{count(len(models), 'model')}, {count(n_images, 'image')}")

    def say(self, message: str) -> None:
        self._terminal.say(message)

    def advance(self, model: str, n_images: int, seconds: float) -> None:
        pass

    def failed(self, model: str, reason: str) -> None:
        self._terminal.warn(f"model {model!r} failed, skipped: {reason}")


class _Bars(_Lines):
    """Reports progress as bars."""

    def __init__(self, terminal: Terminal, bars: Any) -> None:
        super().__init__(terminal)
        self._bars = bars
        self._all = bars.add_task("all models", total=None, speed="")
        self._one = bars.add_task("", total=None, speed="", visible=False)
        self._done: Counter[str] = Counter()
        self._computed: Counter[str] = Counter()
        self._seconds: dict[str, float] = defaultdict(float)

    def start(self, models: Sequence[str], n_images: int) -> None:
        super().start(models, n_images)
        self._n_images = n_images
        self._bars.update(self._all, total=n_images * len(models))

    def advance(self, model: str, n_images: int, seconds: float) -> None:
        self._done[model] += n_images
        self._bars.update(self._all, advance=n_images)
        if seconds:
            self._computed[model] += n_images
            self._seconds[model] += seconds
            speed = self._computed.total() / sum(self._seconds.values())
            self._bars.update(self._all, speed=f"{speed:,.0f} images/s")
            self._bars.update(
                self._one,
                description=model,
                completed=self._done[model],
                total=self._n_images,
                speed=f"{self._computed[model] / self._seconds[model]:,.0f} images/s",
                visible=True,
            )

    def failed(self, model: str, reason: str) -> None:
        self._bars.update(self._all, advance=self._n_images - self._done[model])
        super().failed(model, reason)


def _batch_size(text: str) -> int | None:
    from oodzoo.errors import InputError

    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"--batch-size must be a number or auto, got {text!r}")
    return int(text)
