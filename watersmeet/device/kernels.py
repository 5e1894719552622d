"""Kernels over sorted keys: where do they go, merge, forget, look for ranges, write pairs, count.

Keys are one int64 (`composite` is 0, and `equal` is not looked at), or two: an equality's, then a range's. Over them
lie samples, the last key of every `width`: small enough for the cache, so that a search misses it about once.

Two of the kernels put many small pieces one behind the other: `merge` (batch tuples between those of the window) and
`pairs` (the partners of one probe behind those of the one before). Both go by *tiles* of their output: a thread block
looks up once which pieces its tile has, and each thread then looks among these few. So threads that are neighbours
write to neighbouring places, and a probe with a million partners is the work of many threads.

Threads go on in strides, so that a launch may have any number of them: few in the simulator.
"""

from __future__ import annotations

from numba import int32, int64

from watersmeet.device.cuda import cuda

#: How ticks of partners are compared: as in index/base.py.
UNBOUNDED, BY_ROW, BY_TICK = 0, 1, 2
#: Items of a tile that each thread has.
ITEMS = 4
#: And of a tile that is merged: more, for there is less to do for one.
MERGED = 16
#: Threads of a block, at most.
MOST_THREADS = 256


@cuda.jit(device=True)
def before(composite, equal, ordered, at, major, minor, inclusive):
    """Whether the key at this place is below (major, minor); inclusive: or equal to it."""
    if composite:
        other = equal[at]
        if other != major:
            return other < major
    key = ordered[at]
    return key < minor or (inclusive and key == minor)


@cuda.jit(device=True)
def rank(composite, equal, ordered, sampled_equal, sampled_ordered, width, n, major, minor, inclusive):
    """How many of the n keys are below (major, minor); inclusive: or equal to it."""
    low = int64(0)
    high = int64(n // width)
    while low < high:
        middle = (low + high) >> 1
        if before(composite, sampled_equal, sampled_ordered, middle, major, minor, inclusive):
            low = middle + 1
        else:
            high = middle
    low = low * width
    high = min(low + width, int64(n))
    while low < high:
        middle = (low + high) >> 1
        if before(composite, equal, ordered, middle, major, minor, inclusive):
            low = middle + 1
        else:
            high = middle
    return low


@cuda.jit(device=True)
def up_to(ascending, low, high, value):
    """How many of these numbers are at most the value: those before `low` are, those from `high` on are not."""
    while low < high:
        middle = (low + high) >> 1
        if ascending[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


# -- storing -------------------------------------------------------------------------------------------------------


@cuda.jit
def place(
    composite, equal, ordered, sampled_equal, sampled_ordered, width, n, new_equal, new_ordered, m, places
):  # fmt: skip
    """Where each tuple of a sorted batch goes: behind the keys equal to its own."""
    i = cuda.grid(1)
    while i < m:
        major = new_equal[i] if composite else int64(0)
        below = rank(
            composite, equal, ordered, sampled_equal, sampled_ordered, width, n, major, new_ordered[i], True
        )  # fmt: skip
        places[i] = i + below
        i += cuda.gridsize(1)


@cuda.jit
def merge(
    composite, equal, ordered, rows, n, new_equal, new_ordered, new_rows, m, first_row, places, width,
    to_equal, to_ordered, to_rows, to_sampled_equal, to_sampled_ordered,
):  # fmt: skip
    """Keys and batch, whose tuples go to `places`, in order into other arrays, with their samples."""
    ends = cuda.shared.array(2, int64)
    t = cuda.threadIdx.x
    tile = cuda.blockDim.x * MERGED
    total = n + m
    start = cuda.blockIdx.x * tile
    while start < total:
        if t < 2:
            ends[t] = up_to(places, int64(0), int64(m), start + t * tile - 1)
        cuda.syncthreads()
        for k in range(MERGED):
            at = start + k * cuda.blockDim.x + t
            if at < total:
                i = up_to(places, ends[0], ends[1], at - 1)
                minor = int64(0)
                major = int64(0)
                if i < m and places[i] == at:
                    minor = new_ordered[i]
                    to_rows[at] = new_rows[i] + first_row
                    if composite:
                        major = new_equal[i]
                else:
                    minor = ordered[at - i]
                    to_rows[at] = rows[at - i]
                    if composite:
                        major = equal[at - i]
                to_ordered[at] = minor
                if composite:
                    to_equal[at] = major
                if (at + 1) % width == 0:
                    to_sampled_ordered[at // width] = minor
                    if composite:
                        to_sampled_equal[at // width] = major
        cuda.syncthreads()
        start += cuda.gridDim.x * tile


@cuda.jit
def count_kept(rows, n, gone, counts):
    """How many rows of each tile are not below `gone`."""
    kept = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    tile = cuda.blockDim.x * ITEMS
    number = cuda.blockIdx.x
    while number * tile < n:
        if t == 0:
            kept[0] = 0
        cuda.syncthreads()
        mine = int32(0)
        for k in range(ITEMS):
            at = number * tile + k * cuda.blockDim.x + t
            if at < n and rows[at] >= gone:
                mine += 1
        cuda.atomic.add(kept, 0, mine)
        cuda.syncthreads()
        if t == 0:
            counts[number] = kept[0]
        cuda.syncthreads()
        number += cuda.gridDim.x


@cuda.jit
def forget(
    composite, equal, ordered, rows, n, gone, ends, width,
    to_equal, to_ordered, to_rows, to_sampled_equal, to_sampled_ordered,
):  # fmt: skip
    """The keys of rows not below `gone`, in order into other arrays. ends: of the tiles, as `count_kept` has them, the
    sums up to each."""
    counted = cuda.shared.array(MOST_THREADS, int32)
    t = cuda.threadIdx.x
    tile = cuda.blockDim.x * ITEMS
    number = cuda.blockIdx.x
    while number * tile < n:
        first = number * tile + t * ITEMS  # a thread's items lie together, so that what it keeps does, too
        mine = int32(0)
        for k in range(ITEMS):
            if first + k < n and rows[first + k] >= gone:
                mine += 1
        counted[t] = mine
        cuda.syncthreads()
        step = 1
        while step < cuda.blockDim.x:
            other = int32(0)
            if t >= step:
                other = counted[t - step]
            cuda.syncthreads()
            counted[t] += other
            cuda.syncthreads()
            step *= 2
        at = int64(counted[t] - mine)
        if number > 0:
            at += ends[number - 1]
        for k in range(ITEMS):
            if first + k < n and rows[first + k] >= gone:
                minor = ordered[first + k]
                to_ordered[at] = minor
                to_rows[at] = rows[first + k] - gone
                if composite:
                    to_equal[at] = equal[first + k]
                if (at + 1) % width == 0:
                    to_sampled_ordered[at // width] = minor
                    if composite:
                        to_sampled_equal[at // width] = equal[first + k]
                at += 1
        cuda.syncthreads()
        number += cuda.gridDim.x


# -- probing -------------------------------------------------------------------------------------------------------


@cuda.jit
def shifted(keys, by, n, to):
    """keys + by."""
    i = cuda.grid(1)
    while i < n:
        to[i] = keys[i] + by
        i += cuda.gridsize(1)


@cuda.jit
def locate(
    composite, equal, ordered, sampled_equal, sampled_ordered, width, n, probe_equal, lows, highs, start, m, begins,
    numbers,
):  # fmt: skip
    """Where the range of each of m probes, from `start` on, begins among the keys, and how many are in it."""
    i = cuda.grid(1)
    while i < m:
        p = start + i
        major = probe_equal[p] if composite else int64(0)
        low = lows[p]
        high = highs[p]
        begin = int64(0)
        number = int64(0)
        if low <= high:
            begin = rank(composite, equal, ordered, sampled_equal, sampled_ordered, width, n, major, low, False)
            end = rank(composite, equal, ordered, sampled_equal, sampled_ordered, width, n, major, high, True)
            number = end - begin
        begins[i] = begin
        numbers[i] = number
        i += cuda.gridsize(1)


@cuda.jit(device=True)
def in_bounds(mode, row, p, one_each, low, high, least, most, ticks):
    """Whether a row is in reach of batch row p, whose bounds are in arrays, or the same for all."""
    if mode == UNBOUNDED:
        return True
    value = int64(row)
    if mode == BY_TICK:
        value = ticks[row]
    if one_each:
        least = low[p]
        most = high[p]
    return least <= value and value <= most


@cuda.jit
def pairs(
    ends, begins, probe_rows, start, m, rows, first, room, mode, one_each, low, high, least, most, ticks,
    own, base, batch_rows, partners, tally,
):  # fmt: skip
    """Candidates from number `first` on, at most `room` of them: those in bounds go, in any order, to `batch_rows` and
    `partners`, `own` and `base` added. tally: (candidates in all, pairs written); the second must be 0."""
    slots = cuda.shared.array(2, int64)
    edges = cuda.shared.array(2, int64)
    slot = cuda.local.array(ITEMS, int32)
    found_p = cuda.local.array(ITEMS, int32)
    found_row = cuda.local.array(ITEMS, int32)
    t = cuda.threadIdx.x
    tile = cuda.blockDim.x * ITEMS
    if cuda.grid(1) == 0:
        tally[0] = ends[m - 1]
    stop = min(first + room, ends[m - 1])
    begin = first + cuda.blockIdx.x * tile
    while begin < stop:
        if t < 2:
            edges[t] = up_to(ends, int64(0), int64(m), min(begin + t * (tile - 1), stop - 1))
        if t == 0:
            slots[0] = 0
        cuda.syncthreads()
        for k in range(ITEMS):
            slot[k] = -1
            c = begin + k * cuda.blockDim.x + t
            if c < stop:
                i = up_to(ends, edges[0], edges[1], c)
                inside = c if i == 0 else c - ends[i - 1]
                row = rows[begins[i] + inside]
                p = probe_rows[start + i]
                if in_bounds(mode, row, p, one_each, low, high, least, most, ticks):
                    slot[k] = cuda.atomic.add(slots, 0, int64(1))
                    found_p[k] = p
                    found_row[k] = row
        cuda.syncthreads()
        if t == 0:
            slots[1] = cuda.atomic.add(tally, 1, slots[0])
        cuda.syncthreads()
        for k in range(ITEMS):
            if slot[k] >= 0:
                batch_rows[slots[1] + slot[k]] = found_p[k] + own
                partners[slots[1] + slot[k]] = found_row[k] + base
        cuda.syncthreads()
        begin += cuda.gridDim.x * tile


@cuda.jit
def count(
    ends, begins, probe_rows, start, m, rows, mode, one_each, low, high, least, most, ticks, tally,
):  # fmt: skip
    """How many candidates are in bounds: added to tally[1]."""
    kept = cuda.shared.array(1, int64)
    edges = cuda.shared.array(2, int64)
    t = cuda.threadIdx.x
    tile = cuda.blockDim.x * ITEMS
    if t == 0:
        kept[0] = 0
    stop = ends[m - 1]
    begin = cuda.blockIdx.x * tile
    mine = int64(0)
    while begin < stop:
        if t < 2:
            edges[t] = up_to(ends, int64(0), int64(m), min(begin + t * (tile - 1), stop - 1))
        cuda.syncthreads()
        for k in range(ITEMS):
            c = begin + k * cuda.blockDim.x + t
            if c < stop:
                i = up_to(ends, edges[0], edges[1], c)
                inside = c if i == 0 else c - ends[i - 1]
                row = rows[begins[i] + inside]
                p = probe_rows[start + i]
                if in_bounds(mode, row, p, one_each, low, high, least, most, ticks):
                    mine += 1
        cuda.syncthreads()
        begin += cuda.gridDim.x * tile
    cuda.syncthreads()
    cuda.atomic.add(kept, 0, mine)
    cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(tally, 1, kept[0])
