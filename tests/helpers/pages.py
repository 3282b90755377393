"""HTML pages as trees of elements."""

from html.parser import HTMLParser
from pathlib import Path

VOID = ("meta", "br", "input")  # elements without an end tag


class Element:
    """An element of a page.

    Attributes:
        tag: its name; "" for the page itself.
        attributes: its attributes.
        text: the text of the element, without tooltips of pictures.
        tooltip: the text of its tooltip.
    """

    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag, self.attributes = tag, attributes
        self.text = self.tooltip = ""
        self._inside: list[Element] = []

    def all(self, tag: str, kind: str | None = None) -> list["Element"]:
        """Return the elements inside of this one that have a tag and, unless None, a class, in their order."""
        return [
            each
            for each in self._inside
            if each.tag == tag and (kind is None or kind in (each.attributes.get("class") or "").split())
        ]


class _Reader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.page = Element("", {})
        self._open = [self.page]
        self.feed(text)
        self.close()
        assert self._open == [self.page], "an element is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        for each in self._open:
            each._inside.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for each in self._open:
            each._inside.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1].tag == "title":
            self._open[-2].tooltip += data
            return
        for each in self._open:
            each.text += data


def read_page(path: Path) -> Element:
    """Return a page, which must need no other file and no network, and whose elements must be closed in order."""
    text = path.read_text(encoding="utf-8")
    page = _Reader(text).page
    for element in page._inside:
        for name in ("src", "href", "action"):
            assert (element.attributes.get(name) or "#").startswith(("#", "data:")), element.attributes
        assert not any(name.startswith("on") for name in element.attributes), "a text became a script"
    assert "http" not in text
    return page
