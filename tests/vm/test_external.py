"""A journal on a device of its own, while the data's device has a volatile cache."""

import pytest

from tests.vm.guestfs import FILE, MODES, NO_PERIODIC_COMMIT, GuestFs
from tests.vm.tracing import trace_requests

OPTIONS = {"off": NO_PERIODIC_COMMIT, **MODES}


@pytest.mark.short
@pytest.mark.parametrize("mode", OPTIONS)
@pytest.mark.parametrize(
    "what",
    [
        f"{{fsops}} {FILE} open append fsync",
        f"{{fsops}} {FILE} open append fdatasync",
        f"{{fsops}} {FILE} open chmod:601 overwrite:4096 fsync",
        f"{{fsops}} {FILE} open append writeback sleep:100 syncfs",
    ],
    ids=["append", "fdatasync", "overwrite", "syncfs"],
)
def test_the_data_is_flushed(fs: GuestFs, external: str, mode: str, what: str) -> None:
    """A commit whose blocks are on the journal's device flushes the data's as well, behind it."""
    with fs.mounted(OPTIONS[mode], mkfs=external):
        fs.prepare()
        sent = trace_requests(fs.vm, what.format(fsops=fs.fsops_path)).requests
    written = [at for at, one in enumerate(sent) if one.is_write]
    assert written and any(one.is_flush for one in sent[written[0] :]), sent
