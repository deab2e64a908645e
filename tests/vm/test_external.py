"""A journal on a device of its own, while the data's device has a volatile cache."""

import pytest

from tests.vm.guestfs import FILE, MODES, NO_PERIODIC_COMMIT, GuestFs, trace_requests

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
        trace = trace_requests(fs.vm, what.format(fsops=fs.fsops_path))
    kinds = [line.split("block_rq_issue: ")[1].split()[1] for line in trace.splitlines()
             if "block_rq_issue" in line]  # fmt: skip
    written = [at for at, kind in enumerate(kinds) if kind.startswith("W")]
    assert written and "FF" in kinds[written[0] :], trace
