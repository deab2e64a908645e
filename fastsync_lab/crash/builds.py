"""What a run of the explorer is built of: kernels, modules, the device model, the root image."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastsync_lab.host.build import ModuleSet, build_flashdev, build_modules, source_digest
from fastsync_lab.host.debug.kernel import uml_kernel
from fastsync_lab.host.errors import check_names
from fastsync_lab.host.fetch import fetch_kernel
from fastsync_lab.host.kernels import UML, KernelTree, files_digest
from fastsync_lab.host.paths import repo_root
from fastsync_lab.host.progress import Report
from fastsync_lab.machine.image import RootImage, root_image

QEMU = "qemu"
MACHINES = (UML, QEMU)  # to recover in
UNDECIDING = ("kernel_release", "source_sha256")  # for a reader; other keys cover them


@dataclass(frozen=True)
class Recovery:
    """The kernel that recovers states, its own modules, and ours for it."""

    tree: KernelTree
    stock: ModuleSet
    ours: ModuleSet


@dataclass(frozen=True)
class Builds:
    """What a run needs: the modules that it explores, the kernel's own, the device model.

    States are recovered by another build of that kernel, or in the machine that records: by the
    kernel's own modules, and some by ours, too.
    """

    tree: KernelTree
    subject: ModuleSet
    stock: ModuleSet
    flashdev: Path
    image: RootImage
    recovery: Recovery | None = None

    @property
    def recovered_by(self) -> str:
        """What decides what comes of a state, for a result."""
        by = self.recover_by
        modules = f"{module_digest(by.stock)} and {module_digest(by.ours)}"
        return f"{by.tree.identity}, modules {modules}"

    @property
    def recover_by(self) -> Recovery:
        """What recovers, in a machine of its own or not."""
        return self.recovery or Recovery(self.tree, self.stock, self.subject)

    @property
    def record(self) -> dict[str, Any]:
        """What a result says of it; all but UNDECIDING decides what comes of a run."""
        return {
            "kernel_release": self.tree.release,
            "debian_version": self.tree.debian_version,
            "modules": self.subject.name,
            "modules_sha256": module_digest(self.subject),
            "source_sha256": source_digest(self.tree.series),
            "root_sha256": self.image.digest,
            "flashdev_sha256": files_digest([self.flashdev]),
        }


def module_digest(modules: ModuleSet) -> str:
    """A hash of a pair of modules."""
    return hashlib.sha256(modules.jbd2.read_bytes() + modules.ext4.read_bytes()).hexdigest()[:16]


def deciding(of_run: Iterable[str]) -> tuple[str, ...]:
    """Those keys that parts of another run have to share to be taken up."""
    return tuple(key for key in of_run if key not in UNDECIDING)


def delays_patch() -> Path:
    """What makes modules delay, by DELAY_SEED, what they do with what they have chosen."""
    return repo_root() / "tests" / "delays.patch"


def check_machine(name: str) -> None:
    """Raise UsageError for a machine to recover in that there is not."""
    check_names("machine", [name], MACHINES)


def prepare(
    kernel: str, report: Report, *, fault: Path | None = None, recover_in: str = UML
) -> Builds:
    """Fetch and build what is missing; `fault` is a patch that breaks the subject.

    Raises UsageError for a machine that there is not.
    """
    check_machine(recover_in)
    tree = fetch_kernel(kernel, report=report)
    recovery = None
    if recover_in == UML:
        other = uml_kernel(tree, report=report)
        recovery = Recovery(
            other,
            build_modules(other, stock=True, report=report),
            build_modules(other, report=report),
        )
    return Builds(
        tree,
        build_modules(tree, fault=fault, report=report),
        build_modules(tree, stock=True, report=report),
        build_flashdev(tree, report=report),
        root_image(report=report),
        recovery,
    )
