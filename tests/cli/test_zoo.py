"""What commands say and ask before models are downloaded."""

from __future__ import annotations

import io
import os
import shutil
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from tests.conftest import Run

from oodzoo.cli import data
from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.zoo import load_zoo
from oodzoo.zoo.listing import ListedModel
from oodzoo.zoo.sources import get_source

MODEL = "timm/test_vit.r160_in1k"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model is cached, and none can be downloaded."""
    try:
        get_source("timm").names("*")
    except MissingPackageError as error:
        pytest.skip(str(error))
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def test_filters(run: Run, photos: Path, tmp_path: Path) -> None:
    zoo = f"{MODEL},demo/cnn_*,demo/mixer*"
    arguments = ["extract", photos, "--store", tmp_path / "s", "--zoo", zoo]
    options = ["--max-parameters", "40K", "--licence", "apache-2.0,mit"]
    outcome = run(*arguments, *options, "--json")
    assert outcome.code == 0
    assert sorted(outcome.document["models"]) == [
        *("cnn_letters", "cnn_letters_pose", "cnn_photos", "cnn_rotation"),
        *("mixer_glyphs", "mixer_random"),
    ]
    assert "no model meets --licence gpl" in run(*arguments, "--licence", "gpl").complaint


def test_a_full_disk_is_noticed_before_the_first_download(
    run: Run, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=10**6)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    arguments = ["extract", photos, "--zoo", MODEL, "--store", tmp_path / "s"]
    outcome = run(*arguments)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith(
        "oodzoo: the models to download need about 1.5 MB, but the disk of "
    )
    assert not (tmp_path / "s").exists()
    assert "is not in the cache" in run(*arguments, "--yes").err


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    ("answer", "options", "is_asked", "goes_on"),
    [
        ("n\n", {}, True, False),
        ("\n", {}, True, False),
        ("\x04", {}, True, False),  # end of input
        ("Yes\n", {}, True, True),
        ("y\n", {"quiet": True}, True, True),
        ("", {"yes": True}, False, True),
        ("", {"least": 2_000_000}, False, True),
        (None, {}, False, True),  # no terminal
    ],
)
def test_much_is_downloaded_only_if_a_person_agrees(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str | None,
    options: dict[str, int],
    is_asked: bool,
    goes_on: bool,
) -> None:
    monkeypatch.setattr(data, "_ASK_FROM", options.get("least", 1))
    models = [ListedModel(spec) for spec in load_zoo(MODEL)]
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "r+b", 0) as device, io.TextIOWrapper(device, write_through=True) as end:
        if answer is not None:
            os.write(ours, answer.encode())
            monkeypatch.setattr("sys.stdin", end)
            monkeypatch.setattr("sys.stderr", end)
        terminal = Terminal(quiet=bool(options.get("quiet")))
        expected = nullcontext() if goes_on else pytest.raises(InputError, match="nothing was down")
        with expected:
            data.announce_download(terminal, models, yes=bool(options.get("yes")))
    text = capsys.readouterr().err if answer is None else _read(ours)
    os.close(ours)
    assert ("1 model to download, about 1.5 MB." in text) == ("quiet" not in options)
    assert ("Download about 1.5 MB? [y/N]" in text) == is_asked
    assert capsys.readouterr().out == ""


def _read(terminal: int) -> str:
    """All that was written to a terminal whose other end is closed."""
    text = b""
    with suppress(OSError):  # the end, on Linux
        while part := os.read(terminal, 10_000):
            text += part
    return text.decode()
