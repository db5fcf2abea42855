"""Steps of an extraction: options, decoding, models in turn, progress, timing."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.events.heard import Heard
from tests.features.data import Extract, Zoo

from oodzoo.core.errors import InputError
from oodzoo.data.files import TextFile
from oodzoo.extraction.config import Extraction, ExtractionConfig, PassTime, Timing
from oodzoo.extraction.forward import Job, run_jobs
from oodzoo.extraction.pixels import Decoding, HashedFile
from oodzoo.extraction.progress import ExtractionProgress
from oodzoo.extraction.timing import Timings, time_passes
from oodzoo.store.local import read_local, update_local
from oodzoo.zoo import load_model
from oodzoo.zoo.callable import model_from_callable
from oodzoo.zoo.model import Model
from oodzoo.zoo.onnx import OnnxModel, OnnxNetwork
from oodzoo.zoo.preprocessing import square

# --- config ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"dtype": "float64"}, "unknown dtype 'float64'; expected one of float32, float16"),
        ({"precision": "int8"}, "unknown precision 'int8'; expected one of "),
        ({"on_error": "ignore"}, "unknown on_error 'ignore'; expected one of skip, fail"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"batch_size": "8"}, "batch_size must be an integer of at least 1, got '8'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": "cuda:0,tpu"}, "unknown device 'tpu'"),
        ({"device": "cpu,"}, "unknown device ''"),
    ],
)
def test_unknown_options(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        ExtractionConfig(**options)


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ExtractionConfig("cpu, cpu").device == "cpu,cpu"
    torch = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 2))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert ExtractionConfig("all").device == "cuda:0,cuda:1"
    with pytest.raises(InputError, match="device 'cuda:2' is not available: found 2 CUDA devices"):
        ExtractionConfig("cuda:0,cuda:2")


def test_the_bottleneck_is_the_longer_step() -> None:
    assert Extraction(Path("s"), waiting=2.0, running=1.0).bottleneck == "decoding"
    assert Extraction(Path("s"), waiting=1.0, running=2.0).bottleneck == "inference"


def test_warnings_name_the_models_that_are_left_out() -> None:
    assert Extraction(Path("s")).warnings() == []
    failed, outdated = Extraction(
        Path("s"), failed={"a": "no such file"}, outdated=["b", "c"]
    ).warnings()
    assert failed == "model 'a' is left out: no such file"
    assert outdated.startswith("b, c: left out")


# --- pixels ------------------------------------------------------------------------------------


SMALL, LARGE = (square(side, (0.5,) * 3, (0.5,) * 3).geometry for side in (4, 6))


def test_texts() -> None:
    files = {at: TextFile(f"text {at}", f"row {at}") for at in (0, 1, 3)}
    hashed = {at: HashedFile(f, hashlib.sha256(f.read()).hexdigest()) for at, f in files.items()}
    hashed[1] = HashedFile(files[1], "0" * 64)
    chunk = Decoding(hashed, [None]).result()
    assert chunk.positions == [0, 3]
    assert chunk.pixels == {None: ["text 0", "text 3"]}
    assert str(chunk.problems[1]) == "the file has changed since it was listed"
    image = Decoding({0: Image.new("RGB", (4, 4))}, [None]).result()
    assert str(image.problems[0]) == "an image, not a text"


# --- forward -----------------------------------------------------------------------------------


def model(name: str, seconds: float = 0.0) -> Model:
    def features(batch: Any) -> Any:
        time.sleep(seconds)
        return batch.mean(axis=(2, 3))

    shape = square(4, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    return model_from_callable(features, name=name, preprocessing=shape, version="1")


def jobs(*models: Model) -> Iterator[Job[str]]:
    pixels = np.random.default_rng(0).integers(0, 256, (10, 4, 4, 3), dtype=np.uint8)
    for one in models:
        yield Job(one.info.name, [one], pixels, batch_size=4)


def test_time_is_charged_to_the_model_that_took_it() -> None:
    fast, slow = model("fast"), model("slow", seconds=0.05)
    spent = {"fast": 0.0, "slow": 0.0}
    for done in run_jobs(jobs(*[fast, slow] * 3)):
        spent[done.job.tag] += done.seconds
    assert spent["slow"] >= 3 * 3 * 0.05
    assert spent["fast"] < spent["slow"] / 3


def test_what_was_launched_is_kept_when_no_more_jobs_come() -> None:
    def stopping() -> Iterator[Job[str]]:
        yield from jobs(model("a"), model("b"), model("c"))
        raise OSError("the disk has gone")

    results = run_jobs(stopping())
    assert [next(results).job.tag for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(OSError, match="the disk has gone"):
        next(results)


# --- progress ----------------------------------------------------------------------------------


def test_images_of_all_models_are_counted() -> None:
    heard = Heard()
    with ExtractionProgress(heard, ["a", "b"], 10) as progress:
        progress.say("hello")
        progress.has("a", 4)
        progress.has("a", 3)  # fewer than are known
        progress.advance("a", 5, 0.5)
        progress.advance("a", 5, 0.5)  # an image that was absent counts once
        progress.say("half")
        progress.fail("b", "broken")
        progress.measured("a", 50.0)
    assert heard.of("start") == [("extraction", {"models": ["a", "b"], "images": 10})]
    assert [
        (facts.pop("done"), facts.pop("total"), facts) for _, facts in heard.of("progress")
    ] == [
        (0, 20, {"message": "hello"}),
        (4, 20, {"model": "a", "images": 4, "seconds": 0.0}),
        (9, 20, {"model": "a", "images": 5, "seconds": 0.5}),
        (10, 20, {"model": "a", "images": 5, "seconds": 0.5}),
        (10, 20, {"message": "half"}),
        (20, 20, {"model": "b", "failed": "broken"}),
    ]
    assert heard.metrics("extraction") == {"a/milliseconds_per_image": 50.0}
    assert heard.outline() == [("extraction", "start"), ("extraction", "done")]


# --- timing ------------------------------------------------------------------------------------


def timings(path: Path, heard: Heard | None = None) -> tuple[Timings, dict[str, Timing]]:
    """The timings of an extraction into a store, and what it has measured."""
    extraction = Extraction(path)
    return Timings(path, extraction, ExtractionProgress(heard)), extraction.timings


def test_what_is_new_is_added_once(tmp_path: Path, zoo: Zoo) -> None:
    (spec,) = zoo("separable_shapes")
    heard = Heard()
    timing, measured = timings(tmp_path, heard)
    measured[spec.name] = Timing(images=10, seconds=2.0)
    assert timing.known(spec.name) == Timing(10, 2.0)
    timing.save(spec.name, spec)
    timing.save(spec.name, spec)
    assert timing.known(spec.name) == Timing(10, 2.0)
    measured[spec.name].images, measured[spec.name].seconds = 20, 3.0
    timing._extraction.add_pass_time(spec.name, PassTime(5.0, "here"))
    assert timing.known(spec.name) == Timing(20, 3.0)
    timing.save(spec.name, spec)
    facts = read_local(tmp_path, spec.name)
    assert facts == {
        "source": spec.source,
        "folder": str(spec.folder.resolve()),
        "seconds": 3.0,
        "images": 20,
        "milliseconds_per_image": 5.0,
        "measured": "here",
    }
    assert heard.metrics("extraction") == {f"{spec.name}/milliseconds_per_image": 5.0}


@pytest.mark.parametrize(
    ("later", "kept"),
    [((6.0, "here"), (5.0, "here")), ((4.0, "here"), (4.0, "here")), ((6.0, "b"), (6.0, "b"))],
)
def test_the_least_time_is_kept_but_not_that_of_another_machine(
    tmp_path: Path, zoo: Zoo, later: tuple[float, str], kept: tuple[float, str]
) -> None:
    (spec,) = zoo("separable_shapes")
    for found in ((5.0, "here"), later):
        timing, _ = timings(tmp_path)
        timing._extraction.add_pass_time(spec.name, PassTime(*found))
        timing.save(spec.name, spec)
    facts = read_local(tmp_path, spec.name)
    assert (facts["milliseconds_per_image"], facts["measured"]) == kept


def test_passes_run_on_one_thread(zoo: Zoo) -> None:
    (spec,) = zoo("separable_shapes")
    model = load_model(spec)
    assert isinstance(model, OnnxModel)
    network = model.network
    assert isinstance(network, OnnxNetwork)
    before = network._session
    with model.one_thread():
        assert network._session.get_session_options().intra_op_num_threads == 1
        assert len(time_passes([model])) == 1
    assert network._session is before


def test_a_store_that_lacks_times_gets_them_when_nothing_else_is_missing(
    zoo: Zoo, extract: Extract, digits: Path, tmp_path: Path
) -> None:
    (spec,) = zoo("separable_shapes")
    store = tmp_path / "s"
    extract(digits, [spec], store)
    known = read_local(store, spec.name)
    update_local(store, spec.name, {"milliseconds_per_image": 1e6, "measured": "elsewhere"})
    extract(digits, [spec], store)
    facts = read_local(store, spec.name)
    assert facts["milliseconds_per_image"] < 1e6
    assert {**facts, "milliseconds_per_image": 0} == {**known, "milliseconds_per_image": 0}


def test_a_model_that_fails_does_not_stop_the_others() -> None:
    def broken(batch: Any) -> Any:
        if len(batch) > 2:  # not on the first probe
            raise RuntimeError("out of order")
        return batch.mean(axis=(2, 3))

    shape = square(4, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    bad = model_from_callable(broken, name="bad", preprocessing=shape, version="1")
    ends = {done.job.tag: done for done in run_jobs(jobs(model("a"), bad, model("b")))}
    assert "out of order" in str(ends["bad"].error)
    assert ends["a"].outputs is not None
    assert ends["b"].outputs is not None
