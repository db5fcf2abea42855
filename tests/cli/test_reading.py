"""Reading remote images: what is said before, and that it is done once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Run
from tests.fixtures import draw_digits
from tests.s3 import Bucket

MODEL = "mlp_glyphs_augmented"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_digits(tmp_path_factory.mktemp("digits"), 2)


def test_what_is_read_is_said_before(
    run: Run, s3: Bucket, digits: Path, tmp_path: Path, zoo_file: str
) -> None:
    url = s3.upload(digits, "digits")
    target = s3.upload(next(digits.iterdir()), "new")
    done = run("extract", url, "--zoo", zoo_file, "--store", tmp_path / "s", "--unlabelled", target)
    assert done.code == 0, done.err
    size = sum(len(s3.get(key)) for key in s3.keys() if key.startswith("digits/"))  # noqa: SIM118
    assert f"Reading 18 images ({size / 1e3:.1f} kB) from '{url}'" in done.err
    assert f"from '{target}'" in done.err
    assert len(s3.proxy.asked(r"^GET .*/digits/.*\.png")) == 18


def test_nothing_is_said_of_local_files(
    run: Run, digits: Path, tmp_path: Path, zoo_file: str
) -> None:
    done = run("extract", digits, "--zoo", zoo_file, "--store", tmp_path / "s")
    assert done.code == 0, done.err
    assert "Reading" not in done.err


@pytest.fixture
def zoo_file(tmp_path: Path) -> str:
    """A model of the embedded zoo."""
    from oodzoo.zoo import load_zoo

    (spec,) = (spec for spec in load_zoo("demo") if spec.name == MODEL)
    entry = {key: value for key, value in spec.to_dict().items() if key != "source"}
    lines = [f"{key} = {list(v) if isinstance(v, tuple) else v!r}" for key, v in entry.items()]
    source = f'source = "onnx/{spec.file}"'
    (tmp_path / "zoo.toml").write_text("\n".join(["[[model]]", source, *lines]))
    return str(tmp_path / "zoo.toml")
