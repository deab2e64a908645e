"""The modelled devices against their model: the trace of the probe, what is shown and kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from fastsync_lab.cli.calibrate import calibrate
from fastsync_lab.host.errors import UsageError
from fastsync_lab.machine.device import load_profile, profile_names
from fastsync_lab.study import latencies
from fastsync_lab.study.documents import marks
from fastsync_lab.study.figures import DEVICES
from fastsync_lab.study.grid import Grid
from fastsync_lab.study.latencies import PHASES, Seen, parse_probe

TRACE = """\
 blkprobe-7 [000] ..... 1000: tracing_mark_write: probe write4k
 blkprobe-7 [000] ..... 1100: block_rq_issue: 252,0 WS 4096 () 8 + 8 none,0,0 [blkprobe]
 blkprobe-7 [000] ..... 1150: block_rq_issue: 252,0 W 4096 () 16 + 8 none,0,0 [blkprobe]
   <idle>-0 [000] d.h.. 1300: block_rq_complete: 252,0 W () 16 + 8 none,0,0 [0]
   <idle>-0 [000] d.h.. 1400: block_rq_complete: 252,0 WS () 8 + 8 none,0,0 [0]
   <idle>-0 [000] d.h.. 1450: block_rq_complete: 252,0 WS () 99 + 8 none,0,0 [0]
 blkprobe-7 [000] ..... 1500: tracing_mark_write: probe flush
 kworker-51 [000] ..... 1600: block_rq_issue: 252,0 FF 0 () 0 + 0 none,0,0 [kworker]
   <idle>-0 [000] d.h.. 1900: block_rq_complete: 252,0 FF () 18446744073709551615 + 0 none,0,0 [0]
 blkprobe-7 [000] ..... 2000: tracing_mark_write: probe -
"""


def test_phases_of_a_trace() -> None:
    phases = parse_probe(TRACE)
    assert phases == {
        "write4k": Seen([("W", 150), ("WS", 300)], 2, 1100, 1400),
        "flush": Seen([("FF", 300)], 1, 1600, 1900),
        "-": Seen(),
    }
    assert phases["write4k"].of("W") == [150, 300]
    assert phases["write4k"].of("R") == []


def test_every_profile_is_measured() -> None:
    assert sorted(DEVICES) == profile_names()


def test_what_a_device_gets_and_waits_for() -> None:
    emmc, plp = load_profile("emmc"), load_profile("nvme-plp")
    assert all(phase.is_on(emmc) for phase in PHASES.values())
    assert [key for key, phase in PHASES.items() if not phase.is_on(plp)] == ["fua4k", "flush"]
    fua = PHASES["fua4k"]
    assert fua.model_ns(emmc) == emmc.service_ns("fua-write", 4096)
    assert fua.waits_ns(emmc) == fua.model_ns(emmc) + emmc.flush_ns
    assert fua.waits_ns(plp) == fua.model_ns(plp)
    read = PHASES["read128k"]
    assert read.waits_ns(emmc) == read.model_ns(emmc) == emmc.service_ns("read", 131072)


def device(name: str, *keys: str) -> dict[str, Any]:
    """A device whose model is 100 us of each; requests take 1 and 3 % more, calls 30 us more."""
    return {
        "name": name,
        "model_ns": dict.fromkeys(keys, 100_000),
        "waits_ns": {key: 200_000 if key == "fua4k" else 100_000 for key in keys},
        "requests_ns": {key: [101_000, 103_000] for key in keys},
        "call_ns": {key: 130_000 if key != "read4k" else 120_000 for key in keys},
    }


def result() -> dict[str, Any]:
    devices = [device("a", *PHASES), device("b", *(set(PHASES) - {"flush", "fua4k"}))]
    return {"debian_version": "6.12.1-1", "mips": 500, "date": "2026-11-25T01:02:03+00:00",
            "devices": devices}  # fmt: skip


def test_what_is_shown() -> None:
    said, grid = latencies.parts(result())
    assert isinstance(said, str) and isinstance(grid, Grid)
    assert said == (
        "Linux 6.12.1, 500 million instructions a second, 2026-11-25. Of all means of 24 requests "
        "the farthest is 2.0 % off its model. A call of 4 KiB takes 20 to 30 us more than its "
        "request: the kernel's own time. Measured : model, in us:"
    )
    assert grid.texts == 1 and len(grid.head) == 9
    both = "102.0 : 100.0"
    assert [list(line) for line in grid.lines] == [
        ["`a`", *[both] * 8],
        ["`b`", *[both] * 3, "none", "none", *[both] * 3],
    ]


def test_it_is_kept_and_written_into_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latencies, "repo_root", lambda: tmp_path)
    monkeypatch.setattr(latencies, "results_dir", lambda: tmp_path)
    assert latencies.load() == []
    latencies.write_latencies()
    document = tmp_path / latencies.DOCUMENT
    document.parent.mkdir()
    document.write_text("a\n" + "\n".join(marks(latencies.BLOCK)) + "\nb\n")
    latencies.path().write_text(json.dumps(result()))
    latencies.write_latencies()
    text = document.read_text()
    assert text.startswith("a\n") and text.endswith("\nb\n") and "| `b` | 102.0 : 100.0 |" in text


def test_devices_are_measured_at_one_speed() -> None:
    for other in ({"mips": 1000}, {"processor": ["max"]}):
        with pytest.raises(UsageError, match="--devices is at the guests' own speed"):
            calibrate(devices=True, **other)
