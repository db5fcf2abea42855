from __future__ import annotations

import errno
from typing import Any

import pytest

from oodzoo.remote.failures import (
    EndedEarlyError,
    RemoteError,
    already_exists,
    bucket_is_missing,
    explain,
    is_permanent,
)


def s3_error(code: str, error: Exception) -> Exception:
    """An error as s3fs raises it: its cause has the answer of the server."""
    exceptions = pytest.importorskip("botocore.exceptions")
    error.__cause__ = exceptions.ClientError({"Error": {"Code": code}}, "PutObject")
    return error


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("no answer"),
        ConnectionResetError(),
        EndedEarlyError("x"),
        OSError(errno.EIO, "500"),
        OSError(errno.EBUSY, "slow down"),
        RuntimeError("what nobody has foreseen"),
    ],
)
def test_errors_that_may_pass(error: Exception) -> None:
    assert not is_permanent(error)
    assert explain(error, "s3").endswith("; check the network, and rerun the command")


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("x"),
        PermissionError("Forbidden"),
        FileExistsError("x"),
        OSError(errno.EINVAL, "400"),
        NotImplementedError(),
        ValueError("x"),
    ],
)
def test_errors_that_remain(error: Exception) -> None:
    assert is_permanent(error)


def test_an_upload_that_was_cut_is_repeated() -> None:
    assert not is_permanent(s3_error("IncompleteBody", OSError(errno.EINVAL, "x")))
    assert is_permanent(s3_error("InvalidArgument", OSError(errno.EINVAL, "x")))


def test_the_code_of_the_server() -> None:
    assert bucket_is_missing(s3_error("NoSuchBucket", FileNotFoundError("x")))
    assert not bucket_is_missing(s3_error("NoSuchKey", FileNotFoundError("x")))
    assert already_exists(s3_error("PreconditionFailed", OSError(errno.EINVAL, "x")))
    assert already_exists(FileExistsError())
    assert not already_exists(s3_error("AccessDenied", PermissionError("x")))


def botocore_error(name: str, **fields: Any) -> Exception:
    exceptions = pytest.importorskip("botocore.exceptions")
    made: Exception = getattr(exceptions, name)(**fields)
    return made


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("NoCredentialsError", {}),
        ("PartialCredentialsError", {"provider": "env", "cred_var": "AWS_SECRET_ACCESS_KEY"}),
        ("ProfileNotFound", {"profile": "none"}),
    ],
)
def test_credentials_that_are_absent(name: str, fields: dict[str, str]) -> None:
    error = botocore_error(name, **fields)
    assert is_permanent(error)
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in explain(error, "s3")
    assert "gcloud" in explain(error, "gs")
    assert "fsspec" in explain(error, "oci")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError("x"), "it does not exist; check the URL"),
        (PermissionError("Forbidden"), "access is denied (Forbidden); check the credentials"),
        (NotImplementedError(), "https:// cannot do this"),
        (ValueError("two\nlines"), "two lines"),
    ],
)
def test_explanations(error: Exception, words: str) -> None:
    assert explain(error, "https").startswith(words)


def test_it_is_an_input_error() -> None:
    from oodzoo.errors import InputError

    assert issubclass(RemoteError, InputError)
