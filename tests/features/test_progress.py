"""The events of an extraction."""

from __future__ import annotations

from typing import Any

from oodzoo.events import Listener
from oodzoo.features.progress import ExtractionProgress


class Heard(Listener):
    """Keeps the events."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def start(self, stage: str, **facts: Any) -> None:
        self.events.append(("start", stage, facts))

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        self.events.append((done, total, facts))

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        self.events.append((name, value))

    def end(self, stage: str, **facts: Any) -> None:
        self.events.append(("end", stage, facts["status"], facts.get("error")))


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
    assert heard.events == [
        ("start", "extraction", {"models": ["a", "b"], "images": 10}),
        (0, 20, {"message": "hello"}),
        (4, 20, {"model": "a", "images": 4, "seconds": 0.0}),
        (9, 20, {"model": "a", "images": 5, "seconds": 0.5}),
        (10, 20, {"model": "a", "images": 5, "seconds": 0.5}),
        (10, 20, {"message": "half"}),
        (20, 20, {"model": "b", "failed": "broken"}),
        ("a/milliseconds_per_image", 50.0),
        ("end", "extraction", "done", None),
    ]
