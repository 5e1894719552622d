"""Hot and cold: for skew. A key that comes so often that one core could not keep up is spread over several.

    key 7, 38% of all     stored by turns in cores 0 1 2 3      probes of 7 visit all four
    key 3,  9% of all     stored by turns in cores 1 and 2      probes of 3 visit both
    all others            stored in the core of their hash      probes visit that one

What is *believed* to be hot (beliefs.py) decides where a tuple is stored, and is written down: the *ledger* has the
cores over which a key has been spread, its home among them, for as long as a tuple of it may be stored. What is written
down decides where tuples are looked for. So the cores in which a tuple is stored are always among those that its
partners visit, whatever anybody believes: beliefs may be wrong and may change at any time. They cost balance, never
results.

A tuple of a hot key has two choices, one by turns and one at random, and takes the core that has got less.

There are three kinds of home:

    key        an equality: the core of the key's hash, as in `hash`
    cell       a band of fixed width: cells of keys are hot or cold, and at home as in `cells`
    anywhere   any other predicate with a key: a probe visits all cores, as in `split`. Hot keys are stored in some of
               the cores and cold ones in the others, as many as their shares need

A tuple that cannot have partners (a null key) is stored anywhere, so that nulls burden no core.

Free (base.py) for every join type: where tuples must know of all their partners, cores tell each other.

Cost: as `hash` or `cells` for cold keys; a tuple of a key that is spread over d cores visits d.
Reference: STA-Join, sections 3.1 and 3.2 (partitioner); Nasir et al. for more than two choices.
Differs from the paper: there are as many cores for a key as its share needs, not always two, and they store cold keys,
too; a probe visits every core that may have a partner, so nothing is missed. The paper's own form may miss some.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from numba import njit, uint64

from watersmeet.query.kernels import scramble
from watersmeet.query.plan import Tuples
from watersmeet.query.windows import SIDES, Side, other
from watersmeet.routing.base import Array, Places, core_of, hashed
from watersmeet.routing.cells import CellSize

Home = Literal["key", "cell", "anywhere"]

_NONE = np.zeros(0, np.int64)


class Guide(NamedTuple):
    """What is written down of the tuples of one side: its ledger, and what is hot now."""

    units: Array  # keys or cells that have been spread
    slots: Array  # by hash: the number of a unit, or -1
    starts: Array  # where the cores of each unit begin in `cores`, and where the last of them end
    cores: Array
    hot: Array  # whether tuples that come now are spread
    cold: Array  # cores for tuples that are not; empty: they are stored at home


def guide_of(units: list[int], cores: list[list[int]], hot: list[bool], cold: list[int]) -> Guide:
    """O(units)."""
    slots = np.full(1 << max(4 * len(units) - 1, 1).bit_length(), -1, np.int32)
    found = np.array(units, np.int64)
    if units:
        _lead(found, slots)
    starts = np.cumsum([0, *map(len, cores)])
    flat = np.array([core for each in cores for core in each], np.int64)
    return Guide(found, slots, starts, flat, np.array(hot, bool), np.array(cold, np.int64))


NOTHING = guide_of([], [], [], [])


@dataclass(frozen=True)
class HotCold:
    """sizes: of cells, for left keys and for right ones. guides: what is written down, for each side."""

    cores: int
    home: Home
    sizes: tuple[CellSize, CellSize] | None = None
    guides: dict[Side, Guide] = field(default_factory=lambda: dict.fromkeys(SIDES, NOTHING))
    name = "hot_cold"
    anchor = None
    visits = True
    by_turns = False

    def guided(self, guides: dict[Side, Guide]) -> HotCold:
        return replace(self, guides=guides)

    def units(self, side: Side, tuples: Tuples) -> tuple[Array | None, Array | None]:
        """What is hot or cold of each tuple, its key or cell; and which tuples may have partners, None: all."""
        if self.home == "key":
            return tuples.equality
        keys = tuples.keys()
        if self.sizes is None or keys.ordered is None:
            return keys.ordered, keys.live
        return self.sizes[SIDES.index(side)].cells(keys.ordered), keys.live

    def places(self, side: Side, tuples: Tuples, ticks: Array) -> Places:
        """O(n)."""
        units, live = self.units(side, tuples)
        guide, home = self.guides[side], hashed(ticks, self.cores)
        hot = 0
        if units is not None:
            alive = np.ones(home.size, bool) if live is None else _plain(live)
            hot = _homes(_plain(units), alive, _plain(ticks), guide, self.cores, home)
        visits = np.zeros((home.size, words(self.cores)), np.uint64)
        if self.home == "anywhere":
            visits[:] = ~np.uint64(0)
        else:
            firsts, lasts, some = map(_plain, self._sought(side, tuples))
            _visits(firsts, lasts, some, self.guides[other(side)], self.cores, visits)
        return Places(home, _NONE, _NONE, visits=visits, hot=hot)

    def _sought(self, side: Side, tuples: Tuples) -> tuple[Array, Array, Array]:
        """The first and the last of the units in which each tuple may have partners, range by range, and whether there
        are any in that range."""
        if self.home == "key":
            equal, live = tuples.equality
            assert equal is not None
            units = equal.reshape(1, -1)
            return units, units, np.ones(units.shape, bool) if live is None else live.reshape(1, -1)
        probe = tuples.probe()
        assert self.sizes is not None
        size = self.sizes[SIDES.index(other(side))]
        firsts = np.stack([size.cells(low) for low in probe.lows])
        lasts = np.stack([size.cells(high) for high in probe.highs])
        some = np.stack([low <= high for low, high in zip(probe.lows, probe.highs, strict=True)])
        return firsts, lasts, some if probe.live is None else some & probe.live


def _plain(array: Array) -> Array:
    """Contiguous and not read-only, so that there is one kernel for all."""
    return array if array.flags.c_contiguous and array.flags.writeable else np.array(array)


def words(cores: int) -> int:
    """Of 64 bits, one for each core."""
    return -(-cores // 64)


@njit(inline="always")
def _slot(units, slots, unit):
    """Where a unit is in `slots`, or would be."""
    mask = uint64(slots.size - 1)
    at = scramble(uint64(unit)) & mask
    while slots[at] >= 0 and units[slots[at]] != unit:
        at = (at + uint64(1)) & mask
    return at


@njit(nogil=True, cache=True)
def _lead(units, slots):
    """Make `slots` lead to all units."""
    for number in range(units.size):
        slots[_slot(units, slots, units[number])] = number


@njit(inline="always")
def _less(choices, tick, loads):
    """One of two choices, the core that has got less: one by turns, one at random."""
    many = uint64(choices.size)
    turn = choices[uint64(tick) % many]
    chance = choices[scramble(uint64(tick)) % many]
    return chance if loads[chance] < loads[turn] else turn


@njit(nogil=True, cache=True)
def _homes(units, live, ticks, guide, cores, home):
    """Write where tuples are stored; those that are not live stay where they are. Says how many are hot."""
    loads = np.zeros(cores, np.int64)
    found = 0
    for i in range(units.size):
        if live[i]:
            number = guide.slots[_slot(guide.units, guide.slots, units[i])]
            if number >= 0 and guide.hot[number]:
                home[i] = _less(guide.cores[guide.starts[number] : guide.starts[number + 1]], ticks[i], loads)
                found += 1
            elif guide.cold.size:
                home[i] = _less(guide.cold, ticks[i], loads)
            else:
                home[i] = core_of(units[i], uint64(cores))
        loads[home[i]] += 1
    return found


@njit(inline="always")
def _visit(bits, core):
    bits[core >> 6] |= uint64(1) << uint64(core & 63)


@njit(nogil=True, cache=True)
def _visits(firsts, lasts, some, guide, cores, visits):
    """Set a bit for each core in which a tuple may have partners."""
    for row in range(visits.shape[0]):
        bits = visits[row]
        for band in range(firsts.shape[0]):
            if not some[band, row]:
                continue
            first = firsts[band, row]
            many = uint64(lasts[band, row]) - uint64(first)
            if many >= uint64(4 * cores):  # so many units that all cores have one, as good as certainly
                for core in range(cores):
                    _visit(bits, core)
                continue
            for step in range(np.int64(many) + 1):
                unit = first + step
                number = guide.slots[_slot(guide.units, guide.slots, unit)]
                if number < 0:
                    _visit(bits, core_of(unit, uint64(cores)))
                else:
                    for at in range(guide.starts[number], guide.starts[number + 1]):
                        _visit(bits, guide.cores[at])


@njit(nogil=True, cache=True)
def rows_visiting(visits, words, home, core, rows):
    """Write the rows that visit a core without being at home there; says how many these are."""
    n = 0
    word, bit = core >> 6, uint64(core & 63)
    for i in range(home.size):
        rows[n] = i
        n += home[i] != core and (visits[i * words + word] >> bit) & uint64(1) == uint64(1)
    return n
