"""Numba's CUDA simulator, made quick: threads of a block wait for one another at a barrier.

Its own loop asks all threads of a block, again and again, whether they wait or are done, and takes the interpreter from
them for it. At a barrier a thread that leaves the others waiting is an error, too.
"""

from __future__ import annotations

import threading

import numpy as np
from numba.cuda.simulator import kernel


def syncthreads(self) -> None:
    self._manager.barrier.wait(30)


def run(self, grid_point, *args) -> None:
    self.barrier = threading.Barrier(int(np.prod(self._block_dim)))
    threads = [
        kernel.BlockThread(lambda: self._f(*args), self, grid_point, point, self._debug)
        for point in np.ndindex(*self._block_dim)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
            if any(one.exception for one in threads):
                self.barrier.abort()
    failed = [thread.exception for thread in threads if thread.exception]
    if failed:
        first = next((one for one in failed if not isinstance(one[0], threading.BrokenBarrierError)), failed[0])
        raise first[0].with_traceback(first[1])


def make_quick() -> None:
    kernel.BlockThread.syncthreads = syncthreads
    kernel.BlockManager.run = run
