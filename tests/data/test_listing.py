"""Errors while listing a source."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from oodzoo.data.listing import explaining_errors
from oodzoo.errors import InputError


def test_errors_name_the_file_or_else_the_source(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught, explaining_errors("source"):
        (tmp_path / "x").stat()
    assert str(caught.value) == f"cannot read {str(tmp_path / 'x')!r}: No such file or directory"
    with pytest.raises(InputError) as caught, explaining_errors("source"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    assert str(caught.value) == "cannot read 'source': Input/output error"
    with pytest.raises(InputError) as caught, explaining_errors("source"):
        raise OSError("of a library")
    assert str(caught.value) == "cannot read 'source': of a library"
