"""The guest's part of fastsync xfstests, with a suite of our own in place of the user's."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.vm import Vm
from fastsync_lab.xfstests.guest import Guest, prepare
from fastsync_lab.xfstests.results import DIED, FAIL, HUNG, NOT_RUN, PASS

CHECK = """#!/bin/bash
# Says what the suite's own would say of: devices and users, options, a hang, a panic.
. ./local.config || exit
[ "$1" = --exact-order ] && shift || exit
mkdir -p results/generic
for test; do
	printf '%s ' "$test"
	verdict=' 1s'
	case $test in
	generic/001)
		grep -q '^127.0.0.1 localhost' /etc/hosts &&
			id fsgqa && id fsgqa2 && id 123456-fsgqa && [ -f /boot/config-$(uname -r) ] &&
			[ -b $SCRATCH_DEV ] && [ -b $LOGWRITES_DEV ] && mkfs.ext4 -q $SCRATCH_DEV &&
			mount $SCRATCH_DEV $SCRATCH_MNT && umount $SCRATCH_MNT &&
			dmsetup create try --table "0 8 linear $LOGWRITES_DEV 0" && [ -b /dev/mapper/try ] &&
			dmsetup remove try || verdict='[failed, exit status 1]'
		;;
	generic/002)
		mount $EXT_MOUNT_OPTIONS $TEST_DEV $TEST_DIR && cp /proc/mounts results/$test.full &&
			umount $TEST_DIR
		verdict='- output mismatch'
		;;
	generic/003) verdict='[not run] why' ;;
	generic/004) while :; do :; done ;;
	generic/005) echo c >/proc/sysrq-trigger ;;
	esac >/dev/null
	echo "$verdict"
done
echo "Ran: $*"
"""
# The image of these tests has none, and that of the suite takes long to make.
KEYCTL = """#!/bin/sh
[ "$1 $2" = 'session -' ] && shift 2 && exec "$@"
"""
PROGRAMS = {"var/lib/xfstests/check": CHECK, "usr/bin/keyctl": KEYCTL}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite as an archive."""
    folder = tmp_path_factory.mktemp("suite")
    with tarfile.open(folder / "suite.tar", "w") as tar:
        for path, text in PROGRAMS.items():
            program = folder / Path(path).name
            program.write_text(text)
            program.chmod(0o755)
            tar.add(program, path)
    return folder / "suite.tar"


@pytest.fixture
def suite_guest(tree: KernelTree, archive: Path, flashdev: Path, tmp_path: Path) -> Iterator[Guest]:
    with Vm(VmConfig(tree), out_dir=tmp_path) as vm:
        yield prepare(vm, archive, flashdev)


def test_a_test_has_devices_users_and_the_options_of_its_mode(
    suite_guest: Guest, modules: ModuleSet, stock_modules: ModuleSet
) -> None:
    for mode, pair in (("stock", stock_modules), ("defer", modules)):
        suite_guest.use(mode, pair)
        tests = [f"generic/00{n}" for n in (1, 3, 2)]
        verdicts = [run.verdict for run in suite_guest.run(tests, limit_s=60)]
        assert verdicts == [PASS, NOT_RUN, FAIL]
        left = suite_guest.vm.out_dir / mode / "generic-002"
        assert (left / "check.out").read_text().startswith("generic/002 - output mismatch")
        mounts = (left / "002.full").read_text()
        (options,) = [line for line in mounts.splitlines() if " /mnt/test ext4 " in line]
        assert ("mtime_mode=defer" in options) == (mode == "defer")


@pytest.mark.parametrize(("test", "verdict"), [("generic/004", HUNG), ("generic/005", DIED)])
def test_a_hang_and_a_panic_are_verdicts(
    suite_guest: Guest, modules: ModuleSet, test: str, verdict: str
) -> None:
    suite_guest.use("defer", modules)
    ran = list(suite_guest.run([test, "generic/001"], limit_s=10))
    assert [run.verdict for run in ran] == [verdict]
    assert not suite_guest.vm.running
    said = (suite_guest.vm.out_dir / "defer" / test.replace("/", "-") / "error").read_text()
    assert ("no answer in time" in said) == (verdict == HUNG)
    assert ("sysrq triggered crash" in said.lower()) == (verdict == DIED)
