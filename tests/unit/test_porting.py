"""docs/porting.md: whoever ports the glue has to find each of its hooks there."""

import re
from collections.abc import Iterator

from fastsync_lab.host.paths import repo_root

PREFIX = re.compile(r"(?:ext4_mtime|ext4_eager|jbd2_burst|jbd2_carrier|jbd2_carried)(?=_|\b)")
CALLED = re.compile(rf"\b{PREFIX.pattern}\w*(?=\(|,$)")  # or put into a table of operations
NAMED = re.compile(r"`(\w+)\(\)`")
GLUE = repo_root() / "kernel" / "glue"


def called() -> set[str]:
    """The hooks that the glue of any series adds a call of."""
    lines = (line for patch in GLUE.glob("*/*.patch") for line in patch.read_text().splitlines())
    added = (line for line in lines if line.startswith("+") and not line.startswith("+++"))
    return {name for line in added for name in CALLED.findall(line)}


def named(text: str) -> Iterator[str]:
    """The hooks that rows name: the first whole, others by their ends, as in `_end_fill()`."""
    for line in text.splitlines():
        prefix = ""
        for name in NAMED.findall(line) if line.startswith("|") else ():
            if whole := PREFIX.match(name):
                prefix = whole.group()
                yield name
            elif re.match("_[a-z]", name):
                yield prefix + name


def test_the_list_of_hooks_has_all_that_the_glue_calls_and_no_other() -> None:
    assert set(named((GLUE.parents[1] / "docs" / "porting.md").read_text())) == called()
