"""Logs of dm-log-writes, made up."""

from fastsync_lab.crash.log import ENTRY, FLUSH, FUA, MAGIC, MARK, SUPER

SECTOR = 512
Entry = tuple[int, int, bytes]  # flags, sector, data or a mark's text
FLUSHED: Entry = (FLUSH, 0, b"")


def entry_bytes(entry: Entry, sector_size: int) -> bytes:
    flags, sector, data = entry
    text = data if flags & MARK else b""
    body = b"" if flags & MARK else data
    scale = sector_size // SECTOR
    head = ENTRY.pack(sector // scale, len(body) // sector_size, flags, len(text)) + text
    return head.ljust(sector_size, b"\0") + body


def make_log(*entries: Entry, sector_size: int = SECTOR, end: bool = True) -> bytes:
    all_entries = [*entries, *([(MARK, 0, b"dm-log-writes-end")] if end else [])]
    head = SUPER.pack(MAGIC, 1, len(all_entries), sector_size).ljust(sector_size, b"\0")
    return head + b"".join(entry_bytes(entry, sector_size) for entry in all_entries)


def write(sector: int, letter: str, count: int = 1) -> Entry:
    return 0, sector, letter.encode() * count * SECTOR


def mark(number: int) -> Entry:
    return MARK, 0, str(number).encode()


def fua(sector: int, letter: str) -> Entry:
    return FUA, sector, letter.encode() * SECTOR
