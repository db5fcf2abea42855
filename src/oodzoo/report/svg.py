"""A small SVG writer. Colours are CSS classes, so that charts follow the theme of the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from markupsafe import Markup, escape

from oodzoo.report.numbers import shortened


class Drawing:
    """An SVG image; coordinates are pixels from the upper left.

    Title and description are for screen readers: what the image is and what it shows.
    """

    def __init__(self, width: float, height: float, title: str, description: str) -> None:
        self.width = width
        self.height = height
        self.label = f"{title}. {description}"
        self._parts: list[Markup] = []

    def _add(self, tag: str, /, **attributes: object) -> None:
        self._parts.append(_element(tag, "", attributes))

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, **more: object
    ) -> None:
        self._add("rect", x=x, y=y, width=max(width, 0), height=height, class_=kind, **more)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str, **more: object) -> None:
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind, **more)

    def circle(self, x: float, y: float, radius: float, kind: str, **more: object) -> None:
        self._add("circle", cx=x, cy=y, r=radius, class_=kind, **more)

    def path(self, data: str, kind: str, **more: object) -> None:
        self._add("path", d=data, class_=kind, **more)

    def text(
        self, x: float, y: float, text: str, kind: str = "", *, end: str = "start", **more: object
    ) -> None:
        anchor = None if end == "start" else end
        place = {"x": x, "y": y, "class": kind or None, "text_anchor": anchor}
        self._parts.append(_element("text", text, place | more))

    def name(
        self,
        x: float,
        y: float,
        name: str,
        room: float,
        kind: str = "name",
        *,
        size: float = 12,
        end: str = "start",
        **more: object,
    ) -> None:
        """A name, shortened to fit; the tooltip then shows all of it."""
        short = shortened(name, room, size)
        tip = None if short == name else name
        self.text(x, y, short, kind, end=end, data_tip=tip, **more)

    @contextmanager
    def group(self, kind: str) -> Iterator[None]:
        """Group everything that is drawn inside the `with` block."""
        outer, self._parts = self._parts, []
        try:
            yield
        finally:
            inner, self._parts = self._parts, outer
            self._parts.append(_element("g", Markup("").join(inner), {"class": kind}))

    def place(self, other: Drawing, x: float, y: float) -> None:
        """Draw another image, with its upper left at this point."""
        place = {"transform": f"translate({_rounded(x)} {_rounded(y)})"}
        self._parts.append(_element("g", Markup("").join(other._parts), place))

    def render(self, **attributes: object) -> Markup:
        """The image as an element `svg`, with further attributes."""
        content = Markup("").join([_element("title", self.label, {}), *self._parts])
        given: dict[str, object] = {
            "viewBox": f"0 0 {_rounded(self.width)} {_rounded(self.height)}",
            "role": "img",
            "aria_label": self.label,
        }
        return _element("svg", content, given | attributes)

    def __html__(self) -> Markup:
        """The image on the page; it may shrink, and grow by 15 %."""
        return self.render(style=f"max-width:{1.15 * self.width:.0f}px")


def _element(tag: str, content: str | Markup, attributes: dict[str, object]) -> Markup:
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_rounded(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if not content:
        return Markup(f"<{tag}{written}/>")
    return Markup(f"<{tag}{written}>{escape(content)}</{tag}>")


def _rounded(value: object) -> object:
    """Numbers with a tenth of a pixel, which keeps pages small."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
