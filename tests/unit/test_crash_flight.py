"""What was sent while a flush or a FUA write was under way, from a trace."""

import pytest

from fastsync_lab.crash.flight import parse_flights
from fastsync_lab.crash.log import Flight, Write, parse_log
from fastsync_lab.host.errors import FastsyncError
from tests.unit.crash_logs import FLUSHED, fua, make_log, write

HEAD = "# entries-in-buffer/entries-written: {0}/{1}   #P:1\n"


def trace(*lines: str, written: int = 0) -> str:
    """`send KIND SECTOR COUNT` and `end KIND SECTOR COUNT`, as tracefs prints them."""
    text = HEAD.format(len(lines), written or len(lines))
    for line in lines:
        what, kind, sector, count = line.split()
        begin = "          <idle>-0       [000] d.h1.   305.829305: "
        if what == "send":
            text += f"{begin}block_bio_queue: 259,2 {kind} {sector} + {count} [jbd2/dm-0-8]\n"
        else:
            text += f"{begin}block_rq_complete: 259,2 {kind} () {sector} + {count} be,0,3 [0]\n"
    return text


def test_a_flush_ends_with_its_own_request_not_with_the_block_layers() -> None:
    traced = parse_flights(trace(
        "send FWS 0 0", "send FWFSM 136 0", "end FF 18446744073709551615 0",
        "end WS 0 0", "end WFSM 136 0",
    ))  # fmt: skip
    assert [traced.flush(), traced.flush()] == [Flight(0, 3), Flight(1, 4)]
    with pytest.raises(FastsyncError, match="lacks a flush"):
        traced.flush()


def test_a_request_has_several_writes_and_reads_are_none() -> None:
    traced = parse_flights(trace(
        "send WSM 0 8", "send RM 32 8", "send WSM 8 8", "end RM 32 8", "end WSM 0 16",
        "send WS 8 8", "end WS 8 8",
    ))  # fmt: skip
    assert traced.write(Write(8, 8, 0)) == Flight(2, 4)
    assert traced.write(Write(0, 8, 0)) == Flight(0, 4)
    assert traced.write(Write(8, 8, 512)) == Flight(5, 6)
    with pytest.raises(FastsyncError, match="lacks a write that its log has: 8 sectors at 8"):
        traced.write(Write(8, 8, 1024))


@pytest.mark.parametrize("text", ["", trace("send WS 8 8", written=2)])
def test_a_trace_that_lost_events_is_refused(text: str) -> None:
    with pytest.raises(FastsyncError, match="not whole"):
        parse_flights(text)


def test_what_was_sent_before_a_flush_ended_is_beside_it() -> None:
    log = make_log(
        write(1, "a"), FLUSHED, write(2, "b"), write(3, "c"), FLUSHED, fua(4, "d"), write(5, "e")
    )
    lines = [
        "send WS 1 1", "end WS 1 1", "send FWS 0 0", "send WS 2 1", "end WS 2 1", "end WS 0 0",
        "send WS 3 1", "end WS 3 1", "send FWS 0 0", "send WFS 4 1", "end WS 0 0",
        "send WS 5 1", "end WS 5 1", "end WFS 4 1",
    ]  # fmt: skip
    first, second, single, end = parse_log(log, parse_flights(trace(*lines)))
    assert [one.sector for one in first.beside] == [2]
    assert [one.sector for one in second.beside] == [4]
    assert [one.sector for one in single.beside] == [5]
    assert end.beside == ()
    assert [event.writes for event in parse_log(log)] == [
        event.writes for event in (first, second, single, end)
    ]


def test_what_is_durable_with_an_event_is_not_beside_it_nor_beside_later_ones() -> None:
    log = make_log(write(1, "a"), FLUSHED, fua(4, "d"), write(2, "b"), FLUSHED)
    lines = [
        "send WS 1 1", "end WS 1 1", "send FWS 0 0", "send WS 2 1", "end WS 2 1", "end WS 0 0",
        "send WFS 4 1", "end WFS 4 1", "send FWS 0 0", "end WS 0 0",
    ]  # fmt: skip
    events = parse_log(log, parse_flights(trace(*lines)))
    assert [[one.sector for one in event.beside] for event in events] == [[2], [2], [], []]
