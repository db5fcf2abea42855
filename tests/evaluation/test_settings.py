"""Options of an evaluation that other processes can read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from oodzoo.combining.evaluation.settings import Settings
from oodzoo.core.errors import InputError


def settings(**changed: Any) -> Settings:
    known: dict[str, Any] = {
        "top_k": [1, 3],
        "protocol": "fast",
        "score": "unseen",
        "trials": 1,
        "draws": 10,
        "steps": 5001,
        "search_space": "default",
        "selection": "leave-one-domain-out",
        "seed": 0,
        "peers": ("logme",),
        "with_target": False,
        "max_models": None,
        "max_ms": 1.5,
    }
    return Settings(**known | changed)


@pytest.mark.parametrize("peers", [None, (), ("logme", "knn")])
@pytest.mark.parametrize("top_k", [None, [2]])
def test_settings_survive_the_way_to_another_process(peers: Any, top_k: Any) -> None:
    sent = settings(peers=peers, top_k=top_k)
    assert msgspec.json.decode(msgspec.json.encode(sent), type=Settings) == sent


def test_the_main_number_of_models() -> None:
    assert settings().main_top_k == 3
    assert settings(top_k=[2, 5]).main_top_k == 2
    assert settings(top_k=None).main_top_k is None


def test_limits_are_checked_before_the_work() -> None:
    settings().check(None)
    with pytest.raises(InputError, match="max_models"):
        settings(max_models=0).check(None)
