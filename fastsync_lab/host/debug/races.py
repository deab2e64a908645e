"""Data races that KCSAN has reported, and whose they are.

Stock ext4 and jbd2 read and write many a word without saying so (i_disksize, b_state, j_flags),
and the stock modules are reported for that as ours are. A race is ours if the access itself, or
the call that made it, is in a function of kernel/. What our patches add to a function of the
kernel's own are calls and stores; whatever these may race with stands in a function of kernel/.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from fastsync_lab.host.paths import repo_root

TITLE = re.compile(r"BUG: KCSAN: (?:data-race|assert: race) in (.+)$")
ACCESS = re.compile(
    r"(?:read|write|assert no \w+|read-write)(?: \([^)]*\))? to 0x\w+ of \d+ bytes by"
)
FRAME = re.compile(r"^(?:\[[^\]]*\])?\s+(?:\? )?([\w.]+)\+0x\w+/0x\w+")
DEFINITION = re.compile(
    r"^(?!(?:static )?(?:struct|union|enum)\b[^(]*\{)\w[\w \t*\n]*?\b(\w+)\(", re.M
)
COMPILED_APART = re.compile(r"\.(?:isra|part|constprop|cold)\b.*")

# Races of ours that are meant, or that stock ext4 has in the same place: the functions of the two
# accesses, and why each is harmless.
HARMLESS: Mapping[frozenset[str], str] = {
    frozenset({"__jbd2_fc_end_commit", "ext4_mtime_update_fsync_trans"}): (
        "is_handle_aborted(), inlined, reads one bit of j_flags while another is cleared; "
        "ext4_update_inode_fsync_trans() does the same"
    ),
}


@dataclass(frozen=True)
class Race:
    """A report: its first line as printed, and the functions of each access, innermost first."""

    line: str
    accesses: tuple[tuple[str, ...], ...]

    @property
    def functions(self) -> frozenset[str]:
        """Where the accesses are."""
        return frozenset(stack[0] for stack in self.accesses if stack)


@cache
def own_functions() -> frozenset[str]:
    """The functions that kernel/ defines."""
    files = sorted((repo_root() / "kernel").glob("*/*.[ch]"))
    return frozenset(name for file in files for name in DEFINITION.findall(file.read_text()))


def parse_races(log: str) -> list[Race]:
    """The KCSAN reports of a kernel log."""
    races = []
    lines = iter(log.splitlines())
    for line in lines:
        if not TITLE.search(line):
            continue
        accesses: list[list[str]] = []
        for follower in lines:
            if follower.endswith("=" * 20):
                break
            if ACCESS.search(follower):
                accesses.append([])
            elif accesses and (frame := FRAME.match(follower)):
                accesses[-1].append(COMPILED_APART.sub("", frame[1]))
        races.append(Race(line, tuple(tuple(stack) for stack in accesses)))
    return races


def is_ours(race: Race) -> bool:
    """Whether a function of kernel/ made one of the accesses, or called what made it.

    Of a report that lacks its accesses nobody can tell: it counts.
    """
    if race.functions in HARMLESS:
        return False
    if not race.accesses:
        return True
    return any(name in own_functions() for stack in race.accesses for name in stack[:2])


def races_of_others(log: str) -> set[str]:
    """The first lines of the reports that are not about our code."""
    return {race.line for race in parse_races(log) if not is_ours(race)}
