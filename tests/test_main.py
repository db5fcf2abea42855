"""The package as a command: ``python -m oodzoo``."""

from __future__ import annotations

import subprocess
import sys

import oodzoo


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "oodzoo", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"oodzoo {oodzoo.__version__}\n", "")


def test_ctrl_c_while_it_is_imported_is_one_line() -> None:
    code = """
import sys
from oodzoo.__main__ import main

class Interrupts:
    def find_spec(self, name, *rest):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
main()
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "oodzoo: interrupted\n")
