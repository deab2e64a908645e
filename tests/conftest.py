"""What all tests share."""

import pytest
from hypothesis import HealthCheck, settings

from fastsync_lab.host.debug.kernel import DEBUG
from fastsync_lab.host.kernels import default_series

# A loaded machine may be slow at any one example: no deadline, and the same examples every time.
settings.register_profile(
    "fastsync",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fastsync")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kernel", default=default_series(), help="what the virtual machine boots")
    parser.addoption(
        "--debug-kernel",
        choices=DEBUG,
        help="in its place a kernel from the same source that looks for bugs",
    )
