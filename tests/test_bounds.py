"""Kernels stay inside of their arrays: the tests of all indexes once more, compiled with bounds checks.

Numba compiles everything again for that, into a cache of its own. Joins that make rows are left out: their kernels read
tuples by address, and know no bounds.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
STRUCTURES = ["test_bisort.py", "test_merging.py", "test_sorting.py", "test_hash.py", "test_trees.py", "test_tables.py"]
LEFT_OUT = "parameters or threads_merges_alike or convergence or thousands"

OUT_OF_BOUNDS = """
import numpy as np
from watersmeet.index.sorted.run_kernels import forget
none = np.zeros(0, np.int64)
forget(4, none, np.zeros(3, np.int64), np.zeros(0, np.int32), 5, 0, 4, none, np.zeros(1, np.int64))
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """What a process needs whose kernels are to check their bounds."""
    cache = tmp_path_factory.mktemp("checked")
    return os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache), "HYPOTHESIS_PROFILE": "faults"}


@pytest.mark.long
def test_a_kernel_that_leaves_its_array_is_noticed(checked):
    done = subprocess.run([sys.executable, "-c", OUT_OF_BOUNDS], env=checked, capture_output=True, text=True)
    assert done.returncode == 1 and "IndexError" in done.stderr, done.stderr


@pytest.mark.long
def test_no_kernel_leaves_its_arrays(checked):
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-k", f"not ({LEFT_OUT})",
        *(str(TESTS / test) for test in STRUCTURES),
    ]  # fmt: skip
    done = subprocess.run(command, env=checked, capture_output=True, text=True, cwd=TESTS.parent)
    assert done.returncode == 0, done.stdout[-5000:]
