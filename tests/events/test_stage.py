"""A stage starts, and ends whatever happens."""

from __future__ import annotations

import numpy as np
import pytest
from tests.events.heard import Heard

from oodzoo.events import Stage, extent
from oodzoo.features.source import ArraySource


def test_the_events_of_a_stage() -> None:
    heard = Heard()
    with Stage([heard], "ranking", models=["net"]) as stage:
        stage.say("reading")
        stage.progress(1, 2)
        stage.say("half")
        stage.finish("ranked", {"net/score": 0.5})
    kinds = [kind for kind, _, _ in heard.events]
    assert kinds == ["start", "progress", "progress", "progress", "metric", "end"]
    assert heard.of("start") == [("ranking", {"models": ["net"]})]
    assert heard.messages() == ["reading", "half"]
    assert [facts["done"] for _, facts in heard.of("progress")] == [0, 1, 1]
    assert heard.metrics("ranking") == {"net/score": 0.5}
    [(_, end)] = heard.of("end")
    assert end.keys() == {"status", "seconds", "result"}
    assert (end["status"], end["result"]) == ("done", "ranked")
    assert end["seconds"] >= 0


@pytest.mark.parametrize("error", [ValueError("two\nlines"), KeyboardInterrupt()])
def test_a_stage_that_fails_says_why_and_the_exception_goes_on(error: BaseException) -> None:
    heard = Heard()
    with pytest.raises(type(error)), Stage(heard, "ranking"):
        raise error
    [(_, end)] = heard.of("end")
    assert end["status"] == "failed"
    assert end["error"] == ("two lines" if str(error) else "KeyboardInterrupt")
    assert "result" not in end


def test_the_extent_of_features() -> None:
    y, domains = np.tile([0, 1], 6), np.repeat(["a", "b", "c"], 4)
    source = ArraySource({"net": np.ones((12, 2))}, y, domains)
    assert extent(source) == {"models": ["net"], "domains": ["a", "b", "c"], "images": 12}
