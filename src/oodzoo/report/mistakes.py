"""Images that are confidently misclassified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oodzoo.data.files import StoredFile, UnreadableImageError
from oodzoo.diagnostics.classes import Mistake
from oodzoo.report.blocks import Card, Cards, Thumbnail
from oodzoo.report.data import thumbnail_url
from oodzoo.report.numbers import number

SIDE = 112
"""Pixels of a thumbnail."""


def mistakes_gallery(
    mistakes: Iterable[Mistake], files: Mapping[str, StoredFile], title: str = "Confident mistakes"
) -> Cards:
    """The mistakes with their images; where an image is not at hand, a line of text.

    Parameters
    ----------
    mistakes : iterable of Mistake
    files : dict of str to StoredFile
        Where images are, by :attr:`Mistake.key <oodzoo.diagnostics.classes.Mistake.key>`.
    title : str
    """
    return Cards(title, [_card(each, files) for each in mistakes])


def _card(mistake: Mistake, files: Mapping[str, StoredFile]) -> Card:
    verdict = f"{mistake.predicted}, {number(mistake.confidence)} %"
    text = f"{mistake.label} in {mistake.domain}, predicted as {verdict}"
    try:
        image = Thumbnail(thumbnail_url(files[mistake.key], SIDE), text)
    except (KeyError, UnreadableImageError):
        image = None
    return Card(mistake.path, [("true", mistake.label), ("predicted", verdict)], image)
