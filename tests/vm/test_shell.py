"""./fastsync shell: a person at a terminal, and a shell in the guest."""

import os

import pytest

from fastsync_lab.host.paths import repo_root
from tests.person import person_at

LIMIT_S = 240.0  # the host may be busy


@pytest.mark.debian("the command boots Debian's kernel")
def test_a_shell_has_a_terminal_and_ctrl_c_goes_to_the_program_inside(kernel: str) -> None:
    command = (str(repo_root() / "fastsync"), "shell", "--stock", "--kernel", kernel)
    with person_at(*command, "--device", "nvme", limit_s=LIMIT_S) as (pid, person):
        person.sees("root@fastsync:")
        person.types('stty size; echo "$(tty) $FASTSYNC_DEV"\r')
        person.sees("33 111\r\n/dev/pts/0 /dev/flash0\r\n")
        person.types("sh -c 'echo o''n; exec cat'\r")  # once it runs, the terminal edits lines
        person.sees("on\r\n")
        person.types("abc\r")
        person.sees("abc\r\nabc\r\n")
        person.types("\x03")
        person.sees("root@fastsync:")
        person.types('echo "status $?"\r')
        person.sees("status 130\r\n")
        person.types("exit 7\r")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
