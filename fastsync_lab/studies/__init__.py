"""The studies: one file each, with a value STUDY. Whoever adds a file has added a study."""

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

from fastsync_lab.study.contract import Study
from fastsync_lab.study.rows import place_in

# In a reader's order; others come after them.
ORDER = (
    *("overwrite", "fstat", "sqlite", "files", "mobile", "git", "dpkg", "neighbour", "beside"),
    *("sustained", "plain", "interval", "qasio"),
)


@cache
def studies() -> dict[str, Study[Any]]:
    """All studies, by name."""
    modules = [import_module(f"{__name__}.{one.name}") for one in pkgutil.iter_modules(__path__)]
    found = {module.STUDY.name: module.STUDY for module in modules}
    return {name: found[name] for name in sorted(found, key=lambda name: place_in(name, ORDER))}
