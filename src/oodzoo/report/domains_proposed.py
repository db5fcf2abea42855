"""How the report says that domains are proposed, not given."""

from __future__ import annotations


def proposed_line(by: str | None) -> str:
    """A sentence to put next to domains; empty if they were given.

    Examples
    --------
    >>> proposed_line("camera")
    'The domains are proposed by camera, not given: a really new domain can be easier or harder.'
    >>> proposed_line(None)
    ''
    """
    if by is None:
        return ""
    return (
        f"The domains are proposed by {by}, not given: a really new domain can be easier or harder."
    )
