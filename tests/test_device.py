"""Joins on a GPU, where there is none: clear words, and the tests of tests/device on Numba's simulator.

Each file of these runs in a process of its own, which has the simulator from its start; `make test-gpu` runs them on
hardware.
"""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import watersmeet as wm

ROOT = Path(__file__).parents[1]
FILES = sorted(path.name for path in (ROOT / "tests" / "device").glob("test_*.py"))
NO_GPU = not Path("/dev/nvidia0").exists()


def python(*arguments, **variables):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HYPOTHESIS_PROFILE": "ci"} | variables
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1500
    )


@pytest.mark.parametrize("file", FILES)
def test_the_tests_of_the_device_pass_on_the_simulator(file):
    ran = python("-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/device/{file}", NUMBA_ENABLE_CUDASIM="1")
    assert ran.returncode in (0, 5), ran.stdout + ran.stderr  # 5: all are for hardware
    assert " passed" in ran.stdout or " skipped" in ran.stdout


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_missed_before_anything_starts():
    with pytest.raises(wm.device.NoDevice, match="device 'gpu' needs an NVIDIA GPU, and CUDA finds none here"):
        wm.StreamJoin("l.x = r.x", wm.last(5), device="gpu")
    with pytest.raises(wm.device.NoDevice, match="leave out device='gpu' to join on the CPU"):
        wm.StreamJoin("l.x = r.x", wm.last(5), index=wm.index.GPUSort())


def test_a_gpu_that_cannot_be_used_says_why(monkeypatch):
    from watersmeet.device import cuda

    def broken():
        raise OSError("libcuda has gone")

    monkeypatch.setattr(cuda.cuda, "is_available", broken)
    with pytest.raises(wm.device.NoDevice, match="CUDA cannot be used here: libcuda has gone; leave out device"):
        wm.StreamJoin("l.x = r.x", wm.last(5), device="gpu")


def test_a_gpu_without_cupy_says_what_to_install(monkeypatch):
    from watersmeet.device import cuda

    monkeypatch.setattr(cuda.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(wm.device.NoDevice, match=r"needs CuPy .* pip install 'watersmeet\[gpu\]'"):
        wm.StreamJoin("l.x = r.x", wm.last(5), device="gpu")


def test_a_device_that_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="device must be one of cpu, gpu, got 'GPU'; did you mean 'gpu'?"):
        wm.StreamJoin("l.x = r.x", wm.last(5), device="GPU")


def test_the_cpu_is_a_device_too():
    batch = pa.table({"x": [1, 2]})
    with wm.StreamJoin("l.x = r.x", wm.last(5), device="cpu", output="count") as join:
        assert join.push(left=batch, right=batch) == 2


def test_nothing_of_cuda_is_imported_before_it_is_asked_for():
    ran = python("-c", "import sys, watersmeet; sys.exit('numba.cuda' in sys.modules or 'cupy' in sys.modules)")
    assert ran.returncode == 0, ran.stderr
