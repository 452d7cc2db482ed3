"""What all tests share: quiet threads, reproducible examples, and vendors that may be absent.

With CI=true an absent vendor or browser is a failure, not a skip.
"""

import os
import shutil

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: same sums on every machine
os.environ["COLUMNS"] = ""  # readline and pytest-xdist set it: lines of the commands would be wrapped at it

import hypothesis
import pytest

hypothesis.settings.register_profile("nrf", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("nrf")


def absent(reason: str) -> None:
    """Skip, or fail where everything should be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI=true and {reason}")
    pytest.skip(reason)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_vendor(name): runs in an environment that `nrf setup` builds")


def pytest_runtest_setup(item: pytest.Item) -> None:
    from nrf.backends import vendors

    for marker in item.iter_markers("needs_vendor"):
        if reason := vendors.absent(marker.args[0]):
            absent(str(reason))


@pytest.fixture(scope="session")
def browser() -> str:
    """Path of a Chromium, to look at HTML reports as a reader would."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    absent("no browser: install chromium")
    raise AssertionError
