"""fastsync xfstests: which guest a test gets, and what comes of one that is lost."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from fastsync_lab.host import shell
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.xfstests import run as run_module
from fastsync_lab.xfstests.guest import FUNCTIONS
from fastsync_lab.xfstests.results import (
    DIED,
    FAIL,
    HUNG,
    NOT_RUN,
    PASS,
    Run,
)

PASSED, FAILED = Run(PASS, 3), Run(FAIL, 4, "output")


class FakeGuest:
    """Says what it is told to say; an exception is raised."""

    def __init__(self, said: list[Run | FastsyncError]) -> None:
        self.vm, self.running, self._said = self, True, said

    def __enter__(self) -> "FakeGuest":
        return self

    def __exit__(self, *_: object) -> None:
        self.running = False

    def kill(self) -> None:
        self.running = False

    def use(self, _mode: str, _modules: object) -> None:
        pass

    def run(self, tests: Sequence[str], *, limit_s: float) -> Iterator[Run]:
        assert limit_s == 9
        for _ in tests:
            one = self._said.pop(0)
            if isinstance(one, FastsyncError):
                raise one
            self.running = one.verdict not in (HUNG, DIED)
            yield one
            if not self.running:
                return


def guests_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: list[Run | FastsyncError], tests: str
) -> tuple[list[FakeGuest], list[Run]]:
    """The guests that a machine takes for tests, and the runs."""
    guests: list[FakeGuest] = []

    def boot(*_: object, **__: object) -> FakeGuest:
        guests.append(FakeGuest(said))
        return guests[-1]

    monkeypatch.setattr(run_module, "Vm", boot)
    monkeypatch.setattr(run_module, "VmConfig", lambda *_, **__: None)
    monkeypatch.setattr(run_module, "prepare", lambda vm, *_: vm)
    machine = run_module.Machine(MagicMock(), tmp_path, lambda _: None)
    try:
        ran = list(machine.run("defer", tests, 9))
        assert [test for test, _ in ran] == list(tests)
        return guests, [run for _, run in ran]
    finally:
        machine.close()
        assert not any(guest.running for guest in guests)


@pytest.mark.parametrize("verdict", [FAIL, HUNG])
def test_the_test_after_one_that_did_not_pass_gets_a_new_guest(
    verdict: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[Run | FastsyncError] = [PASSED, Run(verdict, 0), PASSED, Run(NOT_RUN, 1), PASSED]
    expected = list(said)
    guests, runs = guests_for(monkeypatch, tmp_path, said, "abcde")
    assert (len(guests), runs) == (2, expected)


def test_a_test_with_which_a_guest_died_is_run_again_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    died = Run(DIED, 0)
    said: list[Run | FastsyncError] = [PASSED, died, PASSED, died, died, PASSED]
    guests, runs = guests_for(monkeypatch, tmp_path, said, "abcd")
    assert (len(guests), runs) == (4, [PASSED, PASSED, died, PASSED])


def test_a_test_that_could_not_be_run_is_tried_in_a_new_guest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[Run | FastsyncError] = [PASSED, FastsyncError("no mkfs"), PASSED]
    guests, runs = guests_for(monkeypatch, tmp_path, said, "ab")
    assert (len(guests), runs) == (2, [PASSED, PASSED])


def test_a_test_that_cannot_be_run_at_all_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[Run | FastsyncError] = [FastsyncError("no mkfs"), FastsyncError("no mkfs")]
    with pytest.raises(FastsyncError, match=r"^defer a: no mkfs$"):
        guests_for(monkeypatch, tmp_path, said, "a")


# --- the guest's part


def in_bash(script: str, folder: Path) -> str:
    """What a script prints that has guest.sh, with a suite and what it says in a folder."""
    functions = FUNCTIONS.read_text()
    places = f"suite={folder}\nsaid={folder}/check.out\n"
    return shell.run(["bash", "-c", f"{functions}\n{places}{script}"]).stdout


def test_what_a_test_left_before_goes_when_it_leaves_something(tmp_path: Path) -> None:
    results, left = tmp_path / "results" / "generic", tmp_path / "left" / "generic-001"
    for folder in (results, left):
        folder.mkdir(parents=True)
    (results / "001.full").write_text("new")
    (left / "error").write_text("old")
    in_bash(f"dmesg() {{ echo log; }}\nkeep_left generic/001 {left}", tmp_path)
    kept = {file.name: file.read_text() for file in left.iterdir()}
    assert kept == {"001.full": "new", "dmesg": "log\n"}


def test_what_the_suite_said_before_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    script = """
        keyctl() { echo new; }
        for _ in {1..50}; do
            echo old >"$said"
            begin_tests generic/001
            printf '%s\\n' "$(<"$said")"
            wait
        done
    """
    assert "old" not in in_bash(script, tmp_path)
