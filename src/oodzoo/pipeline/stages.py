"""The stages of the whole job: extract, rank, select, evaluate, fit, judge the scores, report."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from oodzoo import scores
from oodzoo._io import locked
from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import InputError
from oodzoo.evaluation import evaluate
from oodzoo.evaluation.choice import AUTO, best_number
from oodzoo.evaluation.protocol import main_number, numbers_of, require_seed, trials_of
from oodzoo.events import Progress
from oodzoo.features.extract import Reporter, Settings, run_extraction
from oodzoo.features.source import StoreSource
from oodzoo.features.store import FeatureStore
from oodzoo.predictor import fit
from oodzoo.ranking.ranker import rank, require_score
from oodzoo.record import Document, Record
from oodzoo.report import write_report
from oodzoo.selection.select import select_features
from oodzoo.testbed import run as run_testbed
from oodzoo.testbed import to_dict as testbed_document
from oodzoo.zoo import ModelSpec, load_zoo

Done = tuple[Document, bool]
"""The document of a stage, and whether it was skipped."""


@dataclass(frozen=True)
class RunConfig:
    """What a person can choose about the job; see the stages for what it means."""

    top_k: int | Sequence[int] | Literal["auto"] = 3
    score: str = "zood"
    protocol: Literal["fast", "domainbed"] = "fast"
    baselines: bool = True
    seed: int = 0
    extraction: Settings = dataclasses.field(default_factory=Settings)

    def __post_init__(self) -> None:
        """Refuse now what a later stage would refuse after hours."""
        numbers_of(self.top_k)
        trials_of(self.protocol, None)
        require_score(self.score)
        require_seed(self.seed)


class Job:
    """The whole job in a folder: `store/`, `model/`, `report.html` and `run.json`.

    Each method is a stage and is skipped when its inputs have not changed since an earlier run in
    the same folder. They are called in the order in which they stand here.

    Parameters
    ----------
    dataset : ImageDomains
    zoo : sequence of ModelSpec
    folder : path
    choices : Choices
    command : str
        For the record.
    """

    def __init__(
        self,
        dataset: ImageDomains,
        zoo: Sequence[ModelSpec],
        folder: Path,
        config: RunConfig,
        command: str,
    ) -> None:
        self.dataset = dataset
        self.zoo = list(zoo)
        self.folder = folder
        self.config = config
        settings = {
            "data": str(dataset.source),
            "images": len(dataset),
            "zoo": [spec.name for spec in self.zoo],
            **dataclasses.asdict(config),
        }
        self.record = Record(folder, command, settings)

    @property
    def store(self) -> FeatureStore:
        """The store, of its models those of this zoo that did not fail in this run."""
        store = FeatureStore(self.folder / "store")
        failed = self.record.document.get("extraction", {}).get("failed", {})
        mine = {spec.name for spec in self.zoo} - set(failed)
        store.models = tuple(name for name in store.models if name in mine)
        return store

    @property
    def _content(self) -> list[Any]:
        """What decides about every stage after the first."""
        return [self.store.fingerprint, list(self.store.models)]

    @property
    def _device(self) -> str | None:
        """Where to compute with moments: NumPy unless a GPU was asked for by name."""
        device = self.config.extraction.device
        return device if device.startswith("cuda") else None

    def extract(self, reporter: Reporter | None = None) -> Done:
        """From images to features in `store/`."""
        settings = self.config.extraction

        def work() -> Document:
            done = run_extraction(self.dataset, self.zoo, self.folder / "store", settings, reporter)
            store = self.store
            return {
                "models": list(store.models),
                "failed": done.failed,
                "outdated": done.outdated,
                "images": store.n_images,
                "skipped": store.skipped,
                "store": store.fingerprint,
                "limit": done.limit,
            }

        def holds(document: Document) -> bool:
            try:
                same = self.store.fingerprint == document["store"] and not document["failed"]
                return same and self.store.is_there()
            except InputError:
                return False

        inputs = [
            self.dataset.fingerprint,
            [_identity(spec) for spec in self.zoo],
            {key: getattr(settings, key) for key in ("precision", "dtype", "on_error")},
        ]
        document, skipped = self.record.stage("extraction", inputs, work, holds=holds)
        self.record.note("data", self._data())
        return document, skipped

    def rank(self, progress: Progress | None = None) -> Done:
        """The models, the best first."""
        score = self.config.score

        def work() -> Document:
            return rank(self.store, score=score, device=self._device, progress=progress).to_dict()

        return self.record.stage("ranking", [self._content, score], work)

    def select(self) -> Done:
        """The informative features of the best models, by all domains."""
        models = self._best()

        def work() -> Document:
            source = StoreSource(self.store, models)
            return select_features(source, models, device=self._device).to_dict()

        inputs = [self._content, models]
        return self.record.stage("selection", inputs, work)

    @property
    def can_evaluate(self) -> bool:
        """Whether there is a domain to test on beside two to rank by."""
        return len(StoreSource(self.store).domains) > 2

    def evaluate(self, progress: Callable[..., None] | None = None) -> Done:
        """What single models, ensembles and selections reach on a domain that was left out."""
        config = self.config

        def work() -> Document:
            return evaluate(
                self.store,
                top_k=config.top_k,
                protocol=config.protocol,
                score=config.score,
                baselines=config.baselines,
                seed=config.seed,
                device=self._device,
                progress=progress,
            ).to_dict()

        inputs = [
            self._content,
            config.top_k,
            config.protocol,
            config.score,
            config.baselines,
            config.seed,
        ]
        return self.record.stage("evaluation", inputs, work)

    def fit(self) -> Done:
        """A predictor of all domains, in `model/`."""
        models = self._best()
        where = self.folder / "model"

        def work() -> Document:
            predictor = fit(self.store, models=models, zoo=self.zoo, device=self._device)
            ranked = self.record.document["ranking"]["ranking"]
            scores_of = {row["model"]: row["score"] for row in ranked}
            predictor.origin = dataclasses.replace(predictor.origin, scores=scores_of)
            for stale in self.folder.glob(f".tmp-{where.name}-*"):  # of a run that was killed
                shutil.rmtree(stale, ignore_errors=True)
            predictor.save(where)
            return {"folder": where.name, "models": list(models), "digest": _tree(where)}

        def holds(document: Document) -> bool:
            return where.is_dir() and _tree(where) == document["digest"]

        inputs = [self._content, models]
        return self.record.stage("predictor", inputs, work, holds=holds)

    @property
    def can_judge(self) -> bool:
        """Whether there are models enough to speak of their order."""
        return len(self.store.models) > 2

    def judge(self, progress: Callable[..., None] | None = None) -> Done:
        """Every score against the accuracy of linear probes."""

        def work() -> Document:
            bed = run_testbed(
                self.store,
                name=self.dataset.source.resolve().stem,
                seed=self.config.seed,
                progress=progress,
            )
            return testbed_document(bed)

        inputs = [self._content, list(scores.names()), self.config.seed]
        return self.record.stage("testbed", inputs, work)

    def report(self) -> Path:
        """The page of the run, `report.html`."""
        self.record.finish()
        return write_report(self.folder)

    def _best(self) -> list[str]:
        """The models to put side by side in the end, chosen by all domains."""
        order = [row["model"] for row in self.record.document["ranking"]["ranking"]]
        numbers = numbers_of(self.config.top_k)
        if numbers is not None:
            return order[: main_number(numbers)]
        possible = [k for k in AUTO if k <= len(order)]
        return order[: best_number(StoreSource(self.store), order, possible)]

    def _data(self) -> Document:
        counts = self.dataset.counts()
        return {
            "path": str(self.dataset.root.resolve()),
            "fingerprint": self.dataset.fingerprint,
            "images": len(self.dataset),
            "classes": list(self.dataset.classes),
            "domains": {
                domain: {"images": sum(row.values()), "classes": row}
                for domain, row in counts.items()
            },
            "skipped": len(self.store.skipped),
        }


def _identity(spec: ModelSpec) -> list[Any]:
    """What decides about a model's features: what is said of it, and its file's content."""
    said = {key: value for key, value in dataclasses.asdict(spec).items() if key != "folder"}
    digest = None
    if spec.kind == "onnx" and spec.file.is_file():
        with spec.file.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    return [said, digest]


def _tree(folder: Path) -> str:
    """Identifies the content of a folder."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            total.update(f"{path.relative_to(folder).as_posix()}\n".encode())
            with path.open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def run(
    data: ImageDomains | str | Path,
    zoo: str | Path | Sequence[ModelSpec],
    out: str | Path,
    *,
    config: RunConfig | None = None,
) -> Document:
    """Do the whole job in a folder: extract, rank, select, evaluate, fit, judge scores, report.

    Parameters
    ----------
    data : ImageDomains or path
        What :class:`oodzoo.ImageDomains` takes. With two domains there is nothing to evaluate on.
    zoo : str, path or sequence of ModelSpec
        What :func:`oodzoo.load_zoo` takes or gives.
    out : path
        The folder; a run that was made there before is gone on with.
    choices : Choices, optional

    Returns
    -------
    dict
        The record of the run, as in `run.json`.
    """
    dataset = data if isinstance(data, ImageDomains) else ImageDomains(data)
    specs = load_zoo(zoo) if isinstance(zoo, str | Path) else list(zoo)
    folder = Path(out)
    with locked(folder):
        job = Job(dataset, specs, folder, config or RunConfig(), f"oodzoo.run(..., {str(out)!r})")
        job.extract()
        job.rank()
        job.select()
        if job.can_evaluate:
            job.evaluate()
        job.fit()
        if job.config.baselines and job.can_judge:
            job.judge()
        job.report()
    return job.record.document
