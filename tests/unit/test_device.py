"""Device profiles: what is shipped is complete and consistent, what is wrong is refused clearly."""

import re

import pytest

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.machine.device import (
    PARAMETERS,
    PROFILE_DIR,
    DeviceProfile,
    device_names,
    load_profile,
    parse_profile,
    profile_names,
    real_profiles,
    transfer_ns,
)

ALL = ["emmc", "ufs", "sata-ssd", "nvme", "nvme-plp", "uniform-100us"]
TICK_NS = 4_000_000  # HZ=250


def commit_ns(profile: DeviceProfile) -> int:
    """Device time of a 4 KiB overwrite and an fsync that commits.

    Data; descriptor and inode block; flush; commit block with FUA.
    """
    return (
        profile.service_ns("random-write", 4096)
        + profile.service_ns("random-write", 8192)
        + profile.service_ns("flush")
        + profile.service_ns("fua-write", 4096)
    )


def datasync_ns(profile: DeviceProfile) -> int:
    """Device time of a 4 KiB overwrite and an fsync that does not commit: data and flush."""
    return profile.service_ns("random-write", 4096) + profile.service_ns("flush")


def text_of(name: str) -> str:
    return (PROFILE_DIR / f"{name}.toml").read_text()


def test_names() -> None:
    assert profile_names() == ALL
    assert real_profiles() == tuple(ALL[:-1])


@pytest.mark.parametrize("name", ALL)
def test_shipped_profile(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.description and 10 < len(profile.about) < 50
    assert set(profile.sources) == set(PARAMETERS)
    parameters = profile.module_parameters(64)
    others = ["capacity_mib", "devices", "lose_cache_on_failed_flush"]
    assert [item.split("=")[0] for item in parameters] == [*PARAMETERS, *others]
    assert all(re.fullmatch(r"[a-z_]+=\d+", item) for item in parameters)
    assert parameters[-3:] == ["capacity_mib=64", "devices=1", "lose_cache_on_failed_flush=0"]


def test_module_parameters() -> None:
    assert load_profile("nvme-plp").module_parameters(512, devices=3, lose_cache=True) == [
        "read_ns=113700",
        "write_ns=10700",
        "random_write_ns=7000",
        "flush_ns=0",
        "fua_ns=0",
        "discard_ns=100000",
        "read_mib_s=3051",
        "write_mib_s=1716",
        "queue_depth=128",
        "volatile_cache=0",
        "capacity_mib=512",
        "devices=3",
        "lose_cache_on_failed_flush=1",
    ]


@pytest.mark.parametrize("devices", [0, 9])
def test_wrong_number_of_devices(devices: int) -> None:
    with pytest.raises(FastsyncError, match=rf"devices = {devices}: allowed is .* from 1 to 8"):
        load_profile("emmc").module_parameters(512, devices=devices)


def test_names_of_devices() -> None:
    assert device_names(3) == ["/dev/flash0", "/dev/flash1", "/dev/flash2"]


def test_service_time() -> None:
    profile = load_profile("emmc")
    assert transfer_ns(1 << 20, 1) == 1_000_000_000
    assert transfer_ns(1 << 20, 0) == 0
    assert profile.service_ns("write", 4096) == 50_000 + 75_120
    assert profile.service_ns("random-write", 4096) == 50_000 + 75_120 + 268_000
    assert profile.service_ns("fua-write", 4096) == 50_000 + 75_120 + 3_600_000
    assert profile.service_ns("read", 4096) == 126_000 + 16_412
    assert profile.service_ns("flush") == profile.service_ns("discard", 1 << 20) == 3_600_000


def test_emmc_matches_its_sources() -> None:
    """Jeong: 54.5 MB/s sequential, 10.4 random. Sung: 0.5 MB/s of 4 KiB writes with fsync."""
    profile = load_profile("emmc")
    assert 524288e3 / profile.service_ns("write", 524288) == pytest.approx(54.5, rel=0.02)
    assert 4096e3 / profile.service_ns("random-write", 4096) == pytest.approx(10.4, rel=0.02)
    assert 4096e3 / commit_ns(profile) == pytest.approx(0.5, rel=0.02)


def test_sata_ssd_matches_its_source() -> None:
    """Son, PC: a commit takes nearly a tick; without one the call takes 1.65 ms."""
    profile = load_profile("sata-ssd")
    assert commit_ns(profile) == pytest.approx(3_750_000, rel=0.01)
    assert datasync_ns(profile) == pytest.approx(1_650_000, rel=0.01)


def test_ufs_matches_its_source() -> None:
    """Son, mobile: 22 calls in a tick of 10 ms, one of which commits."""
    profile = load_profile("ufs")
    assert commit_ns(profile) + 21 * datasync_ns(profile) == pytest.approx(10_000_000, rel=0.02)


def test_nvme_matches_pg_test_fsync() -> None:
    """970 EVO, 8 KiB: 947 fdatasync/s, 319 fsync/s."""
    profile = load_profile("nvme")
    assert 1e9 / (datasync_ns(profile) + transfer_ns(4096, profile.write_mib_s)) == pytest.approx(
        947, rel=0.01
    )
    assert 1e9 / commit_ns(profile) == pytest.approx(319, rel=0.01)


def test_where_stock_commits_on_most_calls() -> None:
    """A call that takes a tick is always followed by one with a new stamp."""
    assert datasync_ns(load_profile("emmc")) == pytest.approx(TICK_NS, rel=0.01)
    assert commit_ns(load_profile("emmc")) > 2 * TICK_NS
    assert commit_ns(load_profile("sata-ssd")) > 0.9 * TICK_NS


def test_unknown_name_lists_the_names() -> None:
    with pytest.raises(FastsyncError, match=r"no device profile 'floppy': allowed are emmc, nvme,"):
        load_profile("floppy")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r"read_ns = .*", "", "device profile ufs: parameters lacks read_ns"),
        (r"flush_ns = .*", "flush_ns = -1", "flush_ns = -1: allowed is an integer from 0 to"),
        (r"queue_depth = .*", "queue_depth = 0", "queue_depth = 0: allowed is .* from 1 to 10240"),
        (r"write_ns = .*", "write_ns = 1.5", "write_ns = 1.5: allowed is an integer"),
        (r"write_ns = .*", "write_ns = true", "write_ns = True: allowed is an integer"),
        (r"volatile_cache = .*", "volatile_cache = 1", "volatile_cache = 1: allowed are true and"),
        (r"real = .*", "real = 0", "real = 0: allowed are true and false"),
        (r"rank = .*", "", "the profile lacks rank"),
        (r"fua_ns = .*", "fua_ns = 1\nspeed = 2", "parameters has unknown speed; known: read_ns"),
        (r"description = .*", "description = 5", "description has to be a text"),
        (r"\[sources\](.|\n)*", "[sources]", "sources lacks read_ns, write_ns"),
        (r"\[sources\](.|\n)*", "", "the profile lacks sources"),
        (r"description = .*", "description = ", "device profile ufs: Invalid value"),
    ],
)
def test_wrong_profile(old: str, new: str, message: str) -> None:
    text, changes = re.subn(rf"^{old}", new, text_of("ufs"), count=1, flags=re.MULTILINE)
    assert changes == 1
    with pytest.raises(FastsyncError, match=message):
        parse_profile("ufs", text)


@pytest.mark.parametrize("capacity_mib", [0, -1, (1 << 20) + 1])
def test_wrong_capacity(capacity_mib: int) -> None:
    with pytest.raises(FastsyncError, match=r"capacity_mib = .*: allowed is an integer from 1 to"):
        load_profile("emmc").module_parameters(capacity_mib)
