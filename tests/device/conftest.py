"""Tests of what runs on a GPU: on Numba's simulator (tests/test_device.py starts them so, in processes of their own),
or on hardware (`make test-gpu`). Elsewhere they are not collected: a process has the one or the other from its start.
"""

import os
import sys
from pathlib import Path

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
HARDWARE = os.environ.get("WATERSMEET_TEST_GPU") == "1"

if SIMULATED:
    sys.path.insert(0, str(Path(__file__).parent))
    import simulator

    simulator.make_quick()
elif not HARDWARE:
    collect_ignore_glob = ["test_*.py"]
