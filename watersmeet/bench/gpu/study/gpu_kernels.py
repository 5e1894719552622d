"""Joins of windows on a GPU: kernels.

Several windows of one size may be in one launch: window w has the tuples from w * n on, and `per` thread blocks. A
tuple is `stride` words, of which the first is its key: 4 where whole tuples have come, 1 where keys have.

A hash table has `slots` places a window (a power of two): keys, and how many tuples of each side have them. Tuples that
are stored are first counted in a small table that a thread block has to itself, in shared memory: so a key that very
many tuples have is added to its place once a block, not once a tuple.
"""

from __future__ import annotations

from numba import int32, int64

from watersmeet.device.cuda import SIMULATED, cuda

EMPTY = -1  # keys are not negative
CACHED = 16 if SIMULATED else 1024
LOOP = 8 if SIMULATED else 256  # keys that a thread block of a nested loop has at hand


@cuda.jit(device=True)
def spread(key):
    return ((int64(key) * 2654435769) & 0xFFFFFFFF) >> 4


@cuda.jit(device=True)
def find(table, base, slots, key):
    """The place of a key, or the empty one where it would be."""
    at = spread(key) & (slots - 1)
    while True:
        there = table[base + at]
        if there == key or there == EMPTY:  # noqa: SIM109
            return base + at
        at = (at + 1) & (slots - 1)


@cuda.jit(device=True)
def found_or_put(table, base, slots, key):
    """The place of a key, which is put there if it was not."""
    at = spread(key) & (slots - 1)
    while True:
        there = table[base + at]
        if there == EMPTY:
            there = cuda.atomic.cas(table, base + at, int32(EMPTY), int32(key))
        if there == key or there == EMPTY:  # noqa: SIM109
            return base + at
        at = (at + 1) & (slots - 1)


@cuda.jit
def clear(table, left, right, n):
    i = cuda.grid(1)
    while i < n:
        table[i] = EMPTY
        left[i] = 0
        right[i] = 0
        i += cuda.gridsize(1)


@cuda.jit
def store(words, stride, n, per, slots, table, counts):
    """Count the tuples of each key."""
    keys = cuda.shared.array(CACHED, int32)
    numbers = cuda.shared.array(CACHED, int32)
    t = cuda.threadIdx.x
    window = cuda.blockIdx.x // per
    for c in range(t, CACHED, cuda.blockDim.x):
        keys[c] = EMPTY
        numbers[c] = 0
    cuda.syncthreads()
    i = (cuda.blockIdx.x % per) * cuda.blockDim.x + t
    while i < n:
        key = words[(window * n + i) * stride]
        c = spread(key) & (CACHED - 1)
        there = keys[c]
        if there == EMPTY:
            there = cuda.atomic.cas(keys, c, int32(EMPTY), int32(key))
        if there == EMPTY or there == key:  # noqa: SIM109
            cuda.atomic.add(numbers, c, int32(1))
        else:
            cuda.atomic.add(counts, found_or_put(table, window * slots, slots, key), int32(1))
        i += per * cuda.blockDim.x
    cuda.syncthreads()
    for c in range(t, CACHED, cuda.blockDim.x):
        if numbers[c] > 0:
            cuda.atomic.add(counts, found_or_put(table, window * slots, slots, keys[c]), numbers[c])


@cuda.jit
def look_up(words, stride, n, per, slots, table, counts, totals):
    """How many tuples were counted with the keys of these: added to totals[window]."""
    found = cuda.shared.array(1, int64)
    t = cuda.threadIdx.x
    window = cuda.blockIdx.x // per
    if t == 0:
        found[0] = 0
    cuda.syncthreads()
    mine = int64(0)
    i = (cuda.blockIdx.x % per) * cuda.blockDim.x + t
    while i < n:
        key = words[(window * n + i) * stride]
        at = find(table, window * slots, slots, key)
        if table[at] == key:
            mine += counts[at]
        i += per * cuda.blockDim.x
    cuda.atomic.add(found, 0, mine)
    cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(totals, window, found[0])


@cuda.jit
def symmetric(left, right, stride, n, slots, table, both, totals):
    """A batch of n tuples of each side at once. Both counts of a key are in one word, left in the upper half: whoever
    adds to it is told what was there before, so that of two tuples the later one counts the pair."""
    found = cuda.shared.array(1, int64)
    if cuda.threadIdx.x == 0:
        found[0] = 0
    cuda.syncthreads()
    mine = int64(0)
    i = cuda.grid(1)
    while i < 2 * n:
        if i < n:
            at = found_or_put(table, 0, slots, left[i * stride])
            mine += cuda.atomic.add(both, at, int64(1) << 32) & 0xFFFFFFFF
        else:
            at = found_or_put(table, 0, slots, right[(i - n) * stride])
            mine += cuda.atomic.add(both, at, int64(1)) >> 32
        i += cuda.gridsize(1)
    cuda.atomic.add(found, 0, mine)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(totals, 0, found[0])


@cuda.jit
def symmetric_next(left, right, stride, cursor, n, slots, table, both, totals):
    """As `symmetric`, of whole streams, from tuple cursor[0] on: a launch that may be repeated as it is."""
    found = cuda.shared.array(1, int64)
    if cuda.threadIdx.x == 0:
        found[0] = 0
    cuda.syncthreads()
    first = cursor[0]
    mine = int64(0)
    i = cuda.grid(1)
    while i < 2 * n:
        if i < n:
            at = found_or_put(table, 0, slots, left[(first + i) * stride])
            mine += cuda.atomic.add(both, at, int64(1) << 32) & 0xFFFFFFFF
        else:
            at = found_or_put(table, 0, slots, right[(first + i - n) * stride])
            mine += cuda.atomic.add(both, at, int64(1)) >> 32
        i += cuda.gridsize(1)
    cuda.atomic.add(found, 0, mine)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(totals, 0, found[0])


@cuda.jit
def advance(cursor, n, totals, latest):
    """The next n tuples are next. latest: in host memory, what has been found so far."""
    if cuda.grid(1) == 0:
        cursor[0] += n
        latest[0] = totals[0]


@cuda.jit
def tell(values, i, to):
    """One value. to: in host memory."""
    if cuda.grid(1) == 0:
        to[0] = values[i]


# -- pairs of a hash join: tuples with the same key in chains ------------------------------------------------------


@cuda.jit
def chain(words, stride, n, first, slots, table, counts, heads, following):
    """Store tuples behind their keys; each has the row of the one before. Rows count from `first`."""
    i = cuda.grid(1)
    while i < n:
        at = found_or_put(table, 0, slots, words[i * stride])
        cuda.atomic.add(counts, at, int32(1))
        following[first + i] = cuda.atomic.exch(heads, at, int32(first + i))
        i += cuda.gridsize(1)


@cuda.jit
def chain_numbers(words, stride, n, slots, table, counts, numbers):
    i = cuda.grid(1)
    while i < n:
        key = words[i * stride]
        at = find(table, 0, slots, key)
        numbers[i] = counts[at] if table[at] == key else 0
        i += cuda.gridsize(1)


@cuda.jit
def chain_pairs(words, stride, n, first, slots, table, heads, following, ends, begin, room, rows, partners):
    """The pairs from number `begin` on; tuple i has those up to ends[i]."""
    i = cuda.grid(1)
    while i < n:
        to = int64(0)
        if i > 0:
            to = ends[i - 1]
        to -= begin
        number = ends[i] - begin
        if number > 0 and to < room and number > to:
            row = heads[find(table, 0, slots, words[i * stride])]
            while row >= 0 and to < room:
                if to >= 0:
                    rows[to] = first + i
                    partners[to] = row
                to += 1
                row = following[row]
        i += cuda.gridsize(1)


@cuda.jit
def chain_atomic(words, stride, n, first, slots, table, heads, following, cursor, rows, partners):
    i = cuda.grid(1)
    while i < n:
        key = words[i * stride]
        at = find(table, 0, slots, key)
        if table[at] == key:
            row = heads[at]
            while row >= 0:
                to = cuda.atomic.add(cursor, 0, int64(1))
                if to < rows.size:
                    rows[to] = first + i
                    partners[to] = row
                row = following[row]
        i += cuda.gridsize(1)


# -- sort-merge ----------------------------------------------------------------------------------------------------


@cuda.jit
def pack(words, stride, n, m, first, row_bits, to, at):
    """Words to sort: window, key, row; of m tuples, n a window, from place `at` on. Rows count from `first`."""
    i = cuda.grid(1)
    while i < m:
        to[at + i] = ((int64(i // n) << 32 | int64(words[i * stride])) << row_bits) | (first + i)
        i += cuda.gridsize(1)


@cuda.jit(device=True)
def below(sorted_words, n, value):
    """How many words are below the value."""
    low = int64(0)
    high = int64(n)
    while low < high:
        middle = (low + high) >> 1
        if sorted_words[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@cuda.jit
def merge_count(words, n, others, m, row_bits, totals):
    """Results of two sorted sides: the first tuple of every key multiplies how many there are on both."""
    i = cuda.grid(1)
    while i < n:
        key = words[i] >> row_bits
        if i == 0 or words[i - 1] >> row_bits != key:
            here = below(words, n, (key + 1) << row_bits) - i
            there = below(others, m, (key + 1) << row_bits) - below(others, m, key << row_bits)
            cuda.atomic.add(totals, key >> 32, here * there)
        i += cuda.gridsize(1)


@cuda.jit
def merge_numbers(words, n, others, m, row_bits, begins, numbers, rows):
    """Of each tuple: where its partners begin, how many they are, and its row."""
    i = cuda.grid(1)
    while i < n:
        key = words[i] >> row_bits
        begin = below(others, m, key << row_bits)
        begins[i] = begin
        numbers[i] = below(others, m, (key + 1) << row_bits) - begin
        rows[i] = words[i] & ((int64(1) << row_bits) - 1)
        i += cuda.gridsize(1)


@cuda.jit
def rows_of(words, n, row_bits, rows):
    i = cuda.grid(1)
    while i < n:
        rows[i] = words[i] & ((int64(1) << row_bits) - 1)
        i += cuda.gridsize(1)


@cuda.jit
def merge_atomic(words, n, others, m, row_bits, cursor, rows, partners):
    i = cuda.grid(1)
    mask = (int64(1) << row_bits) - 1
    while i < n:
        key = words[i] >> row_bits
        at = below(others, m, key << row_bits)
        while at < m and others[at] >> row_bits == key:
            to = cuda.atomic.add(cursor, 0, int64(1))
            if to < rows.size:
                rows[to] = words[i] & mask
                partners[to] = others[at] & mask
            at += 1
        i += cuda.gridsize(1)


# -- nested loop ---------------------------------------------------------------------------------------------------


@cuda.jit
def loop_numbers(words, stride, n, others, other_stride, m, per, pitch, keeps, numbers, totals):
    """How many of m others each tuple has the key of, window by window (others of a window lie `pitch` apart): added to
    totals[window]; keeps: also written to `numbers`."""
    at_hand = cuda.shared.array(LOOP, int32)
    found = cuda.shared.array(1, int64)
    t = cuda.threadIdx.x
    window = cuda.blockIdx.x // per
    if t == 0:
        found[0] = 0
    mine = int64(0)
    start = (cuda.blockIdx.x % per) * cuda.blockDim.x
    while start < n:
        i = start + t
        key = int32(EMPTY)
        if i < n:
            key = words[(window * n + i) * stride]
        number = int64(0)
        for begin in range(0, m, LOOP):
            cuda.syncthreads()
            for j in range(t, LOOP, cuda.blockDim.x):
                at_hand[j] = others[(window * pitch + begin + j) * other_stride] if begin + j < m else EMPTY - 1
            cuda.syncthreads()
            for j in range(LOOP):
                number += at_hand[j] == key
        if keeps and i < n:
            numbers[i] = number
        mine += number
        start += per * cuda.blockDim.x
    cuda.syncthreads()
    cuda.atomic.add(found, 0, mine)
    cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(totals, window, found[0])


@cuda.jit
def loop_pairs(words, stride, n, first, others, other_stride, m, atomic, cursor, ends, begin, room, rows, partners):
    i = cuda.grid(1)
    while i < n:
        key = words[i * stride]
        to = int64(0)
        if not atomic and i > 0:
            to = ends[i - 1]
        to -= begin
        if atomic or (ends[i] > begin and to < room and ends[i] - begin > to):
            for j in range(m):
                if others[j * other_stride] == key:
                    if atomic:
                        to = cuda.atomic.add(cursor, 0, int64(1))
                    if to >= 0 and to < room:
                        rows[to] = first + i
                        partners[to] = j
                    to += 1
        i += cuda.gridsize(1)
