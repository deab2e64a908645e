"""The scripts of the explorer's workloads, and that the oracle knows all that they do."""

import pytest

from fastsync_lab.crash.oracle import Oracle, Promise
from fastsync_lab.crash.workloads import make_script, workload_names
from tests.unit.crashes import trace


@pytest.mark.parametrize("name", workload_names())
def test_scripts_repeat_and_differ_by_seed(name: str) -> None:
    script = make_script(name, 1, 100)
    assert script == make_script(name, 1, 100)
    assert script != make_script(name, 2, 100)
    assert 0 < script.prepared < len(script.lines)


@pytest.mark.parametrize("name", [n for n in workload_names() if not make_script(n, 1, 100).sql])
@pytest.mark.parametrize("seed", range(5))
def test_oracle_understands_every_script(name: str, seed: int) -> None:
    """Numbered as if each line had run alone; paths are there when they are used."""
    lines = [line.split(" ", 1)[1] for line in make_script(name, seed, 100).lines]
    oracle = Oracle(trace(*lines), Promise())
    names = oracle.model.groups[-1].epochs[-1].names
    assert names or name == "bounded"
