"""Numba's CUDA, imported; and whether there is a GPU behind it.

Importing needs no GPU: kernels are compiled at their first launch. With NUMBA_ENABLE_CUDASIM=1 in the environment Numba
simulates one, thread by thread in Python: slow, but the same kernels run on any machine.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numba import config

from watersmeet.device.errors import NoDevice

# numba-cuda up to 0.30 looks this name up in one of its modules, and NumPy 2.5 has it no more.
_LENT = not hasattr(np, "row_stack")
if _LENT:
    np.row_stack = np.vstack  # type: ignore[attr-defined]  # noqa: NPY201
try:
    from numba import cuda as _cuda

    if _LENT and not getattr(config, "ENABLE_CUDASIM", 0):
        try:
            import_module("numba.cuda.np.arrayobj")
        except ImportError:
            pass  # Numba's own CUDA has no such module
finally:
    if _LENT:
        del np.row_stack  # type: ignore[attr-defined]  # noqa: NPY201

cuda: Any = _cuda  # for type checkers, which know nothing of what code within kernels means
SIMULATED = bool(getattr(config, "ENABLE_CUDASIM", 0))
REMEDY = "leave out device='gpu' to join on the CPU"

__all__ = ["REMEDY", "SIMULATED", "check_device", "cuda"]


def _hush() -> None:
    """A launch for a small batch is no mistake that users want to hear of."""
    for module in ("numba.core.config", "numba.cuda.core.config"):  # numba-cuda has its own
        try:
            import_module(module).CUDA_LOW_OCCUPANCY_WARNINGS = 0  # type: ignore[attr-defined]
        except ImportError:
            pass


_hush()


def check_device() -> None:
    """Raise NoDevice, and say why, unless there is a GPU to use."""
    if SIMULATED:
        return
    try:
        found = cuda.is_available()
        why = "CUDA finds none here" if found is not True else ""
    except Exception as error:  # whatever driver and libraries may raise
        found, why = False, f"CUDA cannot be used here: {error}"
    if not found:
        raise NoDevice(f"device 'gpu' needs an NVIDIA GPU, and {why}; {REMEDY}")
    try:
        import cupy  # noqa: F401
    except ImportError:
        raise NoDevice(
            f"device 'gpu' needs CuPy for sorting, and it is not installed; pip install 'watersmeet[gpu]', or {REMEDY}"
        ) from None
