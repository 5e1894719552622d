"""What may be given to a StreamJoin, for type checkers: `StreamJoin(..., output="count").push(...)` is an int."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, SupportsIndex, TypedDict

import pyarrow as pa

from watersmeet.engine.order import Order
from watersmeet.index import Index
from watersmeet.query.pick import PickName
from watersmeet.query.predicate import On
from watersmeet.query.windows import Side
from watersmeet.routing.sta import STA

IndexName = Literal[
    "auto", "nested_loop", "hash", "bisort", "rap_table", "wib_tree", "adaptive", "btree", "frozen_btree", "im_tree",
    "pim_tree",
]  # fmt: skip


RouteName = Literal["auto", "hash", "cells", "split", "broadcast", "hot_cold", "shared", "single", "sta"]


DeviceName = Literal["cpu", "gpu"]


class Options(TypedDict, total=False):
    """The options that do not change the type of the answers."""

    pick: PickName | None
    pick_by: On | None
    per: Side | None
    aggregate: Mapping[str, str] | None
    emit: Literal["final", "updates"] | None
    self_join: bool
    index: IndexName | Index
    cores: SupportsIndex | None
    route: RouteName | STA
    order: Order
    device: DeviceName
    suffix: str
    batch_rows: SupportsIndex | None
    batch_delay: Any
    left_schema: pa.Schema | None
    right_schema: pa.Schema | None
    keep_late: SupportsIndex
    subwindows: SupportsIndex | None
    subwindow_rows: SupportsIndex | None
    clock: Callable[[], float]
