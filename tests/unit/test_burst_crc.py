"""The sum of a transaction's blocks: kernel/jbd2/burst_crc.c in userspace against crc32_be()."""

import ctypes
import platform
import random

import pytest

from tests.unit import shim

STUBS = ("linux/crc32.h", "linux/jbd2.h", "asm/cpufeature.h", "asm/fpu/api.h")

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="it is x86's")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    loaded = shim.load(
        "crc_shim", "jbd2", tmp_path_factory.mktemp("crc"), "-O2", "-D_JBD2_BURST_H", headers=STUBS
    )
    for name in ("crc32_be", "jbd2_burst_crc"):
        function = getattr(loaded, name)
        function.restype = ctypes.c_uint32
        function.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t]
    return loaded


@pytest.mark.parametrize("length", [0, 1, 16, 63, 64, 80, 128, 192, 512, 1000, 1024, 4096, 65536])
def test_sum_is_that_of_the_tables(library: ctypes.CDLL, length: int) -> None:
    chance = random.Random(length)
    before = library.folded()
    for start in (0, 0xFFFFFFFF, chance.getrandbits(32)):
        for data in (bytes(length), b"\xff" * length, chance.randbytes(length)):
            expected = library.crc32_be(start, data, length)
            assert library.jbd2_burst_crc(start, data, length) == expected
    folds = library.folded() - before
    assert folds == (9 if length and length % 64 == 0 else 0)


def test_sum_of_known_bytes(library: ctypes.CDLL) -> None:
    """CRC-32/BZIP2 of "123456789" is 0xfc891918, without the inversions at both ends."""
    assert library.jbd2_burst_crc(0xFFFFFFFF, b"123456789", 9) ^ 0xFFFFFFFF == 0xFC891918
