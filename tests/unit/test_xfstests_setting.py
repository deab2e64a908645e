"""fastsync xfstests: what a run is built of and its key, its build of the suite, its lock."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.options import CONTROL, MODES
from fastsync_lab.host.progress import Report, silent
from fastsync_lab.machine.device import DeviceProfile, load_profile
from fastsync_lab.machine.image import RootImage
from fastsync_lab.machine.initramfs import guest_scripts
from fastsync_lab.machine.uml import SCRIPT
from fastsync_lab.xfstests import command, guest
from fastsync_lab.xfstests import tree as tree_module
from fastsync_lab.xfstests.command import Request
from fastsync_lab.xfstests.results import OF_MODE, Key, Run
from fastsync_lab.xfstests.run import Setting
from fastsync_lab.xfstests.tree import Tree, build_tree, read_tree
from tests.unit.suites import KEY, PASSED, checkout

WAIT_S = 20


def setting_in(folder: Path) -> Setting:
    """A setting of files that hold their names."""

    def file(name: str) -> Path:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
        return path

    ours, stock = (ModuleSet(name, file(f"{name}/j"), file(f"{name}/e")) for name in ("x", "y"))
    kernel = KernelTree("6.12", "6.12.1-uml", "6.12.1-1", file("linux"), folder, folder, folder)
    image = RootImage(file("root"), file("busybox"), "digest", {})
    suite = Tree(folder, (), "1234", "tree", {})
    flashdev, archive = file("flashdev.ko"), file("installed.tar")
    return Setting(kernel, "src", ours, stock, flashdev, image, suite, archive)


# --- the key


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_one_setting_differ_in_modules_and_options_alone(
    mode: str, tmp_path: Path
) -> None:
    setting = setting_in(tmp_path)
    stock, ours = asdict(setting.key(CONTROL)), asdict(setting.key(mode))
    assert stock["options"] == "" and ours["options"] == guest.mount_options(mode)
    assert stock["modules_sha256"] != ours["modules_sha256"]
    assert {name for name in ours if name not in OF_MODE and ours[name] != stock[name]} == set()


def changed(key: Callable[[], Key], change: Callable[[], None]) -> set[str]:
    """What of a key is another one after a change."""
    before = asdict(key())
    change()
    return {name for name, value in asdict(key()).items() if value != before[name]}


def test_options_scripts_numbers_and_recipe_are_in_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = setting_in(tmp_path)
    script = tmp_path / "guest.sh"
    shutil.copy(guest.FUNCTIONS, script)
    monkeypatch.setattr(guest, "FUNCTIONS", script)
    profile = [load_profile(guest.PROFILE)]
    monkeypatch.setattr(guest, "load_profile", lambda _name: profile[-1])

    def use(one: DeviceProfile) -> None:
        profile.append(one)

    def key() -> Key:
        return setting.key("defer")

    def with_mode_options() -> None:
        monkeypatch.setattr(guest, "mode_options", lambda _mode: ["mtime_update=1"])

    def with_more_packages() -> None:
        packages = (*tree_module.BUILD_PACKAGES, "libssl-dev")
        monkeypatch.setattr(tree_module, "BUILD_PACKAGES", packages)

    assert changed(key, lambda: use(replace(profile[0], flush_ns=1))) == {"device"}
    assert changed(key, lambda: use(replace(profile[-1], description="", sources={}))) == set()
    assert changed(key, with_mode_options) == {"options"}
    assert changed(key, with_more_packages) == {"recipe_sha256"}
    with script.open("a") as file:
        assert changed(key, lambda: print("# x", file=file, flush=True)) == {"scripts_sha256"}
    agent = tmp_path / "agent.sh"
    agent.write_text("")
    assert changed(
        key,
        lambda: monkeypatch.setattr(guest, "guest_scripts", lambda _: {"guest/agent.sh": agent}),
    ) == {"scripts_sha256"}


def test_the_scripts_of_a_guest_are_there() -> None:
    assert all(path.is_file() for path in guest_scripts(SCRIPT).values())


# --- building the suite


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The checkouts' files that were compiled, a list for each time."""
    compiled: list[str] = []

    def compile_nothing(_place: object, folder: Path, _report: Report) -> None:
        compiled.append((folder / "source" / "check").read_text())
        (tmp_path / "cache" / "chroots" / "xfstests" / tree_module.INSTALLED).mkdir(parents=True)

    monkeypatch.setattr(tree_module, "build_dir", lambda: tmp_path / "build")
    monkeypatch.setattr(tree_module, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(tree_module, "make_once", lambda *_: None)
    monkeypatch.setattr(tree_module, "compile_copy", compile_nothing)
    return compiled


def test_a_suite_is_compiled_once_for_a_checkout_and_a_recipe(
    builds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = read_tree(checkout(tmp_path / "suite"))
    first = build_tree(suite, silent)
    assert build_tree(suite, silent) == first and len(builds) == 1
    monkeypatch.setattr(tree_module, "BUILD_PACKAGES", ("gcc",))
    other = build_tree(suite, silent)
    assert other != first and len(builds) == 2
    assert first.is_file() and other.is_file()


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_text("other")])
def test_a_checkout_that_changed_since_it_was_read_is_not_compiled(
    change: Callable[[Path], object], builds: list[str], tmp_path: Path
) -> None:
    suite = read_tree(checkout(tmp_path / "suite"))
    change(tmp_path / "suite" / "check")
    with pytest.raises(FastsyncError, match="suite has changed since it was read: try again"):
        build_tree(suite, silent)
    assert builds == []


# --- two runs


class OneByOne:
    """Machines that pass every test, once `may_end` is set."""

    def __init__(self) -> None:
        self.may_end, self.begun = Event(), Event()

    def __call__(self, *_: object) -> "OneByOne":
        return self

    def run(self, _mode: str, tests: Sequence[str], _limit_s: float) -> Iterator[tuple[str, Run]]:
        self.begun.set()
        assert self.may_end.wait(WAIT_S)
        for test in tests:
            yield test, PASSED

    def close(self) -> None:
        pass


def test_another_run_on_the_same_kernel_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = OneByOne()
    setting = SimpleNamespace(
        tree=SimpleNamespace(release="6.12.1-uml", series="6.12"),
        suite=SimpleNamespace(commit="1234"),
        source="src",
        key=lambda _mode: KEY,
    )
    monkeypatch.setattr(command, "results_dir", lambda: tmp_path)
    monkeypatch.setattr(command, "make_setting", lambda *_: setting)
    monkeypatch.setattr(command, "Machine", machines)

    def run(test: str) -> None:
        asked = Request(MagicMock(), (test,), (CONTROL, "defer"))
        command.run(asked, "6.12.1", limit_s=9, report=silent, jobs=1)

    first = Thread(target=run, args=("a",))
    first.start()
    assert machines.begun.wait(WAIT_S)
    with pytest.raises(FastsyncError, match=r"^another run is writing xfstests-6\.12\.json"):
        run("b")
    machines.may_end.set()
    first.join(WAIT_S)
    run("b")
    result: dict[str, Any] = json.loads((tmp_path / "xfstests-6.12.json").read_text())
    assert {mode: list(data["tests"]) for mode, data in result["modes"].items()} == {
        CONTROL: ["a", "b"],
        "defer": ["a", "b"],
    }
