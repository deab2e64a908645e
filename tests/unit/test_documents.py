"""The documents: each link between them leads somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastsync_lab.host.paths import repo_root

LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.M)


def documents() -> list[Path]:
    """README, docs/ and what describes the patches."""
    root = repo_root()
    return [root / "README.md", *root.glob("docs/**/*.md"), *root.glob("patches/**/*.md")]


def anchors(text: str) -> set[str]:
    """What headings are called in links: in lower case, blanks as dashes, no other signs."""
    names = (re.sub(r"[^\w\- ]", "", heading).lower() for heading in HEADING.findall(text))
    return {name.strip().replace(" ", "-") for name in names}


def broken(document: Path) -> Iterator[str]:
    """Links of a document that lead nowhere."""
    for link, anchor in LINK.findall(document.read_text()):
        target = document.parent / link if link else document
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            yield f"{link}#{anchor}"


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_each_link_leads_somewhere(document: Path) -> None:
    assert list(broken(document)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("# A `b`, and c\n[1](#a-b-and-c) [2](a.md#d) [3](e.md) [4](https://f)\n")
    assert list(broken(document)) == ["a.md#d", "e.md#"]
