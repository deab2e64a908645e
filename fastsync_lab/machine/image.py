"""What a guest boots from: an immutable root image, and the modules of its kernel as another.

Both are erofs, not compressed, and reach the guest as memory: a program is mapped from there and
not copied, so that to start one takes no answer of the host. images.toml has a table for each root
image. An image gets its final name only when it is whole.
"""

import hashlib
import json
import re
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fastsync_lab.host.chroot import Recipe, make_once
from fastsync_lab.host.errors import FastsyncError, check_names
from fastsync_lab.host.kernels import KernelTree, file_checksum
from fastsync_lab.host.paths import cache_dir, locked
from fastsync_lab.host.progress import Report, silent
from fastsync_lab.host.shell import run

DEFAULT = "default"
# What the kernel takes of persistent memory.
ALIGNMENT = 2 << 20
# Of the machine that made it, of the moment, or of no use without apt.
NOT_PACKED = (
    "etc/hostname",
    "etc/machine-id",
    "etc/resolv.conf",
    "var/cache",
    "var/lib/apt/lists",
    "var/lib/dpkg/status-old",
    "var/log",
)
# All that decides how an image is packed; a part of its name.
PACKING = ("mkfs.erofs", "-T0", "--all-root", "-Enosbcrc", "-x-1", "--quiet")
SAME_UUID = "fa575c00-0000-4000-8000-000000000001"


@dataclass(frozen=True)
class RootImage:
    """A root image: its file, the busybox that is in it, its SHA-256, its packages' versions."""

    path: Path
    busybox: Path
    digest: str
    packages: Mapping[str, str]

    def version(self, package: str) -> str:
        """The upstream version of a package, without what Debian adds."""
        return re.sub(r"^\d+:|-[^-]*$", "", self.packages[package])


def image_names() -> list[str]:
    """The root images there are."""
    return list(load_recipes())


def load_recipes() -> dict[str, Recipe]:
    """The recipes of images.toml, by name."""
    tables = tomllib.loads(Path(__file__).with_name("images.toml").read_text())["image"]
    return parse_recipes(tables)


def parse_recipes(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Recipe]:
    """The recipes of tables; a base stands before what is based on it.

    Raises FastsyncError for a base that does not.
    """
    recipes: dict[str, Recipe] = {}
    for name, table in tables.items():
        packages = tuple(table["packages"])
        if "base" not in table:
            fields = {key: tuple(table[key]) for key in ("suites", "leave_out")}
            recipes[name] = Recipe(table["release"], packages=packages, **fields)
        elif table["base"] in recipes:
            base = recipes[table["base"]]
            recipes[name] = replace(base, packages=(*base.packages, *packages))
        else:
            raise FastsyncError(f"images.toml: {name} is based on {table['base']}, not above it")
    return recipes


def image_folder(name: str, recipe: Recipe) -> Path:
    """Where an image lies; named by all that goes into it but the packages' versions."""
    inputs = json.dumps([asdict(recipe), NOT_PACKED, PACKING, SAME_UUID, ALIGNMENT])
    digest = hashlib.sha256(inputs.encode()).hexdigest()[:16]
    return cache_dir() / "images" / f"{name}-{digest}"


def root_image(name: str = DEFAULT, *, report: Report = silent) -> RootImage:
    """The root image of that name; it is made if it is not there.

    Raises UsageError for an unknown name, FastsyncError when it cannot be made.
    """
    recipes = load_recipes()
    check_names("root image", [name], list(recipes))
    folder = image_folder(name, recipes[name])
    make_once(recipes[name], folder, f"the root image {name}", report, pack_root)
    contents = json.loads((folder / "contents.json").read_text())
    return RootImage(folder / "root.erofs", folder / "busybox", **contents)


def pack_root(system: Path, folder: Path) -> None:
    """Put the image of a Debian system into a folder, and beside it what is to be known of it."""
    for name in NOT_PACKED:
        path = system / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            path.mkdir()
        else:
            path.unlink(missing_ok=True)
    shutil.copy(system / "bin" / "busybox", folder / "busybox")
    image = folder / "root.erofs"
    pack(system, image)
    packages = parse_status((system / "var" / "lib" / "dpkg" / "status").read_text())
    contents = {"digest": file_checksum(image), "packages": packages}
    (folder / "contents.json").write_text(json.dumps(contents, indent=1) + "\n")


def parse_status(text: str) -> dict[str, str]:
    """The version of each package in dpkg's status file."""
    stanzas = re.finditer(r"^Package: (\S+)\n(?:.+\n)*?Version: (\S+)$", text, re.MULTILINE)
    return {match[1]: match[2] for match in stanzas}


def pack(folder: Path, image: Path) -> None:
    """Pack a folder as an erofs of a size that a guest can have as memory."""
    run([*PACKING, f"-U{SAME_UUID}", str(image), str(folder)])
    with image.open("r+b") as file:
        file.truncate(-(-image.stat().st_size // ALIGNMENT) * ALIGNMENT)


def modules_image(tree: KernelTree) -> Path:
    """The image of a kernel's /lib/modules/RELEASE, made beside the kernel if it is not there.

    A kernel that is built anew has another folder beside it.
    """
    image = tree.vmlinuz.with_name(f"modules-{tree.release}.erofs")
    with locked(image.with_suffix(".lock")):
        if not image.is_file():
            half = image.with_suffix(".half")
            half.unlink(missing_ok=True)
            pack(tree.modules_dir, half)
            half.rename(image)
    return image
