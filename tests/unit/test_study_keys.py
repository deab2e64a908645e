"""What a figure depends on: the key of a cell."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastsync_lab.machine import initramfs
from fastsync_lab.machine.device import load_profile
from fastsync_lab.studies import qasio, studies
from fastsync_lab.study.contract import Study
from fastsync_lab.study.filesystems import in_mode
from fastsync_lab.study.output import read_timed
from fastsync_lab.study.plan import Job, cell_record, describe
from tests.unit.settings import make_setting


def study(name: str) -> Study[Any]:
    return studies()[name]


def key(
    folder: Path,
    name: str = "overwrite",
    device: str = "emmc",
    modules: str = "stock",
    **changes: str,
) -> str:
    """The key of a study's first cell on these modules."""
    job = Job(study(name), "6.12", load_profile(device), quick=True)
    environment = describe(job, make_setting(folder, **changes))
    cell = next(one for one in job.cells if one.system.modules == modules)
    found: str = cell_record(job, cell, environment)["key"]
    return found


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("overwrite", ["stock_jbd2", "stock_ext4", "flashdev", "statwrite"]),
        ("sqlite", ["sqlbench_fsync", "sqlbench_fdatasync"]),
        ("neighbour", ["neighbour"]),
        ("qasio", ["stock_jbd2", "stock_ext4", "flashdev", "qasio", "waitbench"]),
    ],
)  # fmt: skip
def test_a_key_depends_on_the_kernel_the_modules_the_programs_and_the_device(
    name: str, inputs: list[str], tmp_path: Path
) -> None:
    first = key(tmp_path, name)
    others = [key(tmp_path, name, "ufs"), key(tmp_path, name, release="6.12.2"),
              key(tmp_path, name, root="b")]  # fmt: skip
    others += [key(tmp_path, name, **{one: "rebuilt"}) for one in inputs]
    assert len({first, *others}) == 1 + len(others)
    assert key(tmp_path, name) == first


def test_a_key_does_not_depend_on_what_the_study_has_not(tmp_path: Path) -> None:
    assert key(tmp_path, "overwrite", qasio="rebuilt") == key(tmp_path, "overwrite")
    assert key(tmp_path, "qasio", fastsync_ext4="rebuilt") == key(tmp_path, "qasio")


def test_a_key_depends_on_the_cell_s_own_modules(tmp_path: Path) -> None:
    """So stock and its peers are not measured anew when ours change."""
    ours = key(tmp_path, modules="fastsync")
    for name in ("fastsync_jbd2", "fastsync_ext4"):
        assert key(tmp_path, modules="fastsync", **{name: "rebuilt"}) != ours
        assert key(tmp_path, **{name: "rebuilt"}) == key(tmp_path)
    for name in ("stock_jbd2", "stock_ext4"):
        assert key(tmp_path, modules="fastsync", **{name: "rebuilt"}) == ours


def test_tools_are_named_with_their_versions_and_are_in_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(study("files"), "6.12", load_profile("ufs"), quick=False)
    setting = make_setting(tmp_path)
    monkeypatch.setattr("fastsync_lab.study.plan.qemu_version", lambda: "7.2.1")
    before = describe(job, setting)
    assert before["tools"] == [
        *("QEMU 7.2.1", "e2fsprogs 1.47.0", "xfsprogs 6.1.0"),
        *("btrfs-progs 6.2", "f2fs-tools 1.15.0"),
    ]
    monkeypatch.setattr("fastsync_lab.study.plan.qemu_version", lambda: "8.0")
    keys = [cell_record(job, job.cells[0], one)["key"] for one in (before, describe(job, setting))]
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("change", "is_seen"),
    [({"description": "said better"}, False), ({"sources": {}}, False), ({"fua_ns": 1}, True)],
)
def test_a_key_depends_on_a_device_s_numbers_not_on_its_words(
    change: dict[str, Any], is_seen: bool, tmp_path: Path
) -> None:
    first = Job(study("overwrite"), "6.12", load_profile("ufs"), quick=True)
    other = replace(first, profile=replace(first.profile, **change))
    setting = make_setting(tmp_path)
    keys = [cell_record(job, job.cells[0], describe(job, setting))["key"] for job in (first, other)]
    assert (keys[0] != keys[1]) == is_seen


@pytest.mark.parametrize("script", ["init.sh", "agent.sh", "qemu.sh"])
def test_a_key_depends_on_what_the_guest_runs_first(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key(tmp_path)
    guest = tmp_path / "guest"
    shutil.copytree(initramfs.GUEST, guest)
    monkeypatch.setattr(initramfs, "GUEST", guest)
    assert key(tmp_path) == before
    with (guest / script).open("a") as file:
        file.write("# changed\n")
    assert key(tmp_path) != before


def test_a_key_depends_on_how_the_guest_boots_and_how_a_run_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Job(study("overwrite"), "6.12", load_profile("ufs"), quick=True)
    setting = make_setting(tmp_path)

    def key_with(**changes: Any) -> str:
        job = replace(first, study=replace(first.study, **changes))
        found: str = cell_record(job, job.cells[0], describe(job, setting))["key"]
        return found

    keys = [key_with(), key_with(traced=False), key_with(read=read_timed)]
    monkeypatch.setattr("fastsync_lab.study.plan.KERNEL_PARAMETERS", ("quiet",))
    assert len({*keys, key_with()}) == len(keys) + 1


def test_a_key_depends_on_the_cell(tmp_path: Path) -> None:
    job = Job(study("overwrite"), "6.12", load_profile("ufs"), quick=True)
    cell = job.cells[0]
    some = [
        cell,
        replace(cell, workload=replace(cell.workload, seconds=9)),
        replace(cell, system=in_mode("defer", 5)),
        replace(cell, system=replace(cell.system, mkfs="mkfs.ext4 -O x")),
        replace(cell, scheduler=qasio.OWN),
    ]
    assert len({cell_record(job, one, {})["key"] for one in some}) == len(some)
    assert cell_record(job, cell, {"a": 1})["key"] != cell_record(job, cell, {})["key"]
