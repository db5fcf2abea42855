"""Errors of requests, in plain words."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from oodzoo.core.errors import InputError
from oodzoo.core.text import one_line


class RemoteError(InputError):
    """A file at a URL cannot be listed, read or written."""


# by name: the packages that raise them are optional
_NO_CREDENTIALS = {
    "CredentialRetrievalError",
    "DefaultCredentialsError",
    "NoAuthTokenError",
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
}
_UNREACHABLE = {
    "ClientConnectorError",
    "ConnectTimeoutError",
    "EndpointConnectionError",
    "ProxyConnectionError",
    "gaierror",
}
_INVALID = {"ParamValidationError", "InvalidRegionError", "NoRegionError", "UnknownServiceError"}
_EXISTS = {"PreconditionFailed", "412", "ConditionalRequestConflict"}
_PERMANENT = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    NotImplementedError,  # raised by fsspec for what a protocol cannot do, such as writing by https
    TypeError,
    ValueError,
)
_REFUSED = {errno.EINVAL, errno.EPERM, errno.ENOSYS, errno.ENAMETOOLONG, errno.EMSGSIZE}


def reported(error: Exception) -> Exception:
    """What the server has reported: fsspec calls any error of a web server a missing file."""
    cause = error.__cause__ if isinstance(error, FileNotFoundError) else error
    if not isinstance(cause, Exception) or not type(cause).__module__.startswith("aiohttp"):
        return error
    status = getattr(cause, "status", None)
    if status in (404, 410):
        return FileNotFoundError(str(cause))
    if status in (401, 403):
        return PermissionError(f"{status} {getattr(cause, 'message', '')}".strip())
    if isinstance(status, int) and 400 <= status < 500:
        return OSError(errno.EINVAL, one_line(cause))
    return cause


def bucket_is_missing(error: BaseException) -> bool:
    """Whether not only the object but its whole bucket does not exist."""
    return _code(error) == "NoSuchBucket"


def already_exists(error: BaseException) -> bool:
    """Whether an exclusive creation failed because the object exists."""
    return isinstance(error, FileExistsError) or _code(error) in _EXISTS


def explain(error: BaseException, scheme: str) -> str:
    """Say what went wrong and what to do."""
    names = {type(cause).__name__ for cause in _causes(error)}
    if names & _NO_CREDENTIALS:
        return f"there are no credentials ({one_line(error)}); {_CREDENTIALS.get(scheme, _GIVE)}"
    if names & _UNREACHABLE:
        return f"{one_line(error).rstrip('.')}; check the network, and the address of the endpoint"
    if bucket_is_missing(error):
        return "the bucket does not exist; check its name"
    if isinstance(error, FileNotFoundError):
        return "it does not exist; check the URL"
    if isinstance(error, PermissionError):
        return f"access is denied ({one_line(error)}); check the credentials and their permissions"
    if isinstance(error, NotImplementedError):
        return f"{scheme}:// cannot do this; use another protocol"
    if (
        names & _INVALID
        or isinstance(error, _PERMANENT)
        or (isinstance(error, OSError) and error.errno in _REFUSED)
    ):
        return one_line(error)
    return f"{one_line(error).rstrip('.')}; check the network, and rerun the command"


_GIVE = "see the documentation of fsspec"
_S3 = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run aws configure; for a "
    "public bucket set FSSPEC_S3_ANON=true"
)
_GS = "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"
_CREDENTIALS = {"s3": _S3, "s3a": _S3, "gs": _GS, "gcs": _GS}


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(8):
        if error is None:
            return
        yield error
        error = error.__cause__


def _code(error: BaseException) -> str:
    """The error code of S3; empty if there is none."""
    for cause in _causes(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""
