"""Hypothesis profiles. `ci` (the default) is repeatable; `HYPOTHESIS_PROFILE=nightly` looks much further.

`faults` is for tools/plant_faults.py: as `ci`, but that a test fails is all it wants to know.
"""

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

# The tests import their own modules (oracle, strategies, harness) by plain name, from any subfolder.
sys.path.insert(0, str(Path(__file__).parent))

# Java virtual machines of tests live for seconds: what the second compiler would make of them comes too late.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# Started in the background of a script, all processes would ignore Ctrl-C, and so would those that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The first call of a kernel may compile it, so a single example has no deadline.
COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    "print_blob": True,
}

settings.register_profile("ci", derandomize=True, max_examples=10, **COMMON)
settings.register_profile(
    "faults", derandomize=True, max_examples=10, phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False,
    **COMMON,
)  # fmt: skip
settings.register_profile("dev", max_examples=15, **COMMON)
settings.register_profile("nightly", max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", 500)), **COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture
def threads(monkeypatch):
    """Cores are threads of this process."""
    from in_thread import InThread

    from watersmeet.engine.cores import process

    monkeypatch.setattr(process, "Process", InThread)


@pytest.fixture(scope="module")
def chromium():
    """A browser for the tests of a module (browser.py)."""
    import browser

    if browser.find() is None:
        if os.environ.get("WATERSMEET_NEED_CHROMIUM"):
            pytest.fail("no Chromium to open pages in, and WATERSMEET_NEED_CHROMIUM is set: apt-get install chromium")
        pytest.skip("no Chromium to open pages in: apt-get install chromium, or name one by WATERSMEET_CHROMIUM")
    with browser.Browser() as found:
        yield found
