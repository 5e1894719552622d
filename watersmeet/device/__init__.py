"""Stream joins on a GPU, and on OpenCL devices.

`StreamJoin(..., device="gpu")` keeps the keys of its windows there (gpu_sort.py). `advise` names the kind of join that
a study of such joins recommends (docs/gpu.md). `index=OpenCLBISort()` keeps them on an OpenCL device
(opencl_bisort.py). Nothing of CUDA or OpenCL is imported before it is asked for.
"""

from watersmeet.device.advise import Advice, advise
from watersmeet.device.errors import DeviceFull, NoDevice

__all__ = ["Advice", "DeviceFull", "NoDevice", "advise"]
