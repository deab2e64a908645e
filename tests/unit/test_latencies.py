"""The modelled devices against their model: the trace of the probe, what is shown and kept."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastsync_lab.cli.calibrate import calibrate
from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.progress import silent
from fastsync_lab.machine.device import load_profile, profile_names
from fastsync_lab.machine.trace import Request
from fastsync_lab.study import latencies
from fastsync_lab.study.documents import marks
from fastsync_lab.study.figures import DEVICES
from fastsync_lab.study.grid import Grid
from fastsync_lab.study.latencies import COUNT, PHASES, Probe, latencies_ns, measure_device


def test_latencies_of_a_kind() -> None:
    kinds = [("WS", 300), ("W", 150), ("R", 80), ("W", None), ("WFS", 900)]
    requests = [Request(time, kind, 8, 8, ns) for time, (kind, ns) in enumerate(kinds)]
    assert latencies_ns(requests, "W") == [300, 150]
    assert latencies_ns(requests, "WF") == [900]
    assert latencies_ns(requests, "FF") == []


def test_every_profile_is_measured() -> None:
    assert profile_names() == DEVICES


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


STATS = "entries: 1\noverrun: {}\ncommit overrun: 0\ndropped events: 0\n"


def probed(folder: Path, requests: dict[str, int], lost: int = 0) -> Probe:
    """A probe of a guest in which the trace has so many requests of each phase, of 1 us each."""
    lines, time_ns = list[str](), 0
    for key, count in requests.items():
        events = [f"tracing_mark_write: fastsync begin {key}"]
        for number in range(count):
            what = f"7,0 {PHASES[key].rwbs} 4096 () {8 * number} + 8 none,0,0 [blkprobe]"
            events += [f"block_rq_issue: {what}", f"block_rq_complete: {what.replace('4096 ', '')}"]
        for event in (*events, f"tracing_mark_write: fastsync end {key}"):
            time_ns += 1000
            lines.append(f" blkprobe-1 [000] ..... {time_ns}: {event}")
    (folder / "trace").write_text("\n".join(lines))
    (folder / "stats").write_text(STATS.format(lost))
    printed = SimpleNamespace(stdout="".join(f"{key} 1500\n" for key in requests))
    vm = SimpleNamespace(out_dir=folder, load_device=lambda *_, **__: "", run=lambda _: printed)
    return Probe(vm, "blkprobe", folder / "flashdev.ko")  # type: ignore[arg-type]


def test_a_device_is_measured_by_all_of_its_requests(tmp_path: Path) -> None:
    all_of_them = dict.fromkeys(PHASES, COUNT)
    measured = measure_device(probed(tmp_path, all_of_them), "emmc", silent)
    assert measured["requests_ns"] == dict.fromkeys(PHASES, [1000] * COUNT)
    assert measured["call_ns"] == dict.fromkeys(PHASES, 1500)
    for count in (0, COUNT - 1, COUNT + 1):
        few = probed(tmp_path, {**all_of_them, "flush": count})
        said = f"^emmc: {count} requests of flush seen, not {COUNT}$"
        with pytest.raises(FastsyncError, match=said):
            measure_device(few, "emmc", silent)


def test_a_device_is_not_measured_by_a_trace_with_gaps(tmp_path: Path) -> None:
    gaps = probed(tmp_path, dict.fromkeys(PHASES, COUNT), lost=3)
    with pytest.raises(FastsyncError, match=r"^the trace buffer overran: 3 events lost$"):
        measure_device(gaps, "emmc", silent)


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
        "Linux 6.12.1, 500 million instructions a second, 2026-11-25. Each figure is the mean of "
        "2 requests; the largest deviation from the model is 2.0 %. A call of 4 KiB takes 20 to "
        "30 us more than its request: the kernel's own time. Measured : model, in us:"
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
    latencies.path().write_text(json.dumps({"format": latencies.FORMAT, **result()}))
    latencies.write_latencies()
    text = document.read_text()
    assert text.startswith("a\n") and text.endswith("\nb\n") and "| `b` | 102.0 : 100.0 |" in text


def test_devices_are_measured_at_one_speed() -> None:
    for other in ({"mips": 1000}, {"processor": ["max"]}):
        with pytest.raises(UsageError, match="--devices is at the guests' own speed"):
            calibrate(devices=True, **other)
