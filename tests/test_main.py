"""The package as a command: ``python -m oodzoo``."""

from __future__ import annotations

import subprocess
import sys

import oodzoo


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "oodzoo", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"oodzoo {oodzoo.__version__}\n", "")
