"""The modelled flash devices: profiles of kernel/flashdev, and what a request to one should cost.

A profile is a file in profiles/: what it is, where it stands in tables, the driver's parameters,
and for each parameter the source of its number. docs/device-model.md explains the model.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from fastsync_lab.host.errors import FastsyncError, check_names

PROFILE_DIR = Path(__file__).parent / "profiles"
NS_PER_S = 1_000_000_000
BYTES_PER_MIB = 1 << 20

# The ranges that flashdev accepts, both ends included.
PARAMETER_RANGES: Mapping[str, tuple[int, int]] = {
    "read_ns": (0, NS_PER_S),
    "write_ns": (0, NS_PER_S),
    "random_write_ns": (0, NS_PER_S),
    "flush_ns": (0, NS_PER_S),
    "fua_ns": (0, NS_PER_S),
    "discard_ns": (0, NS_PER_S),
    "read_mib_s": (0, 1 << 20),
    "write_mib_s": (0, 1 << 20),
    "queue_depth": (1, 10240),
}
CAPACITY_MIB_RANGE = (1, 1 << 20)
DEVICES_RANGE = (1, 8)
PARAMETERS = (*PARAMETER_RANGES, "volatile_cache")
SHOWN = ("description", "about", "rank", "real")
RANK_RANGE = (1, 99)

RequestKind = Literal["read", "write", "random-write", "fua-write", "flush", "discard"]


@dataclass(frozen=True)
class DeviceProfile:
    """The parameters of a modelled device.

    Times are ns, bandwidths MiB/s (0: no limit), `queue_depth` requests. `random_write_ns` and
    `fua_ns` come on top of `write_ns`. `sources` says for each parameter where its number is from.
    `about` is the description in a few words, `rank` its place in tables, from 1. `real`: there are
    such devices.
    """

    name: str
    description: str
    about: str
    rank: int
    real: bool
    read_ns: int
    write_ns: int
    random_write_ns: int
    flush_ns: int
    fua_ns: int
    discard_ns: int
    read_mib_s: int
    write_mib_s: int
    queue_depth: int
    volatile_cache: bool
    sources: dict[str, str]

    def module_parameters(
        self, capacity_mib: int, *, devices: int = 1, lose_cache: bool = False
    ) -> list[str]:
        """The arguments of `insmod flashdev.ko` for devices of `capacity_mib` MiB each.

        With `lose_cache` a flush that fails takes with it what the volatile cache held. Raises
        FastsyncError for a capacity or a number of devices that the driver does not accept.
        """
        check_range("capacity_mib", capacity_mib, CAPACITY_MIB_RANGE)
        check_range("devices", devices, DEVICES_RANGE)
        numbers = [f"{key}={getattr(self, key)}" for key in PARAMETER_RANGES]
        return [
            *numbers,
            f"volatile_cache={int(self.volatile_cache)}",
            f"capacity_mib={capacity_mib}",
            f"devices={devices}",
            f"lose_cache_on_failed_flush={int(lose_cache)}",
        ]

    def service_ns(self, kind: RequestKind, size_bytes: int = 0) -> int:
        """What one request costs on the idle device, in ns, from its dispatch to its completion.

        `write` and `fua-write` begin where the last write ended; `random-write` does not.
        """
        if kind == "read":
            return self.read_ns + transfer_ns(size_bytes, self.read_mib_s)
        if kind == "flush":
            return self.flush_ns
        if kind == "discard":
            return self.discard_ns
        extra = {"write": 0, "random-write": self.random_write_ns, "fua-write": self.fua_ns}[kind]
        return self.write_ns + extra + transfer_ns(size_bytes, self.write_mib_s)


def device_names(count: int) -> list[str]:
    """The paths of the first `count` devices of the driver; the first is $FASTSYNC_DEV."""
    return [f"/dev/flash{number}" for number in range(count)]


def transfer_ns(size_bytes: int, mib_s: int) -> int:
    """Time on the bus, in ns; 0 MiB/s means no limit."""
    return size_bytes * NS_PER_S // (mib_s * BYTES_PER_MIB) if mib_s else 0


def check_range(name: str, value: object, allowed: tuple[int, int]) -> int:
    """`value`, if it is an integer in the range; else FastsyncError names it and the range."""
    low, high = allowed
    if type(value) is not int or not low <= value <= high:
        raise FastsyncError(f"{name} = {value!r}: allowed is an integer from {low} to {high}")
    return value


def profile_names() -> list[str]:
    """The names that load_profile takes, as they stand in tables."""
    return list(_profiles())


def real_profiles() -> tuple[str, ...]:
    """Those of devices that there are."""
    return tuple(name for name, profile in _profiles().items() if profile.real)


@cache
def _profiles() -> Mapping[str, DeviceProfile]:
    """All, by name, as they stand in tables."""
    files = PROFILE_DIR.glob("*.toml")
    found = [parse_profile(file.stem, file.read_text(encoding="utf-8")) for file in files]
    return {one.name: one for one in sorted(found, key=lambda one: one.rank)}


def load_profile(name: str) -> DeviceProfile:
    """The profile of that name.

    Raises UsageError if there is none, FastsyncError if the file of one is wrong.
    """
    check_names("device profile", [name], sorted(_profiles()))
    return _profiles()[name]


def parse_profile(name: str, text: str) -> DeviceProfile:
    """The profile that a TOML text describes.

    Raises FastsyncError, with the profile's name and the key, for a key that is missing, unknown or
    out of range, and for a parameter without a source.
    """
    try:
        return _profile_from(name, tomllib.loads(text))
    except (tomllib.TOMLDecodeError, FastsyncError) as error:
        raise FastsyncError(f"device profile {name}: {error}") from error


def _profile_from(name: str, data: Mapping[str, object]) -> DeviceProfile:
    _check_keys("the profile", data, (*SHOWN, "parameters", "sources"))
    parameters = _table(data, "parameters")
    sources = _table(data, "sources")
    _check_keys("parameters", parameters, PARAMETERS)
    _check_keys("sources", sources, PARAMETERS)
    numbers = {
        key: check_range(key, parameters[key], allowed) for key, allowed in PARAMETER_RANGES.items()
    }
    return DeviceProfile(
        name=name,
        description=_text("description", data["description"]),
        about=_text("about", data["about"]),
        rank=check_range("rank", data["rank"], RANK_RANGE),
        real=_truth("real", data["real"]),
        volatile_cache=_truth("volatile_cache", parameters["volatile_cache"]),
        sources={key: _text(f"sources.{key}", sources[key]) for key in PARAMETERS},
        **numbers,
    )


def _check_keys(where: str, table: Mapping[str, object], keys: tuple[str, ...]) -> None:
    if missing := [key for key in keys if key not in table]:
        raise FastsyncError(f"{where} lacks {', '.join(missing)}")
    if unknown := [key for key in table if key not in keys]:
        raise FastsyncError(f"{where} has unknown {', '.join(unknown)}; known: {', '.join(keys)}")


def _table(data: Mapping[str, object], key: str) -> Mapping[str, object]:
    table = data[key]
    if not isinstance(table, dict):
        raise FastsyncError(f"{key} has to be a table")
    return table


def _truth(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise FastsyncError(f"{key} = {value!r}: allowed are true and false")
    return value


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise FastsyncError(f"{key} has to be a text")
    return value
