"""The host's programs that each command runs, looked for before anything is fetched or built.

A program of the guest's does not belong here. To let a command run another program of the host's,
add it to the group of the work that runs it; `make setup` has to install it (APT_PACKAGES).
"""

import os
import re
import shutil
from collections.abc import Iterable, Sequence

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.paths import build_dir, cache_dir

# What kernels and programs are made with, and what makes the chroots in which some are.
BUILD = ("apt-cache", "apt-get", "dpkg-deb", "tar", "xz", "depmod", "patch", "make", "gcc", "strip",
         "mmdebstrap", "bwrap", "unshare")  # fmt: skip
SERIES = ("git",)
# What else a kernel is made with: one that looks for bugs, or User-Mode Linux.
DEBUG_KERNEL = ("bc", "bison", "flex", "perl")
GUEST = ("qemu-system-x86_64", "setpriv", "prlimit", "taskset", "modprobe", "mkfs.erofs")
IMAGES = ("mkfs.ext4", "dumpe2fs", "debugfs", "e2fsck")  # file systems that the host makes or reads
DATABASE = ("mariadbd",)

PLAIN_PATH = r"[\w/.+~@=-]+"  # make and the kernel's makefiles split or expand all else
SYSTEM_FOLDERS = ("/usr/sbin", "/sbin")  # not everybody's PATH has them


def missing(programs: Iterable[str]) -> list[str]:
    """Those of the programs that this machine has not, each once, in their order."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *SYSTEM_FOLDERS])
    return [name for name in dict.fromkeys(programs) if shutil.which(name, path=path) is None]


def check_programs(*groups: Sequence[str]) -> None:
    """Raise FastsyncError that names every program of these groups that is missing.

    Or, if something is to be built, a folder in which the kernel's makefiles cannot.
    """
    if names := missing(name for group in groups for name in group):
        raise FastsyncError(f"missing on this machine: {', '.join(names)}; try `make setup`")
    for folder in (build_dir(), cache_dir()) if BUILD in groups else ():
        if not re.fullmatch(PLAIN_PATH, str(folder)):
            raise FastsyncError(
                f"nothing can be built in {folder}: a path may have letters, digits and /._+~@=-"
            )
