"""A batch on the device: its keys, which are all that travels there.

    host                                       device
    keys    30 10 20          ------>          10 20 30     sorted
    live    all                                 1  2  0     rows
    lows    29  9 19   = keys - 1: not sent     9 19 29     made there
    highs   31 11 21   = keys + 1: not sent    11 21 31

The ends of a band's ranges mostly are the batch's own keys, moved by a constant: then it is that constant which is
sent. Other ranges (floats, other expressions on the two sides) are sent as they are, and not sorted: what order spares
a processor's cache, thousands of threads hide.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from watersmeet.device.constants import constant_difference
from watersmeet.device.machine import Machine
from watersmeet.device.memory import Block
from watersmeet.index.base import Array, live_rows
from watersmeet.workers import ALONE, SMALL, Workers


class Entries(NamedTuple):
    """A batch in key order, on the device."""

    equal: Block | None  # None: one key
    ordered: Block
    rows: Block  # int32
    size: int
    keys: tuple[Array | None, Array]  # as the host has them, in order of arrival; of rows that are live
    all_live: bool


class Band(NamedTuple):
    """Ranges of keys, on the device, in any order."""

    equal: Block | None
    lows: Block
    highs: Block
    rows: Block


class Probes(NamedTuple):
    """A batch as ranges, one list for each band."""

    bands: tuple[Band, ...]
    size: int

    @property
    def on_device(self) -> bool:
        """All are one question: to ask in parts would cost launches."""
        return True


def entries(machine: Machine, equal: Array | None, ordered: Array | None, live: Array | None, n: int) -> Entries:
    """O(n), once a batch."""
    major, minor = (None, equal) if ordered is None else (equal, ordered)
    assert minor is not None
    rows = None if live is None else live_rows(live, n)
    if rows is not None:
        major, minor = (None if major is None else major[rows]), minor[rows]
    size = minor.size
    keys = machine.upload(minor)
    majors = None if major is None else machine.upload(major)
    numbers = None if rows is None else machine.upload(rows)
    to = Entries(
        None if major is None else machine.take(size, np.int64), machine.take(size, np.int64),
        machine.take(size, np.int32), size, (major, minor), live is None,
    )  # fmt: skip
    with machine.working() as xp:
        order = _order(xp, None if majors is None else majors.values[:size], keys.values[:size])
        xp.take(keys.values[:size], order, out=to.ordered.values[:size])
        if to.equal is not None:
            assert majors is not None
            xp.take(majors.values[:size], order, out=to.equal.values[:size])
        to.rows.values[:size] = order if numbers is None else numbers.values[order]
    return to


def _order(xp: Any, major: Any, minor: Any) -> Any:
    """Which comes first, second ...: by the second key, then, stably, by the first."""
    order = xp.argsort(minor, kind="stable")
    return order if major is None else order[xp.argsort(major[order], kind="stable")]


def probes(
    machine: Machine,
    kernels: Any,
    equal: Array | None,
    lows: tuple[Array, ...],
    highs: tuple[Array, ...],
    live: Array | None,
    n: int,
    stored: Entries | None,
    workers: Workers = ALONE,
) -> Probes:
    """`stored`: the entries of the same batch, if the same rows of it are live."""
    if not lows:
        assert equal is not None
        lows = highs = (equal,)
        equal = None
    if stored is not None and stored.all_live and (equal is None) == (stored.equal is None):
        found = [_offsets(stored, equal, low, high, workers) for low, high in zip(lows, highs, strict=True)]
        offsets = [one for one in found if one is not None]
        if len(offsets) == len(found):
            moved = partial(_moved, machine, kernels, stored)
            bands = [Band(stored.equal, moved(low), moved(high), stored.rows) for low, high in offsets]
            return Probes(tuple(bands), stored.size)
    rows = live_rows(live, n)

    def sent(values: Array) -> Block:
        return machine.upload(values if live is None else values[rows])

    majors = None if equal is None else sent(equal)
    numbers = machine.upload(rows)
    bands = [Band(majors, sent(low), sent(high), numbers) for low, high in zip(lows, highs, strict=True)]
    return Probes(tuple(bands), rows.size)


def _offsets(
    stored: Entries, equal: Array | None, low: Array, high: Array, workers: Workers
) -> tuple[int, int] | None:
    """By how much the ends of all ranges are above the batch's own keys, if that is the same for all."""
    major, minor = stored.keys
    if equal is not None and (major is None or constant_difference(major, equal) != 0):
        return None
    several = workers if minor.size >= SMALL else ALONE
    first, second = several.map(partial(constant_difference, minor), (low, high))
    return None if first is None or second is None else (first, second)


def _moved(machine: Machine, kernels: Any, stored: Entries, by: int) -> Block:
    if by == 0:
        return stored.ordered
    moved = machine.take(stored.size, np.int64)
    machine.launch(kernels.shifted, stored.size, stored.ordered.array, by, stored.size, moved.array)
    return moved
