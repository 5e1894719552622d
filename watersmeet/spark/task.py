"""What a task knows of the query that it works for.

Spark hands every task the settings of its query, which need not be those of the session that `stream_join` saw: what
a checkpoint has recorded (the number of shuffle partitions, the policy for watermarks) goes before the session. A
restart that trusted the session would look for its state under other keys. So each task of the router and the joiner
compares the two before it does anything.
"""

from __future__ import annotations

import gc

import pyspark

from watersmeet.spark.checks import PARTITIONS, POLICY, bad_policy
from watersmeet.spark.spec import JoinSpec

#: Where a query has the number of partitions that its checkpoint began with. From Spark 4.1 on not in the session's
#: setting: that may be changed while the query runs (in foreachBatch, say), for what comes behind the join.
_INTERNAL = "spark.sql.streaming.internal.stateStore.partitions"
_PARTITIONS = PARTITIONS if pyspark.__version__.startswith("4.0.") else _INTERNAL


def local_property(name: str) -> str | None:
    """What Spark tells a task under this name; None outside of tasks, and for settings that nobody has set."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def batch_id() -> int | None:
    """The number of the micro-batch; a micro-batch that is run again has the same."""
    found = local_property("streaming.sql.batchId")
    return None if found is None else int(found)


_spared = False


def spare_collector() -> None:
    """What a worker process has loaded is never garbage: once a process, tell the collector.

    A worker of Spark's collects garbage after every task, before it takes the next one. With pandas, Numba and us in
    memory that is a tenth of a second of a core, eight times in a micro-batch on two cores, to find nothing.
    """
    global _spared
    if not _spared:
        gc.freeze()
        _spared = True


def check_query(spec: JoinSpec) -> None:
    """ValueError if the query has other settings than the join was made for."""
    partitions = local_property(_PARTITIONS)
    if partitions is not None and int(partitions) != spec.partitions:
        raise ValueError(
            f"{PARTITIONS} was {spec.partitions} when stream_join was called, but this query has {partitions} "
            f"partitions, for a checkpoint keeps the number that it began with: set {PARTITIONS} to {partitions} "
            f"before stream_join, or start with a new checkpoint"
        )
    wrong = bad_policy(local_property(POLICY))
    if wrong is not None:
        raise ValueError(f"{wrong}. A checkpoint keeps what it began with: start with a new one")
