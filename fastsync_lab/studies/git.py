"""A thousand commits with git, which syncs its objects and references (core.fsync=committed).

git knows no fdatasync(): for Ideal, a library of ours puts it in the place of fsync().
"""

from dataclasses import dataclass, replace

from fastsync_lab.study import eager_bars
from fastsync_lab.study.contract import FLASH, Axes, Cell, Paths, Script, Study, Workload
from fastsync_lab.study.filesystems import EAGERS, FIVE, FOUR, PEERS
from fastsync_lab.study.output import read_timed
from fastsync_lab.study.programs import DATASYNC, preload

PREPARE = """git init -q --initial-branch=main repository && cd repository || return
git config user.name study && git config user.email study@localhost || return
git config core.fsync committed && git config gc.auto 0 || return
for i in {0..49}; do echo "$i" >"file$i"; done
git add . && git commit -qm first"""


@dataclass(frozen=True)
class Commits(Workload):
    """So many commits, each of a change to one of 50 files."""

    operations: int = 1000


def script(cell: Cell[Commits], paths: Paths) -> Script:
    """The commits."""
    count = cell.workload.operations
    return Script(
        f"""commits() {{
    {preload(cell, paths)}
    for ((i = 0; i < {count}; i++)); do
        echo "change $i" >"file$((i % 50))" && git commit -qam "$i" || return
    done
}}
timed {count} commits""",
        PREPARE,
    )


FULL = Axes("A thousand git commits", FLASH, (*FIVE, *EAGERS, *PEERS), (Commits("commit"),))
QUICK = replace(
    FULL, title="A hundred git commits", devices=("sata-ssd",), systems=(*FOUR, *EAGERS)
)

STUDY = Study(
    name="git",
    says="a thousand git commits that sync what they write",
    full=FULL,
    quick=replace(QUICK, workloads=(Commits("commit", 100),)),
    script=script,
    read=read_timed,
    beside=eager_bars.TIMED,
    programs=(DATASYNC,),
    packages=("git",),
    image="studies",
)
