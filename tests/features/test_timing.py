"""Time of a forward pass, and timings of models, added up over extractions."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.features.data import Extract, Zoo
from tests.features.test_progress import Heard

from oodzoo.features.config import Extraction, PassTime, Timing
from oodzoo.features.progress import ExtractionProgress
from oodzoo.features.timing import Timings, time_passes
from oodzoo.store.local import read_local, update_local
from oodzoo.zoo import load_model
from oodzoo.zoo.onnx import OnnxModel, OnnxNetwork


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
    assert heard.events == [(f"{spec.name}/milliseconds_per_image", 5.0)]


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
