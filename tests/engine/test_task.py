"""Replies of tasks."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.engine.task import Reply, required_result
from oodzoo.errors import InputError


@given(st.binary())
def test_any_result_survives_the_way_back(result: bytes) -> None:
    reply = Reply(result, machine="m")
    assert msgspec.json.decode(msgspec.json.encode(reply), type=Reply) == reply
    assert required_result(reply) == result


def test_a_task_without_a_result_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"^a task failed on a worker: no memory$"):
        required_result(Reply(error="no memory"))
    with pytest.raises(InputError, match=r"^a task failed on node7: no memory$"):
        required_result(Reply(error="no memory", machine="node7"))
