"""One pass over images: digests, problems and facts in arrays."""

from __future__ import annotations

import hashlib
from pathlib import Path

from PIL import Image

from oodzoo.data.contents import inspect_images
from oodzoo.data.files import LocalFile


def test_facts_of_each_image_in_order(tmp_path: Path) -> None:
    sizes = [(3 + n, 5) for n in range(40)]
    for n, size in enumerate(sizes):
        mode, suffix = [("RGB", "png"), ("L", "jpg")][n % 2]
        Image.new(mode, size, n + 1).save(tmp_path / f"{n}.{suffix}")
    files = [tmp_path / f"{n}.{['png', 'jpg'][n % 2]}" for n in range(40)]
    (tmp_path / "6.png").write_text("this is no picture")
    (tmp_path / "9.jpg").unlink()
    calls: list[tuple[int, int]] = []
    found = inspect_images(
        [LocalFile(str(file)) for file in files], lambda done, total: calls.append((done, total))
    )
    good = [n for n in range(40) if n not in (6, 9)]
    assert list(found.problems) == [6, 9]
    assert found.problems[9] == "No such file or directory"
    assert found.digests == tuple(
        None if n == 9 else hashlib.sha256(files[n].read_bytes()).hexdigest() for n in range(40)
    )
    assert [found.n_bytes[n] for n in good] == [files[n].stat().st_size for n in good]
    assert (found.n_bytes[6], found.n_bytes[9]) == (18, 0)
    assert [(found.width[n], found.height[n]) for n in good] == [sizes[n] for n in good]
    assert not found.width[[6, 9]].any()
    assert [found.kinds[found.kind[n]] for n in good] == [
        [("PNG", "RGB"), ("JPEG", "L")][n % 2] for n in good
    ]
    assert [bool(found.is_grey[n]) for n in good] == [n % 2 == 1 for n in good]
    assert calls[-1] == (40, 40)
    paths = [file.name for file in files]
    assert found.hashes(paths) == (found.digests, {"9.jpg": "No such file or directory"})


def test_no_images() -> None:
    assert inspect_images([]).digests == ()
