"""What lies in blocks that nobody has written, so that a file that shows them gives itself away.

Each sector of a base image has 512 bytes that say so, and which sector it is, wherever mkfs has
left it alone. ext4 promises that no crash makes them part of a file: of zeros one could not tell.
programs/crashcheck.c looks for the same.
"""

import re

from fastsync_lab.crash.trace import SECTOR, UNITS

UNIT = re.compile(rb"~junk~([0-9a-f]{8})~\n")
OF_SECTOR = " of sector "


def junk(sector: int, count: int) -> bytes:
    """What is in `count` sectors of a device, from `sector` on."""
    numbers = range(sector, sector + count)
    return b"".join(f"~junk~{number:08x}~\n".encode() * UNITS for number in numbers)


def shown(contents: bytes) -> tuple[tuple[int, int], ...]:
    """Which sectors of a file have junk somewhere, and of which sector of the device."""
    found: dict[int, int] = {}
    for unit in UNIT.finditer(contents):
        found.setdefault(unit.start() // SECTOR, int(unit[1], 16))
    return tuple(found.items())


def without_sector(problem: str) -> str:
    """A problem that does not say whose junk is shown: that is as blocks happen to be allocated."""
    return re.sub(rf"{OF_SECTOR}\d+", "", problem)
