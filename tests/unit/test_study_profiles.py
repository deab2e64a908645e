"""What an fsync costs on each modelled device, in docs/device-model.md."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from fastsync_lab.machine.device import load_profile
from fastsync_lab.study import profiles
from fastsync_lab.study.documents import marks
from fastsync_lab.study.grid import Grid
from fastsync_lab.study.rows import Line
from fastsync_lab.study.store import Result
from tests.unit.study_results import line

STOCK = {"requests": 2.5, "kib_journal": 9.0, "kib": 12.0, "ops_per_s": 200.0}


def results(*lines: Line, study: str = "overwrite") -> list[Result]:
    return [cast(Result, SimpleNamespace(study=study, lines=lines))]


def pair(device: str, **other: str) -> tuple[Line, Line]:
    where = {"study": "overwrite", "device": device, "workload": "random", **other}
    return line("stock", STOCK, **where), line("ideal", {"ops_per_s": 500.0}, **where)


def test_only_devices_with_both_are_shown_and_only_of_the_random_loop() -> None:
    both = pair("ufs")
    found = profiles.pairs_by_device(
        results(
            *pair("nvme", workload="sequential"),
            *pair("emmc", kernel="7.2.1"),
            *pair("nvme-plp", processor="1000 MIPS"),
            pair("sata-ssd")[0],
            *both,
        )
    )
    assert found == {"ufs": both}
    assert profiles.pairs_by_device(results(*both, study="plain")) == {}


def test_what_a_call_takes_of_the_device() -> None:
    emmc, plp = load_profile("emmc"), load_profile("nvme-plp")
    data, log = emmc.service_ns("random-write", 4096), emmc.service_ns("random-write", 8192)
    assert profiles.without_commit_ns(emmc) == data + emmc.flush_ns
    record = emmc.service_ns("fua-write", 4096)
    assert profiles.with_commit_ns(emmc) == data + log + emmc.flush_ns + record
    assert profiles.without_commit_ns(plp) == plp.service_ns("random-write", 4096)
    writes = plp.service_ns("random-write", 8192) + plp.service_ns("write", 4096)
    assert profiles.with_commit_ns(plp) == plp.service_ns("random-write", 4096) + writes


def test_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (grid,) = profiles.parts({"ufs": pair("ufs")})
    assert isinstance(grid, Grid) and grid.texts == 2
    assert [list(one) for one in grid.lines] == [
        ["`ufs`", "UFS 2.0 of a 2015 phone", "0.42", "1.17", "75.0"]
    ]
    _, said = profiles.parts({"sata-ssd": pair("sata-ssd")})
    assert said == (
        "As a check, `sata-ssd` in the lab: the journal has 75.0 % of the bytes, and "
        "`fdatasync()` is 2.50 times as fast as `fsync()`. Son et al. measured 73.8 % and 2.19 "
        "times."
    )
    monkeypatch.setattr(profiles, "repo_root", lambda: tmp_path)
    profiles.write_profiles([])
    document = tmp_path / profiles.DOCUMENT
    document.parent.mkdir()
    document.write_text("a\n" + "\n".join(marks(profiles.BLOCK)) + "\nb\n")
    profiles.write_profiles(results(*pair("ufs")))
    text = document.read_text()
    assert text.startswith("a\n") and text.endswith("\nb\n") and "| 0.42 | 1.17 | 75.0 |" in text
