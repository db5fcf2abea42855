"""Commands run in this process; other processes import this module to run them too."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from threadpoolctl import threadpool_limits

from oodzoo.cli import main


def command(*arguments: str | Path) -> Any:
    """Run a command with one thread; return the JSON document that it prints."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["oodzoo", *map(str, arguments), "--json", "--debug"]),
        threadpool_limits(1),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.suppress(SystemExit),
    ):
        main()
    assert out.getvalue(), err.getvalue()
    return json.loads(out.getvalue())


# The parser imports packages when it is first used: once here, not in every child process.
command("models")
