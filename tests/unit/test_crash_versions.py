"""What the model makes of a trace, version by version."""

from dataclasses import replace

import pytest

from fastsync_lab.crash.model import Group, Model, Promise
from fastsync_lab.crash.nodes import ZEROS, Node, Shift, Stray, Sync, Value, Version
from fastsync_lab.host.errors import FastsyncError
from tests.unit.crashes import BLOCK, COLLAPSE, INSERT, START, at, trace, written


def model_of(*lines: str) -> Model:
    return Model(trace(*lines), Promise())


def versions(node: Node, key: str) -> list[tuple[int, Value]]:
    """The values of a property, and which operation made each."""
    found = node.versions.get(key, [])
    assert all((one.begin, one.end) == (2 * one.op, 2 * one.op + 1) for one in found)
    return [(one.op, one.value) for one in found]


def sectors(node: Node) -> dict[int, list[int]]:
    """Which operations wrote each sector; -1 is before the trace."""
    for found in node.sectors.values():
        assert found[0] == Version(-1, -1, -1, ZEROS)
        assert all((one.begin, one.end) == (2 * one.op, 2 * one.op + 1) for one in found[1:])
    return {sector: [one.op for one in found] for sector, found in sorted(node.sectors.items())}


def names_of(group: Group) -> list[tuple[int | None, dict[str, int]]]:
    return [
        (epoch.op.number if epoch.op else None, {name: x.ino for name, x in epoch.names.items()})
        for epoch in group.epochs
    ]


@pytest.mark.parametrize(
    ("line", "path", "kind", "mode", "more"),
    [
        ("create f", "f", "file", 0o644, {}),
        ("mkdir f", "f", "folder", 0o755, {}),
        ("symlink f g", "g", "link", 0o777, {"target": [(1, "f")]}),
        ("tmpfile d @3", "", "file", 0o644, {}),
    ],
)
def test_what_is_new(
    line: str, path: str, kind: str, mode: int, more: dict[str, list[tuple[int, str]]]
) -> None:
    ops = trace("sync", line)
    model = Model(ops, Promise())
    (node,) = model.nodes
    assert model.groups[0].epochs[-1].names == ({path: node} if path else {})
    assert (node.id, node.kind, node.ino, node.name_ops) == (1, kind, ops[1].ino, [ops[1]])
    assert {key: versions(node, key) for key in node.versions} == {
        "mode": [(1, mode)], "owner": [(1, (0, 0))], "size": [(1, (0, 0))],
        "mtime": [(1, at(1))], "ctime": [(1, at(1))], **more,
    }  # fmt: skip
    assert (node.sectors, node.syncs, node.shifts, node.strays) == ({}, [], [], {})
    (whole,) = model.all_syncs
    assert whole == Sync(0, 0, True, True, "exact", None, 1)


@pytest.mark.parametrize(
    ("line", "syncs"),
    [
        ("fsync f", [Sync(1, 2, True, True, "promised", None, 3)]),
        ("afsync f", [Sync(1, 2, True, True, "promised", None, 3)]),
        ("rfsync f", [Sync(1, 2, True, True, "promised", None, 3)]),
        ("fdatasync f", [Sync(1, 2, True, False, "", None, 3)]),
        ("afdatasync f", [Sync(1, 2, True, False, "", None, 3)]),
        ("rfdatasync f", [Sync(1, 2, True, False, "", None, 3)]),
        ("msync f 4095 1", [Sync(1, 2, True, False, "", (0, 4096), 3)]),
        ("msync f 4096 1", [Sync(1, 2, True, False, "", (4096, 8192), 3)]),
        ("msync f 5000 4000", [Sync(1, 2, True, False, "", (4096, 12288), 3)]),
        ("owrite f 10 100", [Sync(1, 2, True, True, "promised", (10, 110), 3)]),
        ("odwrite f 10 100", [Sync(1, 2, True, False, "", (10, 110), 3)]),
        ("rswrite f 10 100", [Sync(1, 2, True, True, "promised", None, 3)]),
        ("rsdwrite f 10 100", [Sync(1, 2, True, True, "promised", None, 3)]),
        *((f"{call} f 10 100", []) for call in ("write", "dwrite", "mstore", "awrite", "rdwrite")),
    ],
)
def test_what_a_call_promises_of_a_file(line: str, syncs: list[Sync]) -> None:
    model = model_of("create f", line)
    assert (model.nodes[0].syncs, model.all_syncs) == (syncs, [])
    is_write = "write" in line or "mstore" in line
    assert [op for op, _ in versions(model.nodes[0], "mtime")] == ([0, 1] if is_write else [0])


@pytest.mark.parametrize(("line", "data"), [("fsync d", False), ("sync", True), ("syncfs", True)])
def test_what_a_call_promises_of_all(line: str, data: bool) -> None:
    model = model_of("mkdir d", line)
    assert model.all_syncs == [Sync(1, 2, data, True, "exact", None, 3)]
    assert model.nodes[0].syncs == []


@pytest.mark.parametrize(
    ("line", "key", "expected"),
    [
        ("chmod f 0600", "mode", [(0, 0o644), (1, 0o600)]),
        ("chown f 7 8", "owner", [(0, (0, 0)), (1, (7, 8))]),
        ("setxattr f user.k vw", "user.k", [(1, "7677")]),
        ("rmxattr f user.k", "user.k", [(1, None)]),
        ("truncate f 700", "size", [(0, (0, 0)), (1, (700, 700))]),
        ("write f 10 100", "size", [(0, (0, 0)), (1, (0, 110))]),
        ("falloc f 0 10 100", "size", [(0, (0, 0)), (1, (0, 110))]),
        ("falloc f 1 10 100", "size", [(0, (0, 0))]),
        ("utimens f 1 2", "mode", [(0, 0o644)]),
    ],
)
def test_what_a_call_changes(line: str, key: str, expected: list[tuple[int, Value]]) -> None:
    (node,) = model_of("create f", line).nodes
    assert versions(node, key) == expected
    for stamp in ("mtime", "ctime"):
        assert versions(node, stamp) == [(0, START), (1, at(1))]


@pytest.mark.parametrize("line", ["sleep 1", "align", "put x", "hold 1"])
def test_what_changes_nothing(line: str) -> None:
    model = model_of("create f", line)
    assert [op for op, _ in versions(model.nodes[0], "mtime")] == [0]
    assert names_of(model.groups[0]) == [(None, {}), (0, {"f": 12})]


def test_what_the_model_does_not_know_is_an_error() -> None:
    for line, message in (
        ("write g 0 1", "the trace has no file g at this point"),
        ("frobnicate f", "the oracle does not know operation frobnicate"),
    ):
        with pytest.raises(FastsyncError) as caught:
            model_of("create f", line)
        assert str(caught.value) == message


def test_sectors_that_a_write_touches() -> None:
    (node,) = model_of("create f", "write f 512 512", "write f 1000 25", "write f 0 512").nodes
    assert sectors(node) == {0: [-1, 3], 1: [-1, 1, 2], 2: [-1, 2]}
    first, second = written(1, 512, 1), written(2, 512, 1)
    assert node.last_sector(0) == written(3, 512)
    assert node.last_sector(1) == first[:488] + second[488:]
    assert node.last_sector(2) == written(2, 512, 2)[:1] + bytes(511)
    assert node.last_sector(3) == ZEROS
    assert versions(node, "size") == [(0, (0, 0)), (1, (0, 1024)), (2, (1024, 1025))]
    assert node.size == 1025 and node.last("mode") == 0o644


def test_a_write_up_to_the_end_leaves_the_size_as_it_was() -> None:
    (node,) = model_of("create f", "write f 0 1024", "write f 512 512").nodes
    assert versions(node, "size") == [(0, (0, 0)), (1, (0, 1024))]


def test_what_is_moved_leaves_zeros_in_its_range_of_the_donor_alone() -> None:
    lines = (
        "create f",
        "write f 0 16384",
        "create g",
        "falloc g 0 0 16384",
        "moveext f g 512 1024",
    )
    f, g = model_of(*lines).nodes
    assert sectors(g) == {1: [-1, 4], 2: [-1, 4]}
    assert g.last_sector(1) == g.last_sector(2) == ZEROS
    assert all(4 not in ops for ops in sectors(f).values())


def test_a_truncation_clears_the_rest_of_the_last_sector_and_all_after_it() -> None:
    lines = ("create f", "write f 0 1100", "truncate f 600", "truncate f 600", "truncate f 9000")
    (node,) = model_of(*lines).nodes
    assert sectors(node) == {0: [-1, 1], 1: [-1, 1, 2], 2: [-1, 1, 2]}
    assert node.last_sector(1) == written(1, 512, 1)[:88] + bytes(424)
    assert [value for _, value in versions(node, "size")] == [
        (0, 0), (0, 1100), (600, 600), (600, 600), (9000, 9000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "zeros", "sizes"),
    [
        ("falloc f 3 512 512", {1}, []),  # PUNCH and KEEP_SIZE
        ("falloc f 3 512 4096", {1, 2, 3}, []),
        ("falloc f 0x10 512 512", {1}, []),  # ZERO_RANGE
        ("falloc f 0x10 512 4096", {1, 2, 3}, [(2048, 4608)]),
        ("falloc f 0x11 512 4096", {1, 2, 3}, []),
        ("falloc f 0x10 4096 512", set(), [(2048, 4608)]),
        ("falloc f 0 1024 1024", set(), []),
        ("falloc f 0 1024 1025", set(), [(2048, 2049)]),
    ],
)
def test_room_and_holes(line: str, zeros: set[int], sizes: list[Value]) -> None:
    (node,) = model_of("create f", "write f 0 2048", line).nodes
    assert {number for number, found in sectors(node).items() if 2 in found} == zeros
    assert all(node.last_sector(number) == ZEROS for number in zeros)
    assert [value for op, value in versions(node, "size") if op == 2] == sizes


@pytest.mark.parametrize(
    ("mode", "shift", "size", "shown"),
    [
        (COLLAPSE, Shift(Version(2, 4, 5, None), 8, -8), 2 * BLOCK + 100, [0, 2, 3]),
        (INSERT, Shift(Version(2, 4, 5, None), 8, 8), 4 * BLOCK + 100, [0, None, 1, 2, 3]),
    ],
)
def test_a_shift_sector_by_sector(
    mode: int, shift: Shift, size: int, shown: list[int | None]
) -> None:
    lines = ("create f", f"write f 0 {3 * BLOCK + 100}", f"falloc f {mode} {BLOCK} {BLOCK}")
    (node,) = model_of(*lines).nodes
    assert (node.shifts, node.strays, node.size) == ([shift], {}, size)
    assert versions(node, "size")[-1] == (2, (size, size))
    data = written(1, 3 * BLOCK + 100).ljust(4 * BLOCK, b"\0")
    wanted = b"".join(
        bytes(BLOCK) if block is None else data[block * BLOCK : (block + 1) * BLOCK]
        for block in shown
    )
    last = -(-size // 512)
    found = b"".join(node.last_sector(number) for number in range(last))
    assert found == wanted[: last * 512]
    assert {number for number, ops in sectors(node).items() if 2 in ops} == set(
        range(8, max(last, 25))
    )


@pytest.mark.parametrize(
    ("shifts", "block", "places"),
    [
        ([(INSERT, 0)] * 2, 4, {3: 3, 2: 2}),
        ([(INSERT, 0)] * 3, 4, {3: 4, 2: 3, 1: 2}),
        ([(INSERT, 2), (INSERT, 0)], 3, {2: 3}),  # the first made the hole that it is in
        ([(INSERT, 2), (COLLAPSE, 0)], 2, {3: 3}),  # the first moved it to where it is again
        ([(INSERT, 2), (INSERT, 5)], 1, {}),
    ],
)
def test_a_write_may_be_seen_where_its_block_was_before_each_shift(
    shifts: list[tuple[int, int]], block: int, places: dict[int, int]
) -> None:
    """`places`: blocks, and the operation of the shift that may be undone."""
    lines = [f"falloc f {mode} {first * BLOCK} {BLOCK}" for mode, first in shifts]
    write = f"write f {block * BLOCK} 512"
    (node,) = model_of("create f", f"write f 0 {8 * BLOCK}", *lines, write).nodes
    last = node.sectors[block * 8][-1]
    of = {one.version.op: one.version for one in node.shifts}
    assert node.strays == {place * 8: [Stray(last, of[op])] for place, op in places.items()}


def test_two_files_exchange_contents_and_size() -> None:
    lines = ("create f", "write f 0 600", "swapboot f", "write f 0 100", "swapboot f")
    (node,) = model_of(*lines).nodes
    assert [value for _, value in versions(node, "size")] == [
        (0, 0), (0, 600), (0, 0), (0, 100), (600, 600),
    ]  # fmt: skip
    assert sectors(node) == {0: [-1, 1, 2, 3, 4], 1: [-1, 1, 2, 4]}
    assert node.last_sector(0) + node.last_sector(1)[:88] == written(1, 600)


def test_names_and_who_changes_them() -> None:
    ops = trace(
        *("create a", "mkdir d", "create d/x", "link a b", "rename d e", "rename b a"),
        *("unlink e/x", "rmdir e"),
    )
    model = Model(ops, Promise())
    a, d, x = model.nodes
    (group,) = model.groups
    assert names_of(group) == [
        (None, {}),
        (0, {"a": 12}),
        (1, {"a": 12, "d": 13}),
        (2, {"a": 12, "d": 13, "d/x": 14}),
        (3, {"a": 12, "d": 13, "d/x": 14, "b": 12}),
        (4, {"a": 12, "e/x": 14, "b": 12, "e": 13}),
        (5, {"a": 12, "e/x": 14, "e": 13}),
        (6, {"a": 12, "e": 13}),
        (7, {"a": 12}),
    ]
    assert [op.number for op in a.name_ops] == [0, 3, 5, 5]
    assert [op.number for op in d.name_ops] == [1, 4, 7]
    assert [op.number for op in x.name_ops] == [2, 6]
    assert versions(a, "ctime") == [(0, at(0)), (3, at(3)), (5, at(5)), (5, None)]
    assert versions(a, "mtime") == [(0, at(0)), (3, at(3)), (5, at(5))]
    assert versions(d, "ctime") == [(1, at(1)), (4, at(4)), (7, None)]
    assert versions(x, "ctime") == [(2, at(2)), (6, None)]


def test_each_thread_has_a_group_of_names_of_its_own() -> None:
    ops = trace("mkdir t1", "mkdir t2", "create t1/a", "create t2/b")
    ops = [*ops[:2], replace(ops[2], thread=1), replace(ops[3], thread=2)]
    model = Model(reversed(ops), Promise())
    assert [group.prefix for group in model.groups] == ["t1/", "t2/", ""]
    assert [names_of(group) for group in model.groups] == [
        [(None, {}), (2, {"t1/a": 14})],
        [(None, {}), (3, {"t2/b": 15})],
        [(None, {}), (0, {"t1": 12}), (1, {"t1": 12, "t2": 13})],
    ]
    assert [model.group_of(path).prefix for path in ("t1/x", "t2/y/z", "t3/a", "t1")] == [
        "t1/", "t2/", "", "",
    ]  # fmt: skip


def test_the_weakest_promise_between_two_points() -> None:
    lines = ("remount mtime_update=50,mtime_mode=defer", "sync", "remount un_mtime_update")
    ops = trace("create f", *lines)
    model = Model(ops, Promise(coarse_ms=5, grain_ns=7))
    coarse, defer, off = Promise(0, 5, 7), Promise(50, 0, 7), Promise(0, 0, 7)
    for begin, end, promise in (
        *((0, 1, coarse), (4, 5, defer), (8, 9, off), (0, 9, Promise(50, 5, 7))),
        *((-1, -1, coarse), (3, 3, Promise(50, 5, 7)), (2, 2, Promise(50, 5, 7))),
        *((1, 2, Promise(50, 5, 7)), (3, 4, Promise(50, 5, 7)), (4, 6, defer), (7, 8, defer)),
    ):
        assert model.weakest(begin, end) == promise, (begin, end)
