"""Whole runs: real images, real models, every stage, and what is computed again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import linked
from tests.events.heard import Heard
from tests.fixtures import draw_digits

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.core.io import locked
from oodzoo.data.dataset import ImageDomains
from oodzoo.extraction.outcome import ExtractionConfig
from oodzoo.pipeline import RunConfig
from oodzoo.report.record import Example, Run, read_run
from oodzoo.store.format import model_folder
from oodzoo.store.sync import sync_store
from oodzoo.zoo import ModelSpec, load_zoo

NAMES = ("separable_glyphs_colour", "separable_shapes", "mlp_glyphs_augmented", "mixer_random")
STAGES = ["extraction", "leaks", "ranking", "selection", "evaluation", "predictor", "testbed"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> ImageDomains:
    domains = ("chalk", "paper", "pencil")
    return ImageDomains(draw_digits(tmp_path_factory.mktemp("digits"), 10, domains=domains))


@pytest.fixture(scope="module")
def zoo() -> list[ModelSpec]:
    known = {spec.name: spec for spec in load_zoo("demo")}
    return [known[name] for name in NAMES]


def config(**changed: Any) -> RunConfig:
    options: dict[str, Any] = {"top_k": 2, "testbed": True, "baselines": False} | changed
    return RunConfig(extraction=ExtractionConfig(device="cpu"), **options)


class Watching(Heard):
    """Keeps the page as it is at the start of each stage."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.pages: dict[str, str] = {}

    def start(self, stage: str, **facts: Any) -> None:
        super().start(stage, **facts)
        page = self.folder / "report.html"
        self.pages[stage] = page.read_text() if page.exists() else ""


@pytest.fixture(scope="module")
def heard(
    digits: ImageDomains, zoo: list[ModelSpec], tmp_path_factory: pytest.TempPathFactory
) -> Watching:
    """The events of the first run."""
    found = Watching(tmp_path_factory.mktemp("job") / "run")
    oodzoo.run(digits, zoo[:3], found.folder, config=config(), listener=found)
    return found


@pytest.fixture(scope="module")
def done(heard: Watching) -> Path:
    """The folder of the first run. Tests must not change it."""
    return heard.folder


@pytest.fixture
def job(done: Path, tmp_path: Path) -> Path:
    return linked(done, tmp_path / "run")


def reused(folder: Path) -> dict[str, bool]:
    return {stage.name: stage.reused for stage in read_run(folder).stages}


def test_every_stage_is_recorded(done: Path, digits: ImageDomains) -> None:
    run = read_run(done)
    assert reused(done) == dict.fromkeys(STAGES, False)
    assert run.ranking
    assert run.selection
    assert run.evaluation
    assert run.predictor
    assert run.data
    assert run.leaks
    assert run.testbed
    assert [row.rank for row in run.ranking.rows] == [1, 2, 3]
    assert set(run.selection.models) == {row.model for row in run.ranking.rows}
    recommended = run.evaluation.recommended
    assert run.predictor.choice == recommended.choice
    assert set(run.predictor.models) == set(recommended.models)
    assert run.to_dict()["recommended"] == recommended.to_dict()
    for row in run.evaluation.rows.values():
        by_domain = row.measure("accuracy")
        assert set(by_domain) == {"chalk", "paper", "pencil"}
        assert row.average == pytest.approx(np.mean(list(by_domain.values())))
    assert all(0 < ratio <= 1 for ratio in run.evaluation.feature_ratio.values())
    assert (run.data.images, run.leaks.images) == (90, 90)
    assert set(run.testbed.accuracy) == set(NAMES[:3])
    # examples are images of the run, one of each class
    used = {(s.domain, Example(s.path, s.label)) for s in digits}
    named = {(domain, image) for domain, some in run.data.examples.items() for image in some}
    assert named <= used
    for some in run.data.examples.values():
        assert len({image.label for image in some}) == 3


def test_the_events_of_a_run(done: Path, heard: Watching) -> None:
    inner = [pair for stage in STAGES for pair in ((stage, "start"), (stage, "done"))]
    assert heard.outline() == [("run", "start"), *inner, ("run", "done")]
    starts = dict(heard.of("start"))
    assert starts["run"]["zoo"] == list(NAMES[:3])
    assert all(starts[stage]["images"] == 90 for stage in STAGES)
    assert [(stage, facts["path"]) for stage, facts in heard.of("artifact")] == [
        ("extraction", done / "store"),
        ("predictor", done / "model"),
        ("run", done / "run.json"),
        ("run", done / "report.html"),
    ]
    run = read_run(done)
    for stage in ("ranking", "evaluation", "testbed"):
        assert heard.metrics(stage) == getattr(run, stage).metrics
    ends = dict(heard.of("end"))
    assert [ends[stage]["seconds"] for stage in STAGES] == [s.seconds for s in run.stages]
    assert ends["run"]["result"].to_dict() == run.to_dict()
    # the page is there from the ranking on
    assert not heard.pages["ranking"]
    assert "The run has not finished" in heard.pages["evaluation"]
    page = (done / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "The run has not finished" not in page


def test_the_same_again_does_nothing(
    job: Path, digits: ImageDomains, zoo: list[ModelSpec], heard: Watching
) -> None:
    before, again = read_run(job).to_dict(), Heard()
    (job / "model" / "README.md").unlink()
    (job / "model" / "README.md").write_text("an edited model card")
    oodzoo.run(digits, zoo[:3], job, config=config(), listener=again)
    after = read_run(job).to_dict()
    assert reused(job) == dict.fromkeys(STAGES, True)
    assert {name: after[name] for name in STAGES} == {name: before[name] for name in STAGES}
    assert [s["seconds"] for s in after["stages"]] == [s["seconds"] for s in before["stages"]]
    inner = [pair for stage in STAGES for pair in ((stage, "start"), (stage, "reused"))]
    assert again.outline() == [("run", "start"), *inner, ("run", "done")]
    assert again.metrics("evaluation") == heard.metrics("evaluation")
    assert len(again.of("artifact")) == 4


class Interrupting(Heard):
    """Stops a run in its evaluation."""

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        if stage == "evaluation":
            raise KeyboardInterrupt


def test_a_run_that_fails_says_where_and_why(
    job: Path, digits: ImageDomains, zoo: list[ModelSpec]
) -> None:
    heard = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        oodzoo.run(digits, zoo[:3], job, config=config(seed=1), listener=heard)
    assert heard.outline()[-3:] == [
        ("evaluation", "start"),
        ("evaluation", "failed"),
        ("run", "failed"),
    ]
    assert heard.of("end")[-1][1]["error"] == "KeyboardInterrupt"
    oodzoo.run(digits, zoo[:3], job, config=config(seed=1))
    assert reused(job)["ranking"]
    assert not reused(job)["evaluation"]


def test_constraints_hold_in_every_stage(
    job: Path, digits: ImageDomains, zoo: list[ModelSpec]
) -> None:
    store = oodzoo.FeatureStore(job / "store")
    times = {name: store.milliseconds_per_image(name) or 0.0 for name in store.models}
    sizes = {name: store.model(name).parameters or 0 for name in store.models}
    fast = sorted(times, key=lambda name: times[name])[:-1]
    left = min(fast, key=lambda name: sizes[name])
    limits: dict[str, Any] = {
        "max_ms": times[fast[-1]],
        "max_parameters": max(sizes[name] for name in fast) - 1,
    }
    small = {name for name in sizes if sizes[name] <= limits["max_parameters"]}
    cpu = ExtractionConfig(device="cpu")
    given = RunConfig(top_k=1, baselines=False, extraction=cpu, **limits)
    oodzoo.run(digits, zoo[:3], job, config=given)
    run = read_run(job)
    assert run.ranking is not None
    assert run.selection is not None
    assert run.evaluation is not None
    assert [row.model for row in run.ranking.rows] == list(run.selection.models) == [left]
    assert set(run.ranking.left_out) == small - {left}
    assert run.evaluation.recommended.models == (left,)
    assert [model.name for model in oodzoo.load(job / "model").models] == [left]
    assert run.settings["max_parameters"] == limits["max_parameters"]


def test_another_model_is_added(job: Path, digits: ImageDomains, zoo: list[ModelSpec]) -> None:
    shards = {p: p.stat().st_mtime_ns for p in (job / "store" / NAMES[0]).rglob("*.npy")}
    oodzoo.run(digits, zoo, job, config=config())
    assert not any(reused(job)[name] for name in ("extraction", "ranking", "testbed"))
    ranking = read_run(job).ranking
    assert ranking is not None
    assert len(ranking) == 4
    assert {path: path.stat().st_mtime_ns for path in shards} == shards


def test_what_was_lost_is_made_again(job: Path, digits: ImageDomains, zoo: list[ModelSpec]) -> None:
    for lost, made in (("model", "predictor"), ("store", "extraction"), ("shard", "extraction")):
        if lost == "shard":
            next(model_folder(job / "store", NAMES[1]).glob("*.features.*.npy")).unlink()
        else:
            shutil.rmtree(job / lost)
        oodzoo.run(digits, zoo[:3], job, config=config())
        assert not reused(job)[made]
        assert reused(job)["evaluation"]
        assert oodzoo.FeatureStore(job / "store").is_complete()
        assert oodzoo.load(job / "model").classes_.tolist() == list(digits.classes)


def test_two_runs_at_once(job: Path, digits: ImageDomains, zoo: list[ModelSpec]) -> None:
    with locked(job), pytest.raises(InputError, match="being written by another process"):
        oodzoo.run(digits, zoo, job)


def test_a_domain_that_cannot_be_read_is_left_out(
    tmp_path: Path, digits: ImageDomains, zoo: list[ModelSpec]
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(Path(digits.name), folder, ignore=shutil.ignore_patterns("pencil"))
    for label in "01":
        (folder / "broken" / label).mkdir(parents=True)
        (folder / "broken" / label / "a.png").write_text("no image")
    heard = Heard()
    with pytest.warns(UserWarning, match="'broken': no samples; skipped"):
        run = oodzoo.run(
            folder, zoo[:3], tmp_path / "run", config=config(testbed=False), listener=heard
        )
    assert (run.evaluation, run.testbed) == (None, None)
    stages = ["extraction", "leaks", "ranking", "selection", "predictor"]
    assert [stage.name for stage in run.stages] == stages
    assert run.data
    assert run.data.skipped == 2
    assert (tmp_path / "run" / "report.html").is_file()
    [skipped] = [facts for _, facts in heard.of("end") if facts["status"] == "skipped"]
    assert skipped["reason"].startswith("it needs at least three domains")


def test_folders_that_are_rejected(
    tmp_path: Path, digits: ImageDomains, zoo: list[ModelSpec]
) -> None:
    for name in ("report.html", "thesis.tex", "model", "run.json"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text("{}")
        with pytest.raises(InputError, match=f"neither empty nor a run .it contains '{name}'"):
            oodzoo.run(digits, zoo, folder)
        assert [path.name for path in folder.iterdir()] == [name]
        assert (folder / name).read_text() == "{}"
    data = shutil.copytree(Path(digits.name), tmp_path / "data")
    for out in (data, data / "paper" / "run"):
        with pytest.raises(InputError, match="is inside the data"):
            oodzoo.run(data, zoo, out)
    assert sorted(path.name for path in data.iterdir()) == ["chalk", "paper", "pencil"]


def _scores(run: Run) -> dict[str, float]:
    assert run.ranking is not None
    return {row.model: row.score for row in run.ranking.rows}


def test_another_target_repeats_what_depends_on_it(
    job: Path, digits: ImageDomains, zoo: list[ModelSpec], tmp_path: Path
) -> None:
    """Unlabelled images are extracted and change the ranking and the predictor."""
    plain = read_run(job)
    folder = draw_digits(tmp_path / "new", 8, domains=("tilted",))

    def again(target: Path | str | None) -> Run:
        return oodzoo.run(digits, zoo[:3], job, target=target, config=config())

    run = again(folder)
    assert run.settings == plain.settings | {"target": "new", "target_images": 24}
    depending = ("extraction", "ranking", "predictor")
    assert not any(reused(job)[name] for name in depending)
    assert all(reused(job)[name] for name in ("selection", "testbed"))
    assert run.evaluation
    assert run.evaluation.with_target
    assert _scores(run) != _scores(plain)
    again(f"new={folder}")
    assert reused(job) == dict.fromkeys(STAGES, True)
    sorted(folder.rglob("*.png"))[0].unlink()
    again(folder)
    assert not any(reused(job)[name] for name in depending)
    sorted(folder.rglob("*.png"))[-1].rename(folder / "zebra.png")
    again(folder)
    assert oodzoo.FeatureStore(job / "store").paths("new")[-1] == "zebra.png"
    sync_store(job / "store", digits, drop=["new"])
    again(folder)
    assert [name for name, kept in reused(job).items() if not kept] == ["extraction"]
    assert _scores(again(None)) == _scores(plain)
    assert read_run(job).settings == plain.settings


def test_a_target_that_cannot_be_used_is_rejected_first(
    tmp_path: Path, digits: ImageDomains, zoo: list[ModelSpec]
) -> None:
    shutil.copytree(Path(digits.name) / "chalk", tmp_path / "copy")
    used = {Path(sample.path).name for sample in digits if sample.domain == "chalk"}
    for file in [file for file in (tmp_path / "copy").rglob("*.png") if file.name not in used]:
        file.unlink()
    (tmp_path / "copy" / "bad.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"all images of the target 'copy' .* \(30 in 'chalk'\)"):
        oodzoo.run(digits, zoo, tmp_path / "run", target=tmp_path / "copy")
    options = config(score="logme")
    with pytest.raises(InputError, match="for the score 'unseen' only, got 'logme'"):
        oodzoo.run(
            digits, zoo, tmp_path / "run", target=Path(digits.name) / "paper", config=options
        )
    assert not (tmp_path / "run").exists()


def test_a_run_with_a_race_records_what_it_drops(digits: ImageDomains, tmp_path: Path) -> None:
    specs = load_zoo("demo")[::3]
    settings = config(race=True, testbed=False, top_k=1)
    run = oodzoo.run(digits, specs, tmp_path / "run", config=settings)
    assert run.extraction is not None
    assert run.ranking is not None
    dropped = run.extraction.dropped
    assert dropped
    assert sorted([*dropped, *run.extraction.models]) == sorted(spec.name for spec in specs)
    assert {row.model for row in run.ranking.rows} == set(run.extraction.models)
    recorded = read_run(tmp_path / "run")
    assert recorded.extraction is not None
    assert recorded.extraction.dropped == dropped
    assert recorded.settings["race"] is True
    oodzoo.run(digits, specs, tmp_path / "run", config=settings)
    assert reused(tmp_path / "run")["extraction"]
    everything = config(budget="10h", testbed=False, top_k=1)
    with pytest.raises(KeyboardInterrupt):  # after the extraction of all models
        oodzoo.run(digits, specs, tmp_path / "run", config=everything, listener=Interrupting())
    extraction = read_run(tmp_path / "run").extraction
    assert extraction is not None
    assert (extraction.dropped, len(extraction.models)) == ({}, 7)
