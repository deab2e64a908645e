"""User-Mode Linux: a kernel that is a program of the host, and the machine of a guest at once.

It boots in a tenth of a second and runs at a tenth of the host's speed, where QEMU emulates each
instruction. It has the host's clock, so nothing that happens in it is told in figures, and one
processor. What it has of the host comes by names in its folder, where it starts: the images as
disks, folders by hostfs, the agent's ports as serial lines. Root in the guest can do to the host
what the user can who started it: it runs what is ours.

The kernel and each program in it are processes of the host that take turns at each system call. So
a guest keeps to one processor of the host: there a program starts twice as fast as on two, and a
system call takes a quarter of the time.
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastsync_lab.host.paths import cache_dir, try_lock
from fastsync_lab.machine.config import Machine, Setting, VmConfig, die_with_us, shared
from fastsync_lab.machine.image import modules_image

MEMORY = "/dev/shm"  # a tmpfs, for the file that is the guest's memory: nobody else sees it
# A panic ends it, with an abort(). Of what is written to /dev/kmsg nothing is left out.
# Where kernel and host can, a program's system calls are caught by seccomp: faster than by ptrace.
SCRIPT = "uml.sh"  # in machine/guest/
KERNEL_PARAMETERS = (
    "panic=-1",
    "printk.devkmsg=on",
    "con=null",
    "con0=null,fd:1",
    "ssl=null",
    "seccomp=auto",
)


NAMES = "host"  # the folder's part with names for what is the host's


def link(folder: Path, name: str, target: Path) -> str:
    """A name in the folder for a file of the host: UML cuts paths at spaces, commas and colons."""
    path = Path(NAMES, name)
    (folder / path).symlink_to(target)
    return str(path)


@contextmanager
def claimed_processor(folder: Path) -> Iterator[tuple[int, int]]:
    """A processor of the host for a guest, and the file descriptor that claims it.

    It is one that no other guest has claimed; any, if there is none. The claim is a lock in
    `folder`, and ends when all have closed the descriptor, the guest among them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    processors = sorted(os.sched_getaffinity(0))
    for number in processors:
        with (folder / str(number)).open("w") as claim:
            if try_lock(claim):
                yield number, claim.fileno()
                return
    with (folder / "none").open("w") as claim:
        yield random.choice(processors), claim.fileno()


def uml_machine(config: VmConfig, setting: Setting) -> Machine:
    """The machine that the kernel itself is; puts the names into the folder."""
    tree, folder = config.tree, setting.folder
    mail = folder / NAMES / "mail"
    mail.mkdir(parents=True)
    for tag, share in shared(config, setting.out_dir).items():
        link(folder, tag, share.folder)
    processor, claim = setting.held.enter_context(claimed_processor(cache_dir() / "processors"))
    argv = ["taskset", "--cpu-list", str(processor)]
    argv += ["prlimit", "--core=0", str(tree.vmlinuz), f"mem={config.memory_mib}M"]
    argv += [
        f"initrd={setting.initramfs.relative_to(folder)}",
        f"hostfs={folder / NAMES}",
        "uml_dir=.",
    ]
    argv += [f"ubd0r={link(folder, 'root', setting.image.path)}"]
    argv += [f"ubd1r={link(folder, 'modules', modules_image(tree))}"]
    argv += KERNEL_PARAMETERS
    for number, descriptor in enumerate(setting.ports.values()):
        argv.append(f"ssl{number}=fd:{descriptor}")
    argv += config.parameters
    return Machine(die_with_us(argv), SCRIPT, env={"TMPDIR": MEMORY}, mail=mail, keeps=(claim,))
