"""What is explored, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastsync_lab.crash import logged
from fastsync_lab.crash.kinds import KINDS, Kind
from fastsync_lab.crash.model import Promise
from fastsync_lab.crash.script import Script
from fastsync_lab.crash.workloads import make_script
from fastsync_lab.host.kernels import UML
from fastsync_lab.host.options import CONTROL, DEFAULT_INTERVAL_MS, mode_options, mtime_mode

# When a whole commit has overtaken the fast commits, e2fsck (1.47.0 to 1.47.4) calls their old
# transaction number invalid and throws the whole journal away; the kernel stops there.
E2FSCK_CANNOT_REPLAY = ("fast_commit",)
LARGE = ("bounded", "mariadb")
CHUNK = 6  # cases
# A number, so that what is logged does not depend on how fast the device is.
LOGS_MOST_PAGES = 100


@dataclass(frozen=True)
class Case:
    """What is explored: a workload in a mode (or "stock") on a kind of file system.

    `journal` is a key of kinds.KINDS. `delays` is the seed of the delays that the modules make
    between what they choose and when they use it, 0: they make none.
    """

    workload: str
    mode: str
    journal: str
    interval_ms: int = DEFAULT_INTERVAL_MS
    seed: int = 1
    delays: int = 0

    @property
    def name(self) -> str:
        """The name of its folder."""
        delays = f"-delays-{self.delays}" if self.delays else ""
        return f"{self.workload}-{self.mode}-{self.journal}-{self.interval_ms}-{self.seed}{delays}"

    @property
    def kind(self) -> Kind:
        """How its file system is made and mounted."""
        return KINDS[self.journal]

    @property
    def is_large(self) -> bool:
        """It takes minutes, most others a few seconds."""
        return self.workload.startswith(LARGE)

    @property
    def mount_options(self) -> str:
        """What it is mounted with."""
        return ",".join([f"data={self.kind.data}", *self.kind.mount, *self.mode_options])

    @property
    def mode_options(self) -> list[str]:
        """The mount options that are its mode."""
        small = self.workload.startswith(logged.PREFIX)
        eager = f"eager_sync={logged.THRESHOLD if small else LOGS_MOST_PAGES}"
        return mode_options(self.mode, self.interval_ms, eager)

    @property
    def stock_says(self) -> bool:
        """Whether what is durable is for stock ext4's code to know.

        With the option off our modules take a fast commit that was under way before an fsync for
        the one it asked for, as stock does.
        """
        mtime = mtime_mode(self.mode)
        return self.mode == CONTROL or (mtime == "off" and self.journal in E2FSCK_CANNOT_REPLAY)

    @property
    def promise(self) -> Promise:
        """What the mode promises of stamps."""
        return Promise.of(mtime_mode(self.mode), self.interval_ms, self.kind.grain_ns)

    def command(self, state: str = "") -> str:
        """The command line that looks at one state again, or explores the case again."""
        words = ["./fastsync crash", self.workload, f"--mode {self.mode}"]
        words += [f"--journal {self.journal}", f"--seed {self.seed}"]
        if self.interval_ms != DEFAULT_INTERVAL_MS:
            words.append(f"--interval {self.interval_ms}")
        if self.delays:
            words.append(f"--delays {self.delays}")
        if state:
            words.append(f"--state {state}")
        return " ".join(words)


@dataclass(frozen=True)
class Request:
    """What a run is asked for; `state` looks at one state of what was recorded before.

    `recover_in` is one of builds.MACHINES.
    """

    cases: tuple[Case, ...]
    states: int = 200
    kernel: str = "6.12"
    state: str | None = None
    recover_in: str = UML

    def script(self, case: Case) -> Script:
        """What is run in a case."""
        return make_script(case.workload, case.seed, self.states)


@dataclass(frozen=True)
class Failure:
    """A state that lost something; `image` is what was on the medium.

    Without a state or an image: the recording showed nothing.

    `on_stock`: the stock modules lose the same, in the same workload.
    """

    state: str
    acknowledged: int
    problems: tuple[str, ...]
    command: str
    image: str
    on_stock: bool = False


@dataclass
class Outcome:
    """What came of a case. Times are s of the host; `cuts` are places, `states` images.

    `own_states`: how many of these our own modules have recovered as well, with the mode's options.
    `e2fsck_wrong` counts the states in which e2fsck alone failed to replay fast commits,
    `blocks_wrong` those in which the kernel did but for BLOCKS_WRONG.
    """

    case: Case
    operations: int = 0
    cuts: int = 0
    states: int = 0
    second_states: int = 0
    own_states: int = 0
    considered: int = 0
    e2fsck_wrong: int = 0
    blocks_wrong: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    @property
    def own_failures(self) -> list[Failure]:
        """Those that the stock modules do not have."""
        return [failure for failure in self.failures if not failure.on_stock]


def chunks(cases: Sequence[Case], jobs: int) -> list[tuple[Case, ...]]:
    """What one of `jobs` guests records before it recovers any, for the modules change in between.

    A large case is alone, so that no guest is left with many.
    """
    most = min(CHUNK, -(-len(cases) // jobs))
    taken: list[list[Case]] = []
    for case in cases:
        if not taken or len(taken[-1]) == most or case.is_large or taken[-1][-1].is_large:
            taken.append([])
        taken[-1].append(case)
    return [tuple(some) for some in taken]
