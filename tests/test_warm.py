"""`watersmeet warm` leaves no kernel to be compiled later."""

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from watersmeet.cli import app
from watersmeet.warm import JOBS

ALL_JOBS = """
import json
from watersmeet.warm import JOBS, dispatchers, job
for name in JOBS:
    job(name)
left = [f"{one.py_func.__module__}.{one.__name__}" for one in dispatchers() if not one.signatures]
print(json.dumps([name for name in left if not name.startswith("watersmeet.device.")]))  # for those who have one
"""


@pytest.mark.long
def test_its_joins_call_every_kernel():
    done = subprocess.run([sys.executable, "-c", ALL_JOBS], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.long
def test_the_second_time_all_kernels_are_there():
    outputs = [CliRunner().invoke(app, ["warm"]).stdout for _ in range(2)]
    found = [re.fullmatch(r"(\d+) kernels compiled, (\d+) were there, [\d.]+ s\n", text) for text in outputs]
    assert int(found[1][1]) == 0 and int(found[1][2]) > len(JOBS)
