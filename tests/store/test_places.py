"""Names of the files of a store: nothing outside it, and no links."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.data import image

from oodzoo.errors import InputError
from oodzoo.store.places import (
    file_name,
    is_file_name,
    mistaken_folder,
    model_folder,
    part_of_run,
    repair_advice,
    require_no_links,
)

BAD_NAMES = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "/etc",
    "a\\b",
    ".tmp-x",
    ".lock",
    "x" * 300,
    "a\n",
    "C:",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_model_name_that_is_no_folder_name_is_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a folder") as caught:
        model_folder(tmp_path, name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["manifest.json", "cache", "images", "local.json", "höhle 7"])
def test_a_model_may_have_the_name_of_another_file_of_the_store(tmp_path: Path, name: str) -> None:
    assert model_folder(tmp_path, name) == tmp_path / "models" / name


@given(st.text(max_size=20))
def test_the_folder_of_a_model_is_in_the_store(name: str) -> None:
    try:
        folder = model_folder(Path("store"), name)
    except InputError:
        return
    assert Path(os.path.normpath(folder)).parent == Path("store/models")


def test_the_name_of_a_shard_file_contains_its_digest() -> None:
    name = file_name("00003-00012", "features", image("a"))
    assert name == f"00003-00012.features.{image('a')[:16]}.npy"
    assert is_file_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "../00000-00000.features.0123456789abcdef.npy",
        "/00000-00000.features.0123456789abcdef.npy",
        "x/00000-00000.features.0123456789abcdef.npy",
        "00000-00000.features.0123456789abcdef.npy\n",
        "00000-00000.features.0123456789ABCDEF.npy",
        "00000-00000.features.0123456789abcde.npy",
        "00000-0000٣.features.0123456789abcdef.npy",
        "00000-00000.labels.0123456789abcdef.npy",
        "00000-00000xfeatures.0123456789abcdef.npy",
        "00000-00000.features.0123456789abcdef.json",
        "model.json",
        "..",
        "",
    ],
)
def test_other_names_are_no_shard_files(name: str) -> None:
    assert not is_file_name(name)


@given(st.text(max_size=60) | st.from_regex(r"[0-9./-]{11}\.features\.[0-9a-f./]{16}\.npy"))
def test_a_shard_file_is_in_the_folder_of_its_model(name: str) -> None:
    if is_file_name(name):
        assert Path(os.path.normpath(Path("models/m") / name)).parent == Path("models/m")


# --- links -----------------------------------------------------------------------------------


@pytest.mark.parametrize("link", ["a", "a/b", "a/b/c"])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_anywhere_between_the_store_and_a_file_is_rejected(
    tmp_path: Path, link: str, dangling: bool
) -> None:
    store, outside = tmp_path / "store", tmp_path / "outside"
    (store / link).parent.mkdir(parents=True)
    if not dangling:
        outside.mkdir()
    (store / link).symlink_to(outside)
    with pytest.raises(InputError, match=rf"{store / link}' is a symbolic link; .*remove it"):
        require_no_links(store, store / "a/b/c")


def test_a_path_without_links_is_returned(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    store = tmp_path / "store"
    store.symlink_to("real")  # the store itself may be reached through a link
    (store / "a").mkdir()
    assert require_no_links(store, store / "a/b") == store / "a/b"


# --- sizes and advice ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["store", "my store", "it's; rm -rf ~"])
def test_the_advice_is_a_command_that_a_shell_understands(name: str) -> None:
    command = repair_advice(Path(name)).split("`")[1]
    assert shlex.split(command) == ["oodzoo", "store", "check", name, "--repair"]


def test_the_folder_that_was_meant_is_named(tmp_path: Path) -> None:
    run = tmp_path / "job"
    for place, name in (("store", "manifest.json"), ("model", "predictor.json")):
        (run / place).mkdir(parents=True)
        (run / place / name).touch()
    store, model = str(run / "store"), str(run / "model")
    meant = f"it is a predictor; did you mean {store!r}?"
    assert mistaken_folder(run / "model", "store") == meant
    meant = f"it is a feature store; did you mean {model!r}?"
    assert mistaken_folder(run / "store", "model") == meant
    assert mistaken_folder(tmp_path, "store") == ""
    (run / "model" / "predictor.json").unlink()
    advice = mistaken_folder(run / "store", "model")
    assert advice.startswith("it is a feature store; make a predictor of it with `oodzoo fit ")


@pytest.mark.parametrize(
    ("part", "file"), [("store", "manifest.json"), ("model", "predictor.json")]
)
def test_the_folder_of_a_run_stands_for_its_parts(tmp_path: Path, part: str, file: str) -> None:
    (tmp_path / part).mkdir()
    assert part_of_run(tmp_path, part) == tmp_path  # not the folder of a run
    (tmp_path / "run.json").touch()
    assert part_of_run(tmp_path, part) == tmp_path / part
    assert part_of_run(tmp_path / part, part) == tmp_path / part
    (tmp_path / file).touch()
    assert part_of_run(tmp_path, part) == tmp_path
