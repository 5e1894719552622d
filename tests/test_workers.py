"""How work is cut into parts for threads."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from watersmeet.workers import Workers


@given(
    st.integers(1, 64), st.integers(0, 1 << 24), st.integers(1, 1 << 18), st.integers(1, 8),
    st.none() | st.integers(1 << 10, 1 << 20),
)  # fmt: skip
def test_parts_are_large_enough_and_not_too_many(threads, n, small, each, most):
    parts = Workers(threads).parts(n, small, each, most)
    ends = [0, *(stop for _, stop in parts)]
    assert parts == list(zip(ends[:-1], ends[1:], strict=True)) and ends[-1] == n
    if most is not None:
        assert all(stop - start <= most for start, stop in parts)
    needed = 1 if most is None else -(-n // most)
    assert len(parts) <= max(threads * each, needed, 1)
    if len(parts) > max(needed, 1):
        assert all(stop - start >= small for start, stop in parts)


def test_a_large_batch_gives_every_thread_something():
    for threads in (1, 2, 7, 16):
        parts = Workers(threads).parts(1 << 22)
        assert len(parts) >= threads and len(parts) % threads == 0


def test_a_small_batch_stays_whole():
    assert Workers(16).parts(1000) == [(0, 1000)]
    assert len(Workers(16).parts(50_000)) == 3  # not 16: to wait for so many threads would take longer than the work


INTERRUPTED = """
import signal, sys, threading
from watersmeet.workers import Workers
wanted = {function.__code__ for function in (threading.Condition.__enter__, threading.Condition.__exit__)}

def at(number):
    seen = 0
    def trace(frame, event, _):
        nonlocal seen
        if event == "call" and frame.f_code in wanted:
            seen += 1
            if seen == number:
                signal.raise_signal(signal.SIGINT)
    return trace

number, came = 0, True
while came:
    number, came, workers, go = number + 1, False, Workers(2), threading.Event()
    me = threading.get_ident()
    def work(item):  # the other thread is still at it when this one waits
        if threading.get_ident() != me:
            go.wait(0.05)
        return item
    sys.settrace(at(number))
    try:
        workers.map(work, range(8))
    except KeyboardInterrupt:
        came = True
    finally:
        sys.settrace(None)
    workers.stop()
print(number)
"""


def test_ctrl_c_while_waiting_for_threads_leaves_none_behind():
    """At every step of Python's own futures that takes or leaves a lock."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and int(done.stdout) > 3, done.stderr
