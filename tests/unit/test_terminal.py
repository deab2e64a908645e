"""terminal.py: a program on a terminal of its own, reached by pipes, and this one's keys as they
are."""

import os
import sys

import pytest

from fastsync_lab.host import terminal
from fastsync_lab.host.paths import repo_root
from tests.person import person_at

# What the guest does, here: the command, its streams pipes, its status that of this program.
OUTER = f"""
import subprocess, sys
sys.path.insert(0, {str(repo_root())!r})
from fastsync_lab.host import terminal
assert terminal.is_there()
with terminal.raw():
    child = subprocess.Popen(terminal.on_terminal(["bash", "--norc"]), stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    import os, threading
    def pump():
        while data := os.read(0, 100):
            child.stdin.write(data); child.stdin.flush()
    threading.Thread(target=pump, daemon=True).start()
    while data := os.read(child.stdout.fileno(), 1000):
        os.write(1, data)
sys.stdout.flush()
os._exit(child.wait())
"""


def test_a_program_inside_has_a_terminal_of_this_ones_size_and_gets_ctrl_c() -> None:
    environment = {"TERM": "xterm-256color"}
    with person_at("env", *(f"{k}={v}" for k, v in environment.items()), sys.executable, "-c",
                   OUTER) as (pid, person):  # fmt: skip
        person.sees("bash-")
        person.types('echo "$TERM $(stty size)"\r')
        person.sees("xterm-256color 33 111\r\n")
        # bash reads keys without the terminal's line editing; what it starts has that again.
        person.types("sh -c 'echo o''n; exec cat'\r")
        person.sees("on\r\n")
        person.types("abc\r")
        person.sees("abc\r\nabc\r\n")  # the echo, and what cat makes of it
        person.types("\x03")
        person.sees("bash-")
        person.types('echo "status $?"\r')
        person.sees("status 130\r\n")
        person.types("exit 7\r")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_keys_are_as_before_when_it_is_over() -> None:
    text = (
        "import termios; from fastsync_lab.host import terminal\n"
        "before = termios.tcgetattr(0)\n"
        "try:\n"
        "    with terminal.raw():\n"
        "        assert not termios.tcgetattr(0)[3] & (termios.ISIG | termios.ECHO)\n"
        "        raise OSError\n"
        "except OSError:\n"
        "    print('kept' if termios.tcgetattr(0) == before else 'changed')\n"
    )
    with person_at("env", f"PYTHONPATH={repo_root()}", sys.executable, "-c", text) as (_, person):
        person.sees("kept")


def test_without_a_terminal_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda fd: fd == 0)
    assert not terminal.is_there()
