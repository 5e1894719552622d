"""Threads of a run: started together, ended together.

Each enters its kernel and comes back at the end; the root of the collection comes back as well when its page is full,
and goes on with a new one. An error in one of them, Ctrl-C, or too long a time stops all: who waits inside a kernel
looks at `control`.
"""

from __future__ import annotations

import threading
from time import monotonic

import numpy as np

from watersmeet.bench.cores.topologies.collecting import (
    FULL,
    TIME,
    WRITE,
    WRITTEN,
    Written,
    merge,
    new_state,
    new_written,
)
from watersmeet.bench.cores.topologies.job import Circuit, Outcome, Task, outcome
from watersmeet.bench.cores.topologies.waiting import new_control, stop
from watersmeet.bench.machine import cores

PAGE = 1 << 14
GRACE = 10.0  # seconds that threads get to end when they have been told to


def run(circuit: Circuit, results: np.ndarray) -> Outcome:
    """Run all threads, and a root that reads these rings."""
    job, memory = circuit.job, circuit.wires.memory()
    control = new_control(len(circuit.tasks) + 1, cores())
    state, pages = new_state(results.size), []

    def collect(memory: np.ndarray, control: np.ndarray) -> None:
        full = FULL
        while full == FULL:
            page = new_written(PAGE)
            full = merge(memory, control, results, WRITE, job.order == "inner", state, page)
            pages.append(Written(*(column[: state[WRITTEN]] for column in page)))
            state[WRITTEN] = 0

    tasks = [*circuit.tasks, Task("root", collect, ())]
    together(tasks, memory, control, job.limit)
    return outcome(job, pages, int(state[TIME]))


def together(tasks: list[Task], memory: np.ndarray, control: np.ndarray, limit: float) -> None:
    errors: list[BaseException] = []

    def work(task: Task) -> None:
        try:
            task.kernel(memory, control, *task.given)
        except BaseException as error:
            error.add_note(f"in {task.name}")
            errors.append(error)
            stop(control)

    threads = [threading.Thread(target=work, args=(task,), name=task.name, daemon=True) for task in tasks]
    deadline = monotonic() + limit
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(deadline - monotonic(), 0))
        late = [thread.name for thread in threads if thread.is_alive()]
        if late and not errors:
            errors.append(TimeoutError(f"{', '.join(late)} had not ended after {limit:g} s"))
    finally:
        stop(control)
        for thread in threads:
            if thread.ident is not None:
                thread.join(GRACE)
    if errors:
        raise errors[0]
