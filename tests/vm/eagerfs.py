"""What tests of eager_sync say: its numbers, its requests, and what a crash leaves of files."""

from fastsync_lab.machine.trace import SECTOR_BYTES
from tests.vm.guestfs import (
    CRASH_IMAGE,
    FILE,
    MNT,
    NO_PERIODIC_COMMIT,
    GuestFs,
    changed_in_log,
)
from tests.vm.tracing import trace_requests

OPTIONS = f"eager_sync=100,{NO_PERIODIC_COMMIT}"
Sent = tuple[str, int]  # the kind of a request, as the kernel has it, and its bytes

# For one script after another. Images and files are compared in the guest's memory.
TOOLS = """
f={file}; m={mnt}; img={image}
o() {{ {fsops} "$@" || exit 3; }}
s() {{ echo stats $(grep -v in_force /sys/fs/ext4/{node}/eager_stats); }}
settle() {{ o $m freeze thaw; }}
# How much of a file is X. If nobody can read it, open() says EIO, or a page is a SIGBUS.
old() {{
    n=$({fsops} "$@" mcount:X 2>/dev/shm/why) || {{
        [ $? = 135 ] || grep -q 'Input/output error' /dev/shm/why || exit 6
        n=0
    }}
    echo stats old $n
}}
# What the medium holds now, and what the page cache shows of these files: nothing newer.
cut() {{ o $f crash:$img; for n; do cp $m/$n /dev/shm/want.$n || exit 4; done; }}
same() {{
    for n; do
        debugfs -R "dump /$n /dev/shm/got" $img 2>/dev/null
        cmp /dev/shm/got /dev/shm/want.$n >&2 || exit 7
        rm /dev/shm/got
    done
}}
# These files are on the medium; what the log has need not be replayed for that.
placed() {{ cut "$@"; same "$@"; }}
# They are there after recovery.
kept() {{
    e2fsck -fy $img >/dev/shm/fsck.log 2>&1; [ $? -le 1 ] || {{ cat /dev/shm/fsck.log; exit 9; }}
    e2fsck -fn $img || exit 8
    same "$@"
}}
cut_keeps() {{ cut "$@"; kept "$@"; }}
# Recovered by the kernel, and mounted at /dev/shm/m, with more options if there are any.
opened() {{
    modprobe loop; mkdir -p /dev/shm/m
    mount -o "loop${{1:+,$1}}" $img /dev/shm/m || exit 12
}}
"""


def run(fs: GuestFs, script: str) -> list[dict[str, int]]:
    """Run a script that uses TOOLS; the numbers that each `s` of it has printed."""
    text = fs.vm.run(_tools(fs) + script).stdout
    lines = (line.split()[1:] for line in text.splitlines() if line.startswith("stats "))
    return [dict(zip(line[::2], map(int, line[1::2]), strict=True)) for line in lines]


def _tools(fs: GuestFs) -> str:
    node = fs.node
    return TOOLS.format(file=FILE, mnt=MNT, image=CRASH_IMAGE, fsops=fs.fsops_path, node=node)


def stats(fs: GuestFs) -> dict[str, str]:
    node = fs.node
    text = fs.vm.run(f"cat /sys/fs/ext4/{node}/eager_stats").stdout
    return dict(line.split(" ", 1) for line in text.splitlines())


def barriers(fs: GuestFs) -> dict[str, int]:
    """How many commits have had barriers, by reason."""
    counted = {name.removeprefix("barriers_"): value for name, value in stats(fs).items()}
    return {name: int(value) for name, value in counted.items() if value.isdecimal()}


def requests(fs: GuestFs, commands: str, *, before: str = "") -> list[Sent]:
    """What the commands send to the device.

    `before`, which uses TOOLS, leaves copies in the log that are still there.
    """
    traced = trace_requests(fs.vm, commands, before=_tools(fs) + before)
    return [(one.rwbs, one.sectors * SECTOR_BYTES) for one in traced.requests]


def bursts_of(sent: list[Sent]) -> list[int]:
    """The bytes written before each flush; nothing but plain writes of the log, and flushes."""
    sizes, pending = [], 0
    for kind, size in sent:
        assert kind in ("WSM", "FF"), sent
        pending += size
        if kind == "FF":
            sizes.append(pending)
            pending = 0
    assert not pending, sent
    return sizes


def journal(fs: GuestFs, device: str = "") -> dict[str, str]:
    """What dumpe2fs says of the journal."""
    text = fs.vm.run(f"dumpe2fs -h {device or fs.device} 2>/dev/null").stdout
    pairs = (line.partition(":") for line in text.splitlines() if line.startswith("Journal"))
    return {name: value.strip() for name, _, value in pairs}


def in_force(fs: GuestFs) -> list[str]:
    """The options of eager_sync that are shown."""
    return [option for option in fs.shown_options() if "eager" in option]


def burst_blocks(fs: GuestFs) -> list[int]:
    """Where the one burst is that the images differ by: its descriptor, its block, its record."""
    blocks = changed_in_log(fs)
    assert len(blocks) == 3, blocks
    return blocks
