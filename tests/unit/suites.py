"""A checkout of xfstests, and results of its tests, made up."""

from pathlib import Path

from fastsync_lab.host.options import CONTROL
from fastsync_lab.xfstests.results import FAIL, PASS, Key, Run

PASSED, FAILED = Run(PASS, 3), Run(FAIL, 4, "output")
BY_LOG, BY_CHECK = Run(FAIL, 4, "output, kernel log"), Run(FAIL, 4, "file system")
KEY = Key(
    kernel="6.12.1-1",
    modules_sha256="aa",
    options="",
    root_sha256="bb",
    flashdev_sha256="cc",
    device="read_ns=1",
    scripts_sha256="dd",
    tree="ee",
    recipe_sha256="ff",
    machine="gg",
)
MODES = (CONTROL, "defer")
TESTS = {
    "generic/001": frozenset({"auto", "quick"}),
    "generic/002": frozenset({"auto", "log"}),
    "ext4/001": frozenset({"quick"}),
}


def checkout(folder: Path) -> Path:
    """A folder like a checkout, with the tests above."""
    for name, groups in TESTS.items():
        path = folder / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n_begin_fstest {' '.join(sorted(groups))}\n")
    (folder / "tests" / "generic" / "001.out").write_text("QA output\n")
    (folder / "check").write_text("#!/bin/bash\n")
    return folder
