"""GPUs on Spark: who has one, and what of a join's runs is on it.

Spark gives GPUs to executors and, in parts, to tasks, if its settings say so; a Python worker takes the one of its
first task. It keeps the keys of runs there from one micro-batch to the next, as many as a share of the memory holds,
and lets go of those that were not asked for the longest. The state store is the truth, as for the files of cache.py.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from watersmeet.device.errors import NoDevice
from watersmeet.spark.session import local_threads

EXECUTOR = "spark.executor.resource.gpu.amount"
TASK = "spark.task.resource.gpu.amount"
_REMEDY = (
    f"start the session with {EXECUTOR} (1, say), {TASK} (0.25, say: four tasks share a GPU) and "
    "spark.executor.resource.gpu.discoveryScript, on a cluster manager that knows GPUs (local mode does not); or leave "
    "out device='gpu'"
)
#: What the workers of an executor may keep on a GPU from one micro-batch to the next, each: one part in so many.
_SHARE = 16


def check_settings(session: Any) -> None:
    """ValueError unless the session gives GPUs to its tasks."""
    for name in (EXECUTOR, TASK):
        amount = session.conf.get(name, None)
        if amount is None:
            raise ValueError(f"device 'gpu' needs a GPU for every task, and {name} is not set; {_REMEDY}")
        if not float(amount) > 0:
            raise ValueError(f"device 'gpu' needs a GPU for every task, and {name} is {amount}; {_REMEDY}")
    master = session.conf.get("spark.master", None)
    if local_threads(master) is not None:  # which hands out no such resources
        raise ValueError(f"device 'gpu' needs a GPU for every task, and local mode ({master}) has none; {_REMEDY}")


def use_gpu_of_task() -> None:
    """Make the GPU that Spark has given to this task that of the process, unless it has one; NoDevice without."""
    from pyspark import TaskContext

    from watersmeet.device.gpu_sort import GPUSort

    context = TaskContext.get()
    found = {} if context is None else context.resources()
    if "gpu" not in found or not found["gpu"].addresses:
        raise NoDevice(f"device 'gpu': Spark has given this task no GPU; {_REMEDY}")
    global _address
    if _address is None:
        _address = os.environ["CUDA_VISIBLE_DEVICES"] = found["gpu"].addresses[0]  # CUDA looks at it when it starts
    GPUSort().check_device()


_address: str | None = None


class Kept:
    """Runs of the cores that this worker has seen, on the device: by core and name."""

    def __init__(self) -> None:
        self._runs: OrderedDict[tuple[str, str], Any] = OrderedDict()

    def find(self, core: str, id: str) -> Any:
        """What is on the device of a run, or None."""
        found = self._runs.get((core, id))
        if found is not None:
            self._runs.move_to_end((core, id))
        return found

    def keep(self, core: str, runs: Iterable[tuple[str, Any]]) -> None:
        """Of this core these runs, and no others."""
        for key in [key for key in self._runs if key[0] == core]:
            del self._runs[key]
        for id, sent in runs:
            self._runs[core, id] = sent
        most, held = self._most(), sum(sent.nbytes() for sent in self._runs.values())
        while held > most:
            held -= self._runs.popitem(last=False)[1].nbytes()

    def _most(self) -> int:
        from watersmeet.device.machine import machine

        return machine().total // _SHARE or 1 << 40  # a simulated one has the host's


#: Of this worker process.
KEPT = Kept()
