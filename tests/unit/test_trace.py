"""Block accounting, from text as the kernel and e2fsprogs print it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.machine.trace import (
    DATA,
    JOURNAL,
    METADATA,
    UNSORTED,
    Extent,
    Layout,
    Request,
    account,
    lost_events,
    parse_layout,
    parse_trace,
    sequential_ratio,
)
from tests.unit.block_traces import DUMPE2FS, TRACE


def test_trace_gives_requests_with_their_service_times() -> None:
    trace = parse_trace(TRACE)
    assert [r.rwbs for r in trace.requests] == ["WS", "WS", "FF", "WFS", "R"]
    assert [r.service_ns for r in trace.requests] == [50_000, 60_000, 1_000_000, 2_000_000, None]
    flush, fua = trace.requests[2], trace.requests[3]
    assert flush.is_flush and not flush.is_write and flush.sector == 0
    assert fua.is_fua and fua.is_write and not fua.is_flush


def test_a_clock_of_ns_is_read_as_one() -> None:
    lines = (
        "probe-7 [000] ..... 1000: tracing_mark_write: fastsync begin flush",
        "kworker-51 [000] ..... 1600: block_rq_issue: 252,0 FF 0 () 0 + 0 none,0,0 [kworker]",
        "idle-0 [000] d.h.. 1907: block_rq_complete: 252,0 FF () 0 + 0 none,0,0 [0]",
        "probe-7 [000] ..... 2000: tracing_mark_write: fastsync end flush",
    )
    (flush,) = parse_trace("\n".join(lines)).phase("flush")
    assert (flush.time_ns, flush.service_ns) == (1600, 307)


def test_phase_leaves_out_what_lies_outside_its_marks() -> None:
    requests = parse_trace(TRACE).phase("overwrite")
    assert len(requests) == 4
    assert not any(r.is_read for r in requests)


def test_the_run_itself_is_the_phase_without_a_name() -> None:
    trace = parse_trace(TRACE.replace(" overwrite", ""))
    assert len(trace.phase("")) == 4
    with pytest.raises(FastsyncError, match="no begin and end of phase ''"):
        parse_trace(TRACE).phase("")


def test_without_a_layout_all_is_unsorted() -> None:
    result = account(parse_trace(TRACE).requests, Layout((), rest=UNSORTED))
    assert {name: one.bytes for name, one in result.by_class.items() if one.bytes} == {
        UNSORTED: 16384
    }


def test_phase_without_its_marks_is_an_error() -> None:
    with pytest.raises(FastsyncError, match="no begin and end of phase 'insert'"):
        parse_trace(TRACE).phase("insert")


def test_phase_needs_both_marks_and_has_what_was_issued_at_them() -> None:
    lines = TRACE.splitlines()
    for without in (3, 12):
        assert "tracing_mark_write" in lines[without]
        with pytest.raises(FastsyncError, match="no begin and end of phase 'overwrite'"):
            parse_trace("\n".join([*lines[:without], *lines[without + 1 :]])).phase("overwrite")
    at_marks = TRACE.replace("10.000100", "10.000001").replace("10.001310", "10.004000")
    assert len(parse_trace(at_marks).phase("overwrite")) == 4


def test_requests_in_flight_are_told_apart() -> None:
    """By their sectors; a flush has none, and another command without any is no flush."""
    issue, complete = "block_rq_issue: 259,0", "block_rq_complete: 259,0"
    events = [
        f"10.999990: {issue} WS 4096 () 8 + 8 none,0,0 [a]",
        f"10.999991: {issue} WS 4096 () 64 + 8 none,0,0 [a]",
        f"10.999992: {issue} FF 0 () 0 + 0 none,0,0 [a]",
        "10.999993: block_plug: [a]",
        f"10.999994: {issue} N 0 () 0 + 0 none,0,0 [a]",
        f"11.000004: {complete} N () 0 + 0 none,0,0 [0]",
        f"11.000011: {complete} WS () 64 + 8 none,0,0 [0]",
        f"11.000022: {complete} FF () 18446744073709551615 + 0 none,0,0 [0]",
        f"11.000030: {complete} WS () 8 + 8 none,0,0 [0]",
    ]
    trace = parse_trace("".join(f"a-1 [000] ..... {event}\n" for event in events))
    assert [(one.rwbs, one.sector, one.service_ns) for one in trace.requests] == [
        ("WS", 8, 40_000),
        ("WS", 64, 20_000),
        ("FF", 0, 30_000),
        ("N", 0, 10_000),
    ]


def test_a_request_issued_again_before_it_completed_counts_once() -> None:
    lines = TRACE.splitlines()
    again = lines[4].replace("10.000100", "10.000120")
    trace = parse_trace("\n".join([*lines[:5], again, *lines[5:]]))
    assert [(r.sector, r.service_ns) for r in trace.requests[:2]] == [(2048, 30_000), (800, 60_000)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("CPU:0 [LOST 1234 EVENTS]", "1234 events lost"),
        ("what is this", "cannot read this line"),
        (
            "fio-1 [000] ..... 10.000100: block_rq_issue: nonsense",
            "cannot read this request",
        ),
    ],
)
def test_a_trace_that_cannot_be_trusted_is_an_error(line: str, message: str) -> None:
    with pytest.raises(FastsyncError, match=message):
        parse_trace(TRACE + line + "\n")


def test_write_with_preflush_is_no_flush() -> None:
    request = Request(0, "FWFS", 8, 8)
    assert request.is_write and request.is_fua and not request.is_flush
    assert not Request(0, "FWS", 8, 8).is_fua


def test_layout_of_dumpe2fs_and_debugfs() -> None:
    layout = parse_layout(DUMPE2FS, "100 101 102 103 \n", "9200 \n9201 9202 \n")
    # The journal lies inside the inode table here: what starts first wins, so cut it out first.
    layout_apart = parse_layout(DUMPE2FS.replace("72-583", "72-99"), "100 101 102 103", "9200")
    assert layout.split(0, 8) == [(METADATA, 8)]
    assert layout_apart.split(100 * 8, 32) == [(JOURNAL, 32)]
    assert layout_apart.split(99 * 8, 16) == [(METADATA, 8), (JOURNAL, 8)]
    assert layout_apart.split(103 * 8, 16) == [(JOURNAL, 8), (DATA, 8)]
    assert layout.split(9200 * 8, 8) == [(METADATA, 8)]
    assert layout.split(32768 * 8, 24) == [(METADATA, 16), (DATA, 8)]
    assert layout.split(584 * 8, 8) == [(DATA, 8)]


def test_layout_needs_a_block_size_and_a_journal() -> None:
    with pytest.raises(FastsyncError, match=r"^dumpe2fs printed no block size$"):
        parse_layout("", "1", "2")
    with pytest.raises(
        FastsyncError, match=r"^debugfs printed no blocks of the journal \(inode 8\)$"
    ):
        parse_layout(DUMPE2FS, "blocks: File not found by ext2_lookup", "2")


def test_extent_behind_which_nothing_is_left_is_none() -> None:
    first = Extent(0, 16, JOURNAL)
    assert Layout([first, Extent(8, 16, METADATA)]).extents == (first,)


extents = st.lists(
    st.builds(
        lambda start, length, name: Extent(start, start + length, name),
        st.integers(0, 500),
        st.integers(1, 80),
        st.sampled_from([JOURNAL, METADATA]),
    ),
    max_size=20,
)


@given(extents, st.integers(0, 600), st.integers(1, 300))
def test_splitting_loses_and_adds_no_sector(parts: list[Extent], sector: int, sectors: int) -> None:
    layout = Layout(parts)
    pieces = layout.split(sector, sectors)
    assert sum(size for _, size in pieces) == sectors
    assert all(size > 0 for _, size in pieces)
    # Each sector alone is of the class that it has inside the request.
    classes = [name for name, size in pieces for _ in range(size)]
    assert classes == [layout.split(sector + i, 1)[0][0] for i in range(sectors)]


@given(extents, st.integers(0, 600))
def test_a_sector_has_the_class_of_an_extent_that_covers_it(
    parts: list[Extent], sector: int
) -> None:
    covering = {e.name for e in parts if e.start <= sector < e.end}
    assert Layout(parts).split(sector, 1)[0][0] in (covering or {DATA})


@given(
    extents,
    st.lists(
        st.builds(
            Request,
            st.integers(0, 10**6),
            st.sampled_from(["W", "WS", "WFS", "FF", "R", "D"]),
            st.integers(0, 600),
            st.integers(1, 64),
        )
    ),
)
def test_accounting_conserves_bytes_and_requests(
    parts: list[Extent], requests: list[Request]
) -> None:
    result = account(requests, Layout(parts))
    writes = [r for r in requests if r.rwbs.startswith("W")]
    assert result.bytes == sum(r.sectors for r in writes) * 512
    assert result.requests == len(writes)
    assert 0 <= result.sequential_ratio <= 1


def test_accounting_of_one_fsync() -> None:
    layout = Layout([Extent(800, 1600, JOURNAL)])
    result = account(parse_trace(TRACE).phase("overwrite"), layout)
    assert [result.by_class[name].requests for name in (DATA, JOURNAL, METADATA)] == [1, 2, 0]
    assert result.for_each(2) == {
        "kib": 8.0,
        "kib_data": 2.0,
        "kib_journal": 6.0,
        "kib_metadata": 0.0,
        "kib_unsorted": 0.0,
        "flushes": 0.5,
        "fua": 0.5,
        "requests": 1.5,
        "reads": 0.0,
        "discards": 0.0,
        "request_kib": pytest.approx(16 / 3),
        "sequential": 0.0,
        "write_us": pytest.approx(2110 / 3),
        "flush_us": 1000.0,
    }


def test_accounting_of_nothing() -> None:
    result = account([], Layout([]))
    assert (result.bytes, result.sequential_ratio, result.mean_request_kib) == (0, 0.0, 0.0)
    assert (result.mean_write_us, result.mean_flush_us) == (0.0, 0.0)


def test_reads_and_discards_are_of_each_operation() -> None:
    requests = [Request(0, kind, 0, 8) for kind in ("R", "RS", "R", "D", "DS", "D")]
    result = account(requests, Layout([])).for_each(2)
    assert (result["reads"], result["discards"], result["requests"]) == (1.5, 1.5, 0.0)


def test_sequential_ratio_counts_bursts_longer_than_128_sectors() -> None:
    adjacent = [(i * 8, 8) for i in range(17)]  # 136 sectors
    assert sequential_ratio(adjacent) == 1.0
    assert sequential_ratio(adjacent[:16]) == 0.0  # 128 is not longer than 128
    assert sequential_ratio([*adjacent, (5000, 136), (9000, 64)]) == 272 / 336
    assert sequential_ratio([(0, 129), (500, 1), (501, 128)]) == 1.0
    assert sequential_ratio([(8, 8), (0, 8)] * 20) == 0.0
    assert sequential_ratio([(0, 128), (500, 8)]) == 0.0


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 200))))
def test_sequential_ratio_does_not_depend_on_how_a_burst_is_cut(
    writes: list[tuple[int, int]],
) -> None:
    halves = [
        piece
        for sector, sectors in writes
        for piece in [(sector, sectors // 2), (sector + sectors // 2, sectors - sectors // 2)]
        if piece[1]
    ]
    assert sequential_ratio(halves) == sequential_ratio(writes)


def test_lost_events_are_added_up() -> None:
    stats = "entries: 10\noverrun: {}\ncommit overrun: 0\ndropped events: 2\nread events: 0\n"
    assert lost_events(stats.format(0).replace("2", "0")) == 0
    assert lost_events(stats.format(5) + stats.format(1)) == 10
    with pytest.raises(FastsyncError, match=r"^tracefs printed no statistics of its buffer$"):
        lost_events("")
