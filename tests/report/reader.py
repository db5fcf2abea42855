"""A parser of the page."""

from __future__ import annotations

import base64
import csv
import io
from html.parser import HTMLParser


class Reader(HTMLParser):
    """Tags, text and CSV files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    handle_startendtag = handle_starttag

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    @property
    def text(self) -> str:
        """All text, with single spaces."""
        return " ".join("".join(self.pieces).split())

    @property
    def sections(self) -> list[str | None]:
        return [a["id"] for tag, a in self.tags if tag == "section" and "id" in a]

    @property
    def images(self) -> list[dict[str, str | None]]:
        return [a for tag, a in self.tags if tag == "img"]

    def table(self, ident: str) -> list[dict[str, str]]:
        """A CSV file of the page, parsed."""
        (href,) = (a["href"] for _, a in self.tags if a.get("download") == f"{ident}.csv")
        assert href is not None
        content = base64.b64decode(href.removeprefix("data:text/csv;charset=utf-8;base64,"))
        return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
