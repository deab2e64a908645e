"""What a fault led to, and whether stock ext4 would have done the same.

With the options off the same request fails, so the same must come of it. In the other modes there
are fewer requests. There the same must have come of a request of the same kind

1. during the same call, or else
2. during another call of that sort in any of the workloads, or else,
3. if nobody waited for it, while stock ext4's commit thread was at work by itself.

Stock has no settling, in which eager_sync writes to its place what the log had. There

4. if nobody waited for it, the journal must be aborted, so that the log stays for recovery: the
   next call that changes something fails, no sync returns 0 before, and nothing is lost.

A device that stays dead fails the rest of a call's requests, too: which of them was the first does
not matter for 1 and 2 there.

A bug that the kernel logs (a warning, an oops, a report of lockdep) must be one that stock logs in
the same place; that ours logs fewer of them is no difference. Nor is that ours loses nothing where
stock does: patches/upstream/ has what is mended.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fastsync_lab.faults.layout import COMMIT_FLUSH, DATA, READ, SYNC_FLUSH
from fastsync_lab.host.options import CONTROL, EAGER_MODES

SAME_CALL, SAME_SORT, UNATTENDED = "same call", "same sort of call", "nobody waited"
SETTLING = "settling"
RULES = (SAME_CALL, SAME_SORT, UNATTENDED, SETTLING)
SORTS = {
    "fsync": "sync",
    "fdatasync": "sync",
    "msync": "sync",
    "owrite": "synchronous write",
    "odwrite": "synchronous write",
}
IDLE = ("sleep", "align", "put")
UNMOUNT = "umount"


@dataclass(frozen=True)
class Case:
    """A workload in a mode (or "stock"), what errors= says, and whether the device stays dead."""

    workload: str
    mode: str
    errors: str
    dead: bool

    @property
    def name(self) -> str:
        """The name of its folder."""
        how = "dead" if self.dead else "once"
        return f"{self.workload}-{self.mode}-{self.errors}-{how}"

    @property
    def variant(self) -> tuple[str, bool]:
        """What cases must share to be compared."""
        return self.errors, self.dead


@dataclass(frozen=True)
class Effect:
    """What came of a fault: the calls that failed (number, errno), and what the kernel did.

    `lost`: after recovery something was missing that had been promised before the first error.
    `unsound`: recovery failed, or e2fsck was not content with it. `bugs`: of bugs_of().
    """

    errors: tuple[tuple[int, int], ...]
    aborted: bool
    read_only: bool
    lost: bool
    unsound: bool
    bugs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fault:
    """A request that failed: its number, its kind, the call under way, and what came of it."""

    first: int
    kind: str
    op: int
    effect: Effect


@dataclass
class Result:
    """What came of a case. `calls` are the names of its operations; seconds are the host's.

    `asked` is how many requests were to fail.
    """

    case: Case
    calls: tuple[str, ...]
    faults: list[Fault] = field(default_factory=list)
    seconds: float = 0.0
    asked: int = 0

    @property
    def made(self) -> int:
        """How many of these were made a second time, and so did fail."""
        return len(self.faults)

    def call(self, op: int) -> str:
        """What was under way; after the last operation the unmount."""
        return self.calls[op] if op < len(self.calls) else UNMOUNT


@dataclass(frozen=True)
class Reaction:
    """An effect without the place in the script where it was seen.

    `by` is the sort of call that failed first, "" if none did; `at_once` if it was under way.
    `missed` counts the syncs that began after the fault and returned before that, `passed` the
    calls that succeeded after it though the journal had been aborted.
    """

    by: str
    errno: int
    at_once: bool
    missed: int
    passed: int
    aborted: bool
    read_only: bool
    lost: bool
    unsound: bool
    bugs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """A fault in our modules, and which of the rules it is in accord with; "" if none."""

    case: Case
    fault: Fault
    call: str
    rule: str
    reaction: Reaction
    stock: tuple[Reaction, ...]


def sort_of(call: str) -> str:
    """Calls of one sort wait for the same things."""
    return SORTS.get(call, call)


def reaction(result: Result, fault: Fault) -> Reaction:
    """How the calls of a workload took a fault."""
    effect = fault.effect
    failed = min(effect.errors, default=None)
    end = failed[0] if failed else len(result.calls)
    between = [sort_of(call) for call in result.calls[fault.op + 1 : end]]
    bad = {op for op, _ in effect.errors}
    after = [op for op in range(end + 1, len(result.calls)) if result.calls[op] not in IDLE]
    return Reaction(
        by=sort_of(result.calls[failed[0]]) if failed else "",
        errno=failed[1] if failed else 0,
        at_once=failed is not None and failed[0] == fault.op,
        missed=sum(sort in SORTS.values() for sort in between),
        passed=sum(op not in bad for op in after) if effect.aborted else 0,
        aborted=effect.aborted,
        read_only=effect.read_only,
        lost=effect.lost,
        unsound=effect.unsound,
        bugs=effect.bugs,
    )


Came = TypeVar("Came", Effect, Reaction)


def without_others(stock: Came, ours: Came) -> Came:
    """What came of a fault on stock, but for the bugs that ours did not log, and ours' loss."""
    bugs = tuple(bug for bug in ours.bugs if bug in stock.bugs)
    return replace(stock, bugs=bugs, lost=stock.lost and ours.lost)


def _among(ours: Came, stock: Iterable[Came]) -> bool:
    """Has one of these come of it, and every bug with it?"""
    return any(without_others(one, ours) == ours for one in stock)


def _unattended(result: Result, fault: Fault) -> bool:
    """Was nobody waiting for a request when it failed?"""
    return result.call(fault.op) in (*IDLE, UNMOUNT)


def _settling_failed(result: Result, fault: Fault, how: Reaction) -> bool:
    """May it have been a request of settling, and was it taken as one must be?"""
    lost_nothing = not (how.lost or how.unsound or how.missed or how.passed or how.bugs)
    alone = result.case.mode in EAGER_MODES and _unattended(result, fault)
    return alone and how.aborted and lost_nothing and fault.kind != READ


def _kind(result: Result, fault: Fault) -> str:
    """What of a call's requests must be the same on stock."""
    return "any" if result.case.dead else fault.kind


def _loose(kind: str) -> str:
    """A carried commit has the flushes of syncs."""
    return SYNC_FLUSH if kind == COMMIT_FLUSH else kind


class Stock:
    """What stock ext4 did, to be looked up by the rules above."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._calls: dict[tuple[str, int, str], set[Effect]] = {}
        self._sorts: dict[tuple[str, str], set[Reaction]] = {}
        self._unattended: dict[str, set[Reaction]] = {}
        for result in results:
            for fault in result.faults:
                kind = _kind(result, fault)
                place = result.case.workload, fault.op, kind
                self._calls.setdefault(place, set()).add(fault.effect)
                how = reaction(result, fault)
                sort = kind, sort_of(result.call(fault.op))
                self._sorts.setdefault(sort, set()).add(how)
                if fault.kind == COMMIT_FLUSH:  # one request may be the flush of a sync as well
                    self._sorts.setdefault((SYNC_FLUSH, sort[1]), set()).add(how)
                if _unattended(result, fault):
                    self._unattended.setdefault(_loose(fault.kind), set()).add(how)

    def judge(self, result: Result, fault: Fault) -> Verdict:
        """Which rule a fault in our modules is in accord with."""
        how = reaction(result, fault)
        call = result.call(fault.op)
        kind = _kind(result, fault)
        place = result.case.workload, fault.op, kind
        sort = self._sorts.get((kind, sort_of(call)), set())
        alone = self._unattended.get(_loose(fault.kind), set())
        if _among(fault.effect, self._calls.get(place, set())):
            rule = SAME_CALL
        elif _among(how, sort):
            rule = SAME_SORT
        elif _among(how, alone) and fault.kind not in (DATA, READ):
            rule = UNATTENDED
        elif _settling_failed(result, fault, how):
            rule = SETTLING
        else:
            rule = ""
        return Verdict(result.case, fault, call, rule, how, tuple(sorted(sort | alone, key=repr)))


def identical(ours: Result, stock: Result) -> list[str]:
    """Where the options are off: what is not the same, request by request."""
    pairs = list(zip(ours.faults, stock.faults, strict=False))
    problems = [
        f"{ours.case.name}: request {one.first} ({one.kind}, {ours.call(one.op)}): {one.effect}; "
        f"stock: {other.kind}, {stock.call(other.op)}: {other.effect}"
        for one, other in pairs
        if one != replace(other, effect=without_others(other.effect, one.effect))
    ]
    if len(ours.faults) != len(stock.faults):
        problems.append(
            f"{ours.case.name}: {len(ours.faults)} requests, stock has {len(stock.faults)}"
        )
    return problems


def compare(results: Sequence[Result]) -> tuple[list[Verdict], list[str]]:
    """The verdicts on the modes but "off", and what is different from stock, in words."""
    verdicts: list[Verdict] = []
    differences: list[str] = []
    by_case: Mapping[Case, Result] = {result.case: result for result in results}
    for variant in dict.fromkeys(result.case.variant for result in results):
        here = [result for result in results if result.case.variant == variant]
        stock = Stock(result for result in here if result.case.mode == CONTROL)
        for result in here:
            control = Case(result.case.workload, CONTROL, *variant)
            if result.case.mode == "off" and control in by_case:
                differences += identical(result, by_case[control])
            elif result.case.mode != CONTROL:
                verdicts += [stock.judge(result, fault) for fault in result.faults]
    differences += [_words(verdict) for verdict in verdicts if not verdict.rule]
    return verdicts, differences


def _words(verdict: Verdict) -> str:
    fault = verdict.fault
    stock = "; ".join(_reaction_words(one) for one in verdict.stock) or "no such request"
    return (
        f"{verdict.case.name}: request {fault.first} ({fault.kind}) failed in operation {fault.op} "
        f"({verdict.call}): {_reaction_words(verdict.reaction)}. Stock: {stock}"
    )


def _reaction_words(one: Reaction) -> str:
    when = "at once" if one.at_once else f"later, {one.missed} syncs passed over"
    words = [f"{one.by} failed with errno {one.errno} {when}" if one.by else "no call failed"]
    words += [f"{one.passed} calls succeeded after that"] if one.passed else []
    words += ["journal aborted"] if one.aborted else []
    words += ["read-only"] if one.read_only else []
    words += ["promised data lost"] if one.lost else []
    words += ["unsound"] if one.unsound else []
    words += [f"the kernel logged {bug!r}" for bug in one.bugs]
    return ", ".join(words)
