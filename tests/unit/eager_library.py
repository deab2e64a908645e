"""eager_model/, the rules of eager syncing as a state machine, compiled: what tests ask it."""

import ctypes
from dataclasses import dataclass
from pathlib import Path

import pytest

from fastsync_lab.host import shell

MOST_NAMES = 64
LONGEST_STORY = 256 * 64
UNLIMITED = 255


@dataclass(frozen=True)
class Found:
    """What a search has found: a story if something was broken, else none."""

    states: int
    steps: int
    stuck: int  # states in which somebody waits and nothing can happen
    complete: bool
    taken: dict[str, int]
    length: int
    story: str


class Model:
    """The library, which is not for two threads."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.faults = self.names("fault_names")
        self.budgets = self.names("budget_names")
        self.ops = self.names("op_names")

        class Result(ctypes.Structure):
            """struct result of search.c."""

            _fields_ = [
                *((name, ctypes.c_uint64) for name in ("states", "steps", "stuck", "full")),
                ("taken", ctypes.c_uint64 * len(self.ops)),
                ("length", ctypes.c_int),
                ("depth", ctypes.c_int),
                ("story", ctypes.c_char * LONGEST_STORY),
            ]

        self.result = Result
        budgets = ctypes.c_uint8 * len(self.budgets)
        self.library.search.restype = self.library.walk.restype = ctypes.c_bool
        self.library.search.argtypes = [
            *(budgets, ctypes.c_uint64, ctypes.c_int),
            ctypes.POINTER(Result),
        ]
        self.library.walk.argtypes = [
            *(budgets, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.c_int),
            ctypes.POINTER(Result),
        ]

    def names(self, variable: str) -> list[str]:
        found = []
        for name in (ctypes.c_char_p * MOST_NAMES).in_dll(self.library, variable):
            if name is None:
                break
            found.append(name.decode())
        return found

    def chosen(self, budgets: dict[str, int]) -> ctypes.Array[ctypes.c_uint8]:
        assert set(budgets) <= {name.lower() for name in self.budgets}
        chosen = [budgets.get(name.lower(), 0) for name in self.budgets]
        return (ctypes.c_uint8 * len(self.budgets))(*chosen)

    def search(self, *faults: str, bits: int = 20, **budgets: int) -> Found:
        """Every interleaving of what the budgets allow, in a table of 2^bits states."""
        result = self.result()
        self.library.search(self.chosen(budgets), self.planted(faults), bits, result)
        return self.found(result)

    def walk(self, *faults: str, seed: int, walks: int, steps: int) -> Found:
        """Walks by chance, on which everything may happen as often as it likes."""
        budgets = {name.lower(): UNLIMITED for name in self.budgets}
        result = self.result()
        self.library.walk(self.chosen(budgets), self.planted(faults), seed, walks, steps, result)
        return self.found(result)

    def planted(self, faults: tuple[str, ...]) -> int:
        return sum(1 << self.faults.index(fault) for fault in faults)

    def found(self, result: ctypes.Structure) -> Found:
        return Found(
            states=result.states,
            steps=result.steps,
            stuck=result.stuck,
            complete=not result.full,
            taken=dict(zip(self.ops, result.taken, strict=True)),
            length=result.length,
            story=result.story.decode(),
        )


def eager_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A fixture: eager_model/*.c."""
    library = tmp_path_factory.mktemp("eager") / "eager.so"
    sources = sorted(Path(__file__).with_name("eager_model").glob("*.c"))
    shell.run(
        ["gcc", "-O2", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-Wall", "-Wextra", "-Werror",
         "-o", str(library), *(str(source) for source in sources)]
    )  # fmt: skip
    return Model(library)
