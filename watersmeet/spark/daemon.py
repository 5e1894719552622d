"""Python workers that are ready when they start: `spark.python.daemon.module = watersmeet.spark.daemon`.

Spark has one daemon on every host that forks a worker when a task needs one. A worker of Spark's own daemon begins with
nothing: it imports pandas, Numba and us, and loads kernels from the disk, a second and a half of a core. In the first
micro-batch of a join on two cores four to six workers do so, and each one that is started later does. This daemon does
it once, before it forks: its workers have all of that from their first moment, in memory that they share.

It must not have threads of its own, for a fork takes only the one that calls it: so it joins on one core. (The pools of
NumPy and Arrow know of forks, and begin anew.)

Our own sessions set it (session.py). In others it is a setting of the application that any user may make; without it
everything works, and begins later.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from watersmeet.spark.task import spare_collector


def main() -> None:
    with _nothing_on_standard_output():  # where the daemon tells Spark its port
        _import()
        ready()
        gc.collect()
        spare_collector()
    from pyspark.daemon import manager

    manager()


def ready() -> None:
    """Load what joins on Spark call: by joining a few rows, in the ways they do."""
    from watersmeet.warm import as_on_spark

    try:
        as_on_spark()
    except Exception as error:  # then it fails where it is wanted, in a task, whose error Spark shows
        print(f"watersmeet: the Python daemon could not load kernels: {error!r}", file=sys.stderr)


def _import() -> None:
    import pandas  # noqa: F401
    import pyspark.worker  # noqa: F401
    from pyspark.sql.streaming.proto import StateMessage_pb2  # noqa: F401

    import watersmeet.spark.joiner
    import watersmeet.spark.parquet
    import watersmeet.spark.unpacker  # noqa: F401


@contextmanager
def _nothing_on_standard_output() -> Iterator[None]:
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


if __name__ == "__main__":
    main()
