"""The processor that QEMU's guests have: what QEMU and the kernel are told of it, and its speed.

In virtual time every instruction takes the same, and QEMU counts each repetition of a string
instruction as one. So the flags decide what a copy costs beside a system call: by them the guest's
kernel and libc choose how they copy. `./fastsync calibrate` holds each row of processors.toml
against the host's own processor; docs/device-model.md has its table.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fastsync_lab.host.errors import UsageError, check_names

TABLE = Path(__file__).with_name("processors.toml")
DEFAULT_MIPS = 500
# Millions of instructions a second, by the shift that QEMU takes: an instruction has 2^shift ns.
SPEEDS = {1000: 0, 500: 1, 250: 2, 125: 3}


@dataclass(frozen=True)
class Processor:
    """A row of processors.toml: `cpu` is QEMU's -cpu, `parameters` are for the kernel."""

    name: str
    says: str
    cpu: str
    parameters: tuple[str, ...] = ()

    @property
    def record(self) -> dict[str, Any]:
        """What a figure depends on."""
        return {"cpu": self.cpu, "parameters": list(self.parameters)}

    @property
    def switched(self) -> dict[str, bool]:
        """The flags that are switched on or off by name."""
        words = self.cpu.split(",")[1:]
        named = {word[1:]: word[0] == "+" for word in words if word[0] in "+-"}
        valued = (word.partition("=") for word in words if word.endswith(("=on", "=off")))
        return named | {name: value == "on" for name, _, value in valued}


@dataclass(frozen=True)
class Table:
    """processors.toml: all rows by name, which one is measured with, and which one else."""

    rows: Mapping[str, Processor]
    default: str
    untimed: str


@cache
def _table() -> Table:
    """The table. Raises UsageError when it names a row that it does not have."""
    table = tomllib.loads(TABLE.read_text())
    found = {
        name: Processor(name, row["says"], row["cpu"], tuple(row.get("parameters", ())))
        for name, row in table["processor"].items()
    }
    check_names("processor", [table["default"], table["untimed"]], list(found))
    return Table(found, table["default"], table["untimed"])


def processor_names() -> list[str]:
    """The names of all rows."""
    return list(_table().rows)


def load_processor(name: str | None = None) -> Processor:
    """The row of that name, or the one of the guests that are measured.

    Raises UsageError for an unknown name.
    """
    table = _table()
    check_names("processor", [name or table.default], list(table.rows))
    return table.rows[name or table.default]


def untimed_processor() -> Processor:
    """The row of the guests that nobody measures."""
    return load_processor(_table().untimed)


def check_mips(mips: int) -> None:
    """Raise UsageError for a speed that QEMU's clock cannot have."""
    if mips not in SPEEDS:
        allowed = ", ".join(map(str, SPEEDS))
        raise UsageError(f"no {mips} million instructions a second: allowed are {allowed}")


# --- in words ----------------------------------------------------------------------------------


def label(environment: Mapping[str, Any]) -> str:
    """The processor that a result is of, as far as it is not the one guests have now.

    A result of another one, or of another speed, never has the same label.
    """
    said = spelled(environment["processor"])
    known = {spelled(one.record): one.name for one in _table().rows.values()}
    mips = speed(environment)
    words = [] if mips == DEFAULT_MIPS else [f"{mips:g} MIPS"]
    if said != spelled(load_processor().record):
        words.append(f"processor {known.get(said, said)}")
    return ", ".join(words)


def speed(environment: Mapping[str, Any]) -> float:
    """The speed that a result is of, in millions of instructions a second."""
    return float(1000 / 2 ** environment["icount_shift"])


def spelled(record: Mapping[str, Any]) -> str:
    """What QEMU and the kernel are told of a processor."""
    return " ".join([record["cpu"], *record["parameters"]])


def models_cpu(shift: int) -> str:
    """The speed in virtual time, in words."""
    return f"{1000 / 2**shift:g} million instructions a second, one core"
