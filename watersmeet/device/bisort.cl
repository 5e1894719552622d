/* BI-Sort's parts, as PanJoin has them on an FPGA (section IV, figures 7 to 9).

       insertion engine    mergers -> indexer
       probing engine      boundary generator -> partitioners -> probers -> emitters

   A part is a number of *units*, one work-item each. A unit has a span of the work to itself and goes through it from
   one end to the other, reading its inputs and writing its output in order, as streams: it waits for no other and
   shares nothing with it, so there are no barriers, no atomics and no local memory. Few units, with much to do each,
   suit an FPGA (where they are pipelines) and a CPU (where they are threads); a GPU is given many.

   Keys are one long, or, built with COMPOSITE, two: an equality's, then a range's. */

#define UNBOUNDED 0
#define BY_ROW 1
#define BY_TICK 2

/* Where the span of this unit begins, and that of the next. */
#define SPAN(u, n) ((long)(n) * (long)(u) / (long)get_global_size(0))
#define UNIT ((long)get_global_id(0))

/* Whether the key at this place is below (major, minor); inclusive: or equal to it. */
static inline bool before(__global const long *equal, __global const long *ordered, long at, long major, long minor,
                          int inclusive)
{
    long key = ordered[at];
    bool below = inclusive ? key <= minor : key < minor;
#if COMPOSITE
    long other = equal[at];
    return other < major || (other == major && below);
#else
    return below;
#endif
}

#if COMPOSITE
#define MAJOR(equal, at) ((equal)[at])
#else
#define MAJOR(equal, at) 0L
#endif

/* How many of these numbers are at most the value. */
static inline long up_to(__global const long *ascending, long low, long high, long value)
{
    while (low < high) {
        long middle = (low + high) >> 1;
        if (ascending[middle] <= value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* -- insertion engine -- */

/* Two sorted streams in, one out. A merger writes its span of the output; how much of the batch lies before that, it
   looks up first. Keys of the window go before equal ones of the batch. */
__kernel void merger(__global const long *equal, __global const long *ordered, __global const int *rows, long n,
                     __global const long *new_equal, __global const long *new_ordered, __global const int *new_rows,
                     long m, int first_row, __global long *to_equal, __global long *to_ordered, __global int *to_rows)
{
    long at = SPAN(UNIT, n + m), stop = SPAN(UNIT + 1, n + m);
    long low = max(at - n, 0L), high = min(at, m);
    while (low < high) { /* of the first `at` keys, so many are the batch's */
        long middle = (low + high) >> 1;
        if (before(equal, ordered, at - middle - 1, MAJOR(new_equal, middle), new_ordered[middle], 1))
            high = middle;
        else
            low = middle + 1;
    }
    long j = low, i = at - low;
    while (at < stop) {
        long major = j < m ? MAJOR(new_equal, j) : 0, minor = j < m ? new_ordered[j] : 0;
        long end = j < m ? min(n, i + stop - at) : i + stop - at;
        while (i < end && (j == m || before(equal, ordered, i, major, minor, 1))) {
            to_ordered[at] = ordered[i];
#if COMPOSITE
            to_equal[at] = equal[i];
#endif
            to_rows[at++] = rows[i++];
        }
        if (at < stop) {
            to_ordered[at] = minor;
#if COMPOSITE
            to_equal[at] = major;
#endif
            to_rows[at++] = new_rows[j++] + first_row;
        }
    }
}

/* The last key of every partition. */
__kernel void indexer(__global const long *equal, __global const long *ordered, long n, long width,
                      __global long *sampled_equal, __global long *sampled_ordered)
{
    long stop = SPAN(UNIT + 1, n / width);
    for (long i = SPAN(UNIT, n / width); i < stop; i++) {
        sampled_ordered[i] = ordered[(i + 1) * width - 1];
#if COMPOSITE
        sampled_equal[i] = equal[(i + 1) * width - 1];
#endif
    }
}

/* How many rows of each unit's span are not below `gone`. */
__kernel void keep_counter(__global const int *rows, long n, int gone, __global long *counts)
{
    long stop = SPAN(UNIT + 1, n), kept = 0;
    for (long i = SPAN(UNIT, n); i < stop; i++)
        kept += rows[i] >= gone;
    counts[UNIT] = kept;
}

/* These rows, with `gone` taken off their numbers. firsts: where each unit's go. */
__kernel void keeper(__global const long *equal, __global const long *ordered, __global const int *rows, long n,
                     int gone, __global const long *firsts, __global long *to_equal, __global long *to_ordered,
                     __global int *to_rows)
{
    long at = firsts[UNIT], stop = SPAN(UNIT + 1, n);
    for (long i = SPAN(UNIT, n); i < stop; i++) {
        if (rows[i] >= gone) {
            to_ordered[at] = ordered[i];
#if COMPOSITE
            to_equal[at] = equal[i];
#endif
            to_rows[at++] = rows[i] - gone;
        }
    }
}

/* -- probing engine -- */

/* The ends of ranges that are the batch's keys moved by a constant. */
__kernel void boundary_generator(__global const long *keys, long m, long below, long above, __global long *lows,
                                 __global long *highs)
{
    long stop = SPAN(UNIT + 1, m);
    for (long i = SPAN(UNIT, m); i < stop; i++) {
        lows[i] = keys[i] + below;
        highs[i] = keys[i] + above;
    }
}

/* The partition in which each bound lies: the first whose last key is not before it. Bounds mostly ascend, so the
   search goes on from the partition before, in steps that double (rebounding binary search). */
__kernel void partitioner(__global const long *sampled_equal, __global const long *sampled_ordered, long samples,
                          __global const long *majors, __global const long *bounds, long start, long m, int inclusive,
                          __global int *targets)
{
    long at = 0, stop = SPAN(UNIT + 1, m);
    for (long p = SPAN(UNIT, m); p < stop; p++) {
        long major = MAJOR(majors, start + p), minor = bounds[start + p], step = 1, low = at, high = at;
        if (at < samples && before(sampled_equal, sampled_ordered, at, major, minor, inclusive)) {
            do { /* forward */
                low = high + 1;
                high = min(high + step, samples);
                step <<= 1;
            } while (high < samples && before(sampled_equal, sampled_ordered, high, major, minor, inclusive));
        } else {
            while (low > 0 && !before(sampled_equal, sampled_ordered, low - 1, major, minor, inclusive)) {
                high = low - 1;
                low = max(high - step, 0L);
                step <<= 1;
            }
        }
        while (low < high) { /* and back */
            long middle = (low + high) >> 1;
            if (before(sampled_equal, sampled_ordered, middle, major, minor, inclusive))
                low = middle + 1;
            else
                high = middle;
        }
        at = low;
        targets[p] = (int)at;
    }
}

/* How many keys are before each bound: a merge of bounds and partitions. A bound that is not below the one before goes
   on where that stopped, so that a key is read once, however many bounds its partition has. */
__kernel void prober(__global const long *equal, __global const long *ordered, long n, long width,
                     __global const int *targets, __global const long *majors, __global const long *bounds, long start,
                     long m, int inclusive, __global long *found)
{
    long first = SPAN(UNIT, m), stop = SPAN(UNIT + 1, m), at = 0, last_major = 0, last_minor = 0;
    for (long p = first; p < stop; p++) {
        long major = MAJOR(majors, start + p), minor = bounds[start + p], begin = targets[p] * width;
        long end = min(begin + width, n);
        if (p == first || begin > at || major < last_major || (major == last_major && minor < last_minor))
            at = begin;
        while (at < end && before(equal, ordered, at, major, minor, inclusive))
            at++;
        found[p] = at;
        last_major = major;
        last_minor = minor;
    }
}

/* Sums of the ranges' lengths up to each, within a unit's span; and of the whole span. */
__kernel void adder(__global const long *begins, __global const long *ends, long m, __global long *sums,
                    __global long *totals)
{
    long stop = SPAN(UNIT + 1, m), sum = 0;
    for (long p = SPAN(UNIT, m); p < stop; p++) {
        sum += max(ends[p] - begins[p], 0L); /* a range may be empty */
        sums[p] = sum;
    }
    totals[UNIT] = sum;
}

/* Candidates from number `first` on, `room` of them, each unit a share: those in bounds go to the unit's own stretch of
   `batch_rows` and `partners`, unless they are only counted. firsts: the number of the first candidate of each of the
   adders' spans. kept: how many each unit found. */
__kernel void emitter(__global const long *begins, __global const long *ends, __global const long *sums,
                      __global const long *firsts, __global const int *probe_rows, long start, long m,
                      __global const int *rows, long first, long room, int mode, int one_each,
                      __global const long *low, __global const long *high, long least, long most,
                      __global const long *ticks, int counted, __global int *batch_rows, __global int *partners,
                      __global long *kept)
{
    long share = SPAN(UNIT, room), c = first + share, stop = first + SPAN(UNIT + 1, room), to = share;
    if (c < stop) {
        long span = up_to(firsts, 0, get_global_size(0), c) - 1;
        long from = SPAN(span, m), inside = c - firsts[span];
        long i = up_to(sums, from, SPAN(span + 1, m), inside);
        if (i > from)
            inside -= sums[i - 1];
        for (; c < stop; i++, inside = 0) {
            long at = begins[i] + inside, end = min(ends[i], at + stop - c);
            int p = probe_rows[start + i];
            if (end <= at)
                continue;
            c += end - at;
            if (mode == UNBOUNDED) {
                for (; at < end; at++, to++) {
                    batch_rows[to] = p;
                    partners[to] = rows[at];
                }
                continue;
            }
            if (one_each) {
                least = low[p];
                most = high[p];
            }
            if (counted) {
                for (; at < end; at++) {
                    long value = mode == BY_TICK ? ticks[rows[at]] : rows[at];
                    to += least <= value && value <= most;
                }
            } else {
                for (; at < end; at++) {
                    int row = rows[at];
                    long value = mode == BY_TICK ? ticks[row] : row;
                    batch_rows[to] = p; /* written over by the next, unless it is kept */
                    partners[to] = row;
                    to += least <= value && value <= most;
                }
            }
        }
    }
    kept[UNIT] = to - share;
}
