"""Packages unpacked by dpkg into a chroot, as apt does; dpkg syncs each file before its rename.

The packages are those of the root image, packed anew from what is installed, not compressed: what
is timed is dpkg and the file system. For Ideal, a library of ours puts fdatasync() in the place of
fsync(). An operation is a file.
"""

from dataclasses import dataclass, replace

from fastsync_lab.study import eager_bars
from fastsync_lab.study.contract import FLASH, Axes, Cell, Paths, Script, Study, Workload
from fastsync_lab.study.filesystems import EAGERS, FIVE, FOUR, PEERS
from fastsync_lab.study.output import read_timed
from fastsync_lab.study.programs import DATASYNC, preload

PREPARE = """debs=/run/fastsync/debs
rm -rf "$debs" && mkdir -p chroot/var/lib/dpkg/{{info,updates,triggers}} "$debs" || return
touch chroot/var/lib/dpkg/{{status,available}}
for name in {names}; do
    mkdir -p "$debs/$name/DEBIAN" || return
    dpkg-query -s "$name" | grep -v '^Status:\\|^Conffiles:\\|^ /' >"$debs/$name/DEBIAN/control"
    dpkg -L "$name" | while read -r file; do [ ! -f "$file" ] || echo "$file"; done |
        tar -cf - --no-recursion -PT - | tar -xf - -C "$debs/$name" || return
    dpkg-deb -b -Znone "$debs/$name" "$debs/$name.deb" >/dev/null || return
done
find "$debs" -mindepth 2 -type f -not -path '*/DEBIAN/*' | wc -l >"$debs/files\""""


@dataclass(frozen=True)
class Packages(Workload):
    """Packages of the root image by their names."""

    names: tuple[str, ...]


def script(cell: Cell[Packages], paths: Paths) -> Script:
    """dpkg as apt calls it."""
    unpack = (
        f'unpack() {{\n{preload(cell, paths)}\ndpkg --root="$PWD/chroot" --force-depends '
        "--no-triggers --unpack --auto-deconfigure /run/fastsync/debs/*.deb >/dev/null\n}\n"
    )
    return Script(f"{unpack}timed \"$(</run/fastsync/debs/files)\" unpack",
                  PREPARE.format(names=" ".join(cell.workload.names)))  # fmt: skip


LARGE = Packages("perl and python", ("perl-modules-5.36", "perl-base", "libpython3.11-stdlib"))
FULL = Axes("Packages unpacked by dpkg", FLASH, (*FIVE, *EAGERS, *PEERS), (LARGE,))
SMALL = Packages("coreutils and e2fsprogs", ("coreutils", "e2fsprogs", "util-linux"))

STUDY = Study(
    name="dpkg",
    says="packages unpacked by dpkg into a chroot, as apt does",
    full=FULL,
    quick=replace(FULL, devices=("sata-ssd",), systems=(*FOUR, *EAGERS), workloads=(SMALL,)),
    script=script,
    read=read_timed,
    beside=eager_bars.TIMED,
    programs=(DATASYNC,),
    packages=("dpkg",),
)
