"""The built documentation: its pages, and what they link to."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "docs" / "_build" / "html"
GENERATED = {"genindex", "search", "py-modindex"}


class Page(HTMLParser):
    """Identifiers and links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.identifiers: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name"):
                self.identifiers.add(value or "")
            elif name in ("href", "src"):
                self.links.append(value or "")


def pages() -> dict[str, Page]:
    """All pages by their address, such as "concepts/scores"."""
    found = sorted(BUILT.rglob("*.html"))
    names = {path.relative_to(BUILT).with_suffix("").as_posix(): path for path in found}
    return {name: Page(path) for name, path in names.items() if not name.startswith("_")}
