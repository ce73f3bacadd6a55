"""HTML as a browser would take it: which tags there are, whether they close, and what is text."""

from __future__ import annotations

import base64
from html.parser import HTMLParser

EMPTY = {"img", "br"}
TAGS = {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "img", "details", "summary", "progress"}
"""What our pages are made of; anything else came in with a name."""


class Page(HTMLParser):
    """A parsed piece of HTML; one that is not well formed is an assertion."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.images: list[tuple[str, bytes]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], f"never closed: {self._open}"
        assert set(self.tags) <= TAGS, set(self.tags) - TAGS

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "img":
            kept = dict(attrs)
            assert set(kept) == {"alt", "src"}, kept
            kind, _, coded = kept["src"].partition(",")
            assert kind == "data:image/png;base64"
            self.images.append((kept["alt"], base64.b64decode(coded)))
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data):
        self.texts.append(data)
        if self._open[-1:] in (["th"], ["td"]):
            self.rows[-1].append(data)
