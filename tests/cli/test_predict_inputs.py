"""Inputs of `oodzoo predict`: lists on stdin and in files, URLs."""

from __future__ import annotations

import functools
import http.server
import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Set what is on stdin."""

    def type_in(text: str) -> None:
        stream = io.TextIOWrapper(io.BytesIO(text.encode()))
        monkeypatch.setattr(sys, "stdin", stream)

    return type_in


@pytest.fixture
def bad_list(unseen: list[Path], tmp_path: Path) -> Path:
    """Two images, a file that does not exist and one that is not an image."""
    (tmp_path / "z.png").write_text("no image")
    lines = [unseen[0], tmp_path / "none.png", "", unseen[1], tmp_path / "z.png"]
    (tmp_path / "list.txt").write_text("\n".join(map(str, lines)))
    return tmp_path / "list.txt"


def test_a_bad_line_is_reported_and_the_rest_goes_on(
    run: Run, saved: Path, bad_list: Path, unseen: list[Path]
) -> None:
    done = run("predict", saved, "--list", bad_list, "--json")
    assert done.code == 0
    assert [each["path"] for each in done.document["predictions"]] == [str(p) for p in unseen[:2]]
    missing, broken = done.document["unreadable"]
    assert (missing["line"], missing["list"]) == (2, str(bad_list))
    assert "no such file or folder" in missing["error"]
    assert (broken["line"], Path(broken["path"]).name) == (5, "z.png")
    assert f"warning: line 2 of '{bad_list}': no such file or folder" in done.err
    assert f"(line 5 of '{bad_list}'): not an image" in done.err
    first, second = done.document["predictions"]
    given = ("predict", saved, unseen[2], "--list", bad_list, "--list", bad_list)
    rows = [json.loads(row) for row in run(*given, "--format", "jsonl").out.splitlines()]
    assert rows[1:] == [first, missing, second, broken] * 2


def test_stdin_and_images_and_nul(
    run: Run, saved: Path, unseen: list[Path], type_in: Callable[[str], None]
) -> None:
    type_in("\0".join(map(str, unseen[1:3])))
    done = run("predict", saved, unseen[0], "-", "-0", "--json")
    assert [each["path"] for each in done.document["predictions"]] == [str(p) for p in unseen[:3]]


def test_a_list_can_be_adapted_to(
    run: Run,
    store: Any,
    unseen: list[Path],
    predictor: Any,
    tmp_path: Path,
    type_in: Callable[[str], None],
) -> None:
    from tests.predictor.adapting import with_adaptive

    model = with_adaptive(predictor, store).save(tmp_path / "model")
    type_in("\n".join(map(str, unseen[20:])))
    listed = run("predict", model, *unseen[:20], "-", "--adapt", "--json").document
    given = run("predict", model, *unseen, "--adapt", "--json").document
    assert listed == given


def test_predictions_are_written_as_lines_come(saved: Path, unseen: list[Path]) -> None:
    """The first prediction is there before the list goes on."""
    command = [sys.executable, "-m", "oodzoo", "predict", str(saved), "-", "-q"]
    command += ["--format", "jsonl"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for path in unseen[:2]:
            child.stdin.write(f"{path}\n")
            assert json.loads(child.stdout.readline())["path"] == str(path)
        child.stdin.close()
        assert child.stdout.read() == ""
        assert child.wait() == 0


def test_nothing_to_predict(
    run: Run, saved: Path, unseen: list[Path], tmp_path: Path, type_in: Callable[[str], None]
) -> None:
    assert "nothing to predict; give images" in run("predict", saved).complaint
    type_in("\n\n")
    assert "stdin has no lines" in run("predict", saved, "-").complaint
    assert "stdin is given twice" in run("predict", saved, "-", "-").complaint
    assert "no such file: 'none.txt'" in run("predict", saved, "--list", "none.txt").complaint
    assert "give it without --list" in run("predict", saved, "--list", tmp_path).complaint
    assert "--null is for lists" in run("predict", saved, unseen[0], "-0").complaint
    (tmp_path / "bad.txt").write_text("none.png\n")
    done = run("predict", saved, "--list", tmp_path / "bad.txt", "--out", tmp_path / "out.csv")
    assert (done.code, done.out) == (2, "")
    assert "none of the images can be read; first error: no such file" in done.err.splitlines()[-1]
    assert not (tmp_path / "out.csv").exists()


# --- URLs ---------------------------------------------------------------------------------------


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web(unseen: list[Path], tmp_path: Path) -> Iterator[str]:
    """A web server with two images and a list of them."""
    pytest.importorskip("aiohttp")
    folder = tmp_path / "web"
    folder.mkdir()
    for name, path in zip(("a.png", "b.png"), unseen, strict=False):
        (folder / name).write_bytes(path.read_bytes())
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        (folder / "list.txt").write_text(f"{url}/a.png\n{url}/none.png\n{url}/b.png\n")
        yield url
        server.shutdown()
        thread.join()


def test_images_and_lists_of_a_web_server(
    run: Run, saved: Path, web: str, unseen: list[Path], tmp_path: Path
) -> None:
    local = run("predict", saved, *unseen[:2], "--json").document["predictions"]
    done = run(
        "predict", saved, "--list", f"{web}/list.txt", "--json", "--sort-into", tmp_path / "s"
    )
    found = done.document["predictions"]
    assert [each["path"] for each in found] == [f"{web}/a.png", f"{web}/b.png"]
    assert [each["probabilities"] for each in found] == [each["probabilities"] for each in local]
    assert f"no such file: '{web}/none.png'" in done.err
    names = {path.name for path in (tmp_path / "s").rglob("*.png")}
    assert names == {"a.png", "b.png"}
    link = run("predict", saved, f"{web}/a.png", "--sort-into", tmp_path / "t", "--link", "soft")
    assert (link.code, link.out) == (2, "")
    assert "is not a local file and cannot be linked" in link.err


def test_folders_and_lists_of_a_bucket(
    run: Run, saved: Path, unseen: list[Path], s3: Any, type_in: Callable[[str], None]
) -> None:
    for name, path in zip(("new/a.png", "new/deep/b.png", "c.png"), unseen, strict=False):
        s3.put(name, path.read_bytes())
    type_in(f"{s3.url}/new\n{s3.url}/c.png\n{s3.url}/none.png\n")
    done = run("predict", saved, "-", "--json")
    assert [each["path"] for each in done.document["predictions"]] == [
        f"{s3.url}/{name}" for name in ("new/a.png", "new/deep/b.png", "c.png")
    ]
    assert [each["line"] for each in done.document["unreadable"]] == [3]
