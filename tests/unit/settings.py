"""What guests of a run share, made up: files that hold their names."""

from pathlib import Path

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.image import RootImage
from fastsync_lab.studies import studies
from fastsync_lab.study.plan import Setting

PACKAGES = {
    "fio": "3.33-3",
    "git": "1:2.39-1",
    "dpkg": "1.21-1",
    "e2fsprogs": "1.47.0-2",
    "xfsprogs": "6.1.0-1",
    "btrfs-progs": "6.2-1",
    "f2fs-tools": "1.15.0-1",
}


def make_setting(
    folder: Path, *, release: str = "6.12.1", root: str = "a", **contents: str
) -> Setting:
    """What guests share; each file holds its name, or what `contents` says of it."""

    def file(name: str, where: str = "") -> Path:
        path = folder / (where or name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(contents.get(name.replace("-", "_").split(".")[0], name))
        return path

    image = RootImage(folder, folder, root, PACKAGES)
    tree = KernelTree("6.12", f"{release}-amd64", f"{release}-1", folder, folder, folder, folder)
    pairs = {
        x: ModuleSet(x, *(file(f"{x}_{name}", f"{x}/{name}.ko") for name in ("jbd2", "ext4")))
        for x in ("stock", "fastsync")
    }
    programs = {p.name: file(p.name) for one in studies().values() for p in one.programs}
    modules = {name: file(name) for name in ("flashdev", "qasio")}
    images = {one.image: image for one in studies().values()}
    sources = {name: f"sources of {name}" for name in ("fastsync", "qasio")}
    return Setting(tree, pairs, modules, programs, images, sources)
