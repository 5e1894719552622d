"""Kernels compile for hardware: types and all. Needs NVIDIA's compiler, and no GPU; the simulator knows no types."""

from types import SimpleNamespace

import pytest
from numba import int32, int64

from watersmeet.bench.gpu.study import gpu_kernels
from watersmeet.device import kernels
from watersmeet.device.cuda import SIMULATED, cuda

if SIMULATED:
    pytest.skip("the simulator compiles nothing", allow_module_level=True)

KEYS, ROWS, N = int64[::1], int32[::1], int64
SEARCHED = (KEYS, KEYS, KEYS, KEYS, N, N)
BOUNDS = (N, N, KEYS, KEYS, N, N, KEYS)
SIGNATURES = {
    "place": (N, *SEARCHED, KEYS, KEYS, N, KEYS),
    "merge": (N, KEYS, KEYS, ROWS, N, KEYS, KEYS, ROWS, N, N, KEYS, N, KEYS, KEYS, ROWS, KEYS, KEYS),
    "count_kept": (ROWS, N, N, KEYS),
    "forget": (N, KEYS, KEYS, ROWS, N, N, KEYS, N, KEYS, KEYS, ROWS, KEYS, KEYS),
    "shifted": (KEYS, N, N, KEYS),
    "locate": (N, *SEARCHED, KEYS, KEYS, KEYS, N, N, KEYS, KEYS),
    "pairs": (KEYS, KEYS, ROWS, N, N, ROWS, N, N, *BOUNDS, ROWS, ROWS, KEYS),
    "count": (KEYS, KEYS, ROWS, N, N, ROWS, *BOUNDS, KEYS),
}
TABLE = (N, ROWS, ROWS)  # slots, keys, counts
OF_STUDY = {
    "clear": (ROWS, ROWS, ROWS, N),
    "store": (ROWS, N, N, N, *TABLE),
    "look_up": (ROWS, N, N, N, *TABLE, KEYS),
    "symmetric": (ROWS, ROWS, N, N, N, ROWS, KEYS, KEYS),
    "symmetric_next": (ROWS, ROWS, N, KEYS, N, N, ROWS, KEYS, KEYS),
    "advance": (KEYS, N, KEYS, KEYS),
    "chain": (ROWS, N, N, N, *TABLE, ROWS, ROWS),
    "chain_numbers": (ROWS, N, N, *TABLE, KEYS),
    "chain_pairs": (ROWS, N, N, N, N, ROWS, ROWS, ROWS, KEYS, N, N, ROWS, ROWS),
    "chain_atomic": (ROWS, N, N, N, N, ROWS, ROWS, ROWS, KEYS, ROWS, ROWS),
    "pack": (ROWS, N, N, N, N, N, KEYS, N),
    "merge_count": (KEYS, N, KEYS, N, N, KEYS),
    "merge_numbers": (KEYS, N, KEYS, N, N, KEYS, KEYS, ROWS),
    "rows_of": (KEYS, N, N, ROWS),
    "merge_atomic": (KEYS, N, KEYS, N, N, KEYS, ROWS, ROWS),
    "loop_numbers": (ROWS, N, N, ROWS, N, N, N, N, N, KEYS, KEYS),
    "loop_pairs": (ROWS, N, N, N, ROWS, N, N, N, KEYS, KEYS, N, N, ROWS, ROWS),
}


@pytest.fixture(autouse=True)
def some_device(monkeypatch):
    """Functions that kernels call are compiled for the device that there is: pretend that there is one."""
    from numba.cuda import dispatcher

    if not cuda.is_available():
        monkeypatch.setattr(dispatcher, "get_current_device", lambda: SimpleNamespace(compute_capability=(8, 0)))
        try:
            cuda.compile_ptx(lambda: None, (), cc=(8, 0))
        except Exception as error:
            pytest.skip(f"kernels cannot be compiled here: {error}")


@pytest.mark.parametrize("name", SIGNATURES)
def test_kernels_of_joins_compile(name):
    ptx, _ = cuda.compile_ptx(getattr(kernels, name).py_func, SIGNATURES[name], cc=(8, 0))
    assert ".entry" in ptx or ".func" in ptx


@pytest.mark.parametrize("name", OF_STUDY)
def test_kernels_of_the_study_compile(name):
    ptx, _ = cuda.compile_ptx(getattr(gpu_kernels, name).py_func, OF_STUDY[name], cc=(8, 0))
    assert ".entry" in ptx or ".func" in ptx
