"""HTML of what documents are made of: paragraphs, tables, figures. The page is report.html."""

import base64
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template

from fastsync_lab.study.figures import Figure
from fastsync_lab.study.grid import Grid, Part
from fastsync_lab.study.plot import svg_of

TEMPLATE = Path(__file__).with_name("report.html")
FILTERED = 12  # rows from which on a table has a field to look for words

INLINE = (
    (re.compile(r"`([^`]+)`"), r"<code>\1</code>"),
    (re.compile(r"\*\*([^*]+)\*\*"), r"<strong>\1</strong>"),
    (re.compile(r"\*([^*]+)\*"), r"<em>\1</em>"),
    (re.compile(r"\[([^\]]+)\]\([^)]*\)"), r"\1"),
)


def inline(text: str) -> str:
    """A line of Markdown: code, strong, emphasis, and of a link its words."""
    found = escape(text, quote=False)
    for pattern, replacement in INLINE:
        found = pattern.sub(replacement, found)
    return found


def element(name: str, inside: str, **attributes: str) -> str:
    """An element; a trailing _ of an attribute's name is left out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{said}>{inside}</{name}>"


def paragraph(text: str) -> str:
    """A paragraph of Markdown: a list, a heading, or text."""
    if text.startswith("- "):
        items = (line.removeprefix("- ") for line in text.splitlines())
        return element("ul", "".join(element("li", inline(item)) for item in items))
    if found := re.match(r"(#+) (.*)", text):
        return element(f"h{len(found[1])}", inline(found[2]))
    return element("p", inline(text))


def table(grid: Grid, extra: Sequence[str] = (), extra_head: str = "") -> str:
    """A table whose columns can be sorted; `extra` is HTML for one more column."""
    heads = [
        element(
            "th",
            element("button", inline(head), type="button"),
            **({} if place < grid.texts else {"class_": "n"}),
        )
        for place, head in enumerate(grid.head)
    ]
    if extra:
        heads.append(element("th", extra_head))
    rows = []
    for index, line in enumerate(grid.lines):
        cells = [
            element("td", inline(text), **({} if place < grid.texts else {"class_": "n"}))
            for place, text in enumerate(line)
        ]
        if extra:
            cells.append(element("td", extra[index]))
        rows.append(element("tr", "".join(cells)))
    field = '<input type="search" placeholder="only rows with these words" aria-label="filter">'
    body = element("thead", element("tr", "".join(heads))) + element("tbody", "".join(rows))
    drawn = element("div", element("table", body), class_="wide")
    return (field if len(rows) >= FILTERED else "") + drawn


def parts_of(parts: Iterable[Part]) -> str:
    """Paragraphs and tables, one beneath the other."""
    return "\n".join(table(part) if isinstance(part, Grid) else paragraph(part) for part in parts)


def figure_of(figure: Figure) -> str:
    """A figure as an image that is in the page itself."""
    data = base64.b64encode(svg_of(figure).encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(figure.alt)}">'


def figures_html(figures: Iterable[Figure]) -> str:
    """Figures beside each other, as many as there is room for."""
    drawn = "\n".join(map(figure_of, figures))
    return element("div", drawn, class_="figures") if drawn else ""


def folded(title: str, inside: str) -> str:
    """What is shown when a reader asks for it."""
    return element("details", element("summary", inline(title)) + inside)


def document(title: str, links: Iterable[tuple[str, str]], body: str) -> str:
    """The whole page; `links` are the sections by id and name."""
    items = "".join(element("a", escape(name), href=f"#{one}") for one, name in links)
    template = Template(TEMPLATE.read_text())
    return template.substitute(title=escape(title), links=items, body=body)
