"""Errors: one hierarchy, so that the command line can tell bad input from bugs."""

from __future__ import annotations

import pytest

import oodzoo
from oodzoo.core.errors import DiskError, InputError, MissingPackageError


def test_every_error_is_an_input_error() -> None:
    assert oodzoo.InputError is InputError
    assert issubclass(InputError, ValueError)
    assert issubclass(DiskError, InputError)
    assert issubclass(MissingPackageError, InputError)


def test_a_missing_package_names_the_extra_to_install() -> None:
    with pytest.raises(ImportError) as caught:
        raise MissingPackageError("pyarrow", "parquet", "reading a Parquet file")
    assert str(caught.value) == (
        "reading a Parquet file needs the package pyarrow; "
        'install it with: pip install "oodzoo[parquet]"'
    )
