"""The option `--plot`."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure
from tests.conftest import Run

from oodzoo.cli.plotting import save_plot
from oodzoo.cli.terminal import Terminal


class Result:
    def plot(self) -> Figure:
        figure = Figure()
        figure.subplots()
        return figure


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_the_suffix_sets_the_format(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = tmp_path / f"figure.{suffix}"
    save_plot(Terminal(quiet=True), Result(), path)
    assert path.read_bytes().startswith(start)


def test_no_path_means_no_figure(tmp_path: Path) -> None:
    save_plot(Terminal(quiet=True), Result(), None)
    assert not list(tmp_path.iterdir())


def test_an_unknown_format_is_rejected_before_the_work(run: Run, tmp_path: Path) -> None:
    complaint = run("rank", tmp_path / "missing", "--plot", "figure.gif").complaint
    assert "'figure.gif' must end in .png, .svg or .pdf" in complaint
