"""The pipeline of `stream_join` with a joiner that does nothing: what reading, packing and moving rows costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from watersmeet.query.windows import Within
from watersmeet.spark.join import assembled, specified
from watersmeet.spark.packs import COUNTERS
from watersmeet.spark.state import CoreState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Discarder(StatefulProcessor):
    """Takes all packs, keeps none, gives nothing."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = CoreState(handle)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        for _ in rows:
            pass
        yield pd.DataFrame({"path": [None], **{name: [0] for name in COUNTERS}, "core": [0], "about": [None]})

    def close(self) -> None:
        pass


def discarding_join(left: DataFrame, right: DataFrame, on: str, window: Within, how: str = "inner") -> DataFrame:
    return assembled(left, right, specified(left, right, on, window, how), Discarder(), "watersmeet")
