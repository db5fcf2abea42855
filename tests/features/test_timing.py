"""Timings of models, added up over extractions."""

from __future__ import annotations

from pathlib import Path

from tests.features.data import MakeModel, Zoo
from tests.features.test_progress import Heard

from oodzoo.features.config import Extraction, Timing
from oodzoo.features.progress import ExtractionProgress
from oodzoo.features.timing import Timings
from oodzoo.store.local import read_local, update_local


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
    assert timing.known(spec.name) == Timing(20, 3.0)
    timing.save(spec.name, spec)
    facts = read_local(tmp_path, spec.name)
    assert facts == {
        "source": spec.source,
        "folder": str(spec.folder.resolve()),
        "seconds": 3.0,
        "images": 20,
        "milliseconds_per_image": 150.0,
    }
    name = f"{spec.name}/milliseconds_per_image"
    assert heard.events == [(name, 200.0), (name, 150.0)]


def test_another_extraction_adds_its_own(tmp_path: Path, zoo: Zoo) -> None:
    (spec,) = zoo("separable_shapes")
    for seconds in (1.0, 2.0):
        timing, measured = timings(tmp_path)
        measured[spec.name] = Timing(images=10, seconds=seconds)
        timing.save(spec.name, spec)
    assert timings(tmp_path)[0].known(spec.name) == Timing(20, 3.0)


def test_a_model_that_did_not_run_has_a_location_only(
    tmp_path: Path, zoo: Zoo, make_model: MakeModel
) -> None:
    (spec,) = zoo("separable_shapes")
    timing, _ = timings(tmp_path)
    timing.save(spec.name, spec)
    assert read_local(tmp_path, spec.name).keys() == {"source", "folder"}
    timing.save("function", make_model())
    assert read_local(tmp_path, "function") == {}


def test_nothing_new_is_not_written(tmp_path: Path, zoo: Zoo) -> None:
    """Another process may write at the same time: what it wrote would be lost."""
    (spec,) = zoo("separable_shapes")
    timing, measured = timings(tmp_path)
    measured[spec.name] = Timing(images=10, seconds=2.0)
    timing.save(spec.name, spec)
    file = tmp_path / "models" / spec.name / "local.json"
    before = file.stat().st_ino
    update_local(tmp_path, spec.name, {})
    assert file.stat().st_ino != before  # a file that is written is another one
    before = file.stat().st_ino
    timing.save(spec.name, spec)
    assert file.stat().st_ino == before
