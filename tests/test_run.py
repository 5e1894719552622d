"""Iterators in, results out: as with pushes, with bounded queues, and an end whatever happens."""

import asyncio
import itertools
import os
import signal
import threading
import time
from collections import Counter

import pyarrow as pa
import pytest

import watersmeet as wm

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})


def batch(number, rows=10, step=1, keys=7):
    start = number * rows * step
    return pa.table(
        {"ts": range(start, start + rows * step, step), "k": [(number * 31 + i) % keys for i in range(rows)]},
        schema=SCHEMA,
    )


def pairs(tables):
    return sum((Counter(map(tuple, zip(*t.to_pydict().values(), strict=True))) for t in tables), Counter())


def pushed(join, lefts, rights):
    answers = [join.push(left=left, right=right) for left, right in itertools.zip_longest(lefts, rights)]
    return pairs([*answers, join.close()])


@pytest.mark.parametrize("window", [wm.within(15), wm.last(13, 8), wm.tumbling(20)], ids=str)
@pytest.mark.parametrize("how", ["inner", "full", "anti"])
@pytest.mark.parametrize("counts", [(9, 9), (9, 4), (0, 5), (3, 0)])
def test_the_results_of_pushes(window, how, counts):
    lefts, rights = ([batch(n) for n in range(count)] for count in counts)
    options = {"output": "pairs", "left_schema": SCHEMA, "right_schema": SCHEMA}
    expected = pushed(wm.StreamJoin("l.k = r.k", window, how, **options), lefts, rights)
    for _ in range(5):  # whoever is faster
        join = wm.StreamJoin("l.k = r.k", window, how, **options)
        assert pairs(join.run(iter(lefts), rights)) == expected
        with pytest.raises(ValueError, match="after close"):
            join.push(left=batch(0))


def test_streams_of_which_nothing_is_known_yet():
    lefts, rights = [batch(n) for n in range(6)], [batch(n) for n in range(6)]
    expected = pushed(wm.StreamJoin("l.k = r.k", wm.within(15)), lefts, rights)
    assert pairs(wm.StreamJoin("l.k = r.k", wm.within(15)).run(lefts, rights)) == expected


def test_a_self_join_has_one_iterator():
    join = wm.StreamJoin("l.k = r.k", wm.within(15), self_join=True, output="count")
    alone = wm.StreamJoin("l.k = r.k", wm.within(15), self_join=True, output="count")
    assert sum(join.run(batch(n) for n in range(5))) == sum(alone.push(batch(n)) for n in range(5))
    with pytest.raises(ValueError, match=r"use run\(batches\)"):
        wm.StreamJoin("l.k = r.k", wm.within(15), self_join=True).run([], [])


@pytest.mark.parametrize("source", [None, 3])
def test_what_is_no_iterator_is_refused(source):
    with pytest.raises(TypeError, match="right must be an iterator of batches"):
        wm.StreamJoin("l.k = r.k", wm.within(15)).run([], source)


@pytest.mark.parametrize("ahead", [0, 1.5])
def test_a_bad_number_to_read_ahead_is_refused(ahead):
    with pytest.raises((ValueError, TypeError), match="ahead"):
        wm.StreamJoin("l.k = r.k", wm.within(15)).run([], [], ahead=ahead)


def counted(counter, batches):
    for one in batches:
        counter.append(one)
        yield one


@pytest.mark.parametrize("ahead", [1, 3])
def test_nobody_reads_further_ahead_than_allowed(ahead):
    read = {"left": [], "right": []}
    endless = {side: counted(read[side], (batch(n) for n in itertools.count())) for side in read}
    with wm.StreamJoin("l.k = r.k", wm.within(5)).run(*endless.values(), ahead=ahead) as running:
        for taken, _ in zip(range(1, 30), running, strict=False):
            time.sleep(0.003)
            # Taken, those in the queue of results, one that waits to enter it, and the same of batches.
            assert all(len(some) <= taken + 2 * ahead + 3 for some in read.values())


def test_a_stream_far_ahead_waits_for_the_other():
    """So what is stored is a window, and not a file."""
    go_on, most = threading.Event(), 0

    def slow():
        for n in range(40):
            if n == 3:
                go_on.wait()
            yield batch(n)

    read = []
    fast = counted(read, (batch(n) for n in range(40)))
    join = wm.StreamJoin("l.k = r.k", wm.within(15), output="count")
    running = join.run(fast, slow())
    threading.Timer(0.3, go_on.set).start()
    while not go_on.is_set():
        time.sleep(0.02)
        most = max(most, len(read))
    assert most < 20
    lefts = [batch(n) for n in range(40)]
    alone = wm.StreamJoin("l.k = r.k", wm.within(15), output="count")
    assert sum(running) == sum(alone.push(left=one, right=one) for one in lefts) + alone.close()
    assert join.metrics.late_left == join.metrics.late_right == 0


def test_nobody_waits_for_a_stream_at_its_end():
    join = wm.StreamJoin("l.k = r.k", wm.within(15), left_schema=SCHEMA, right_schema=SCHEMA, output="count")
    counts, over = [], threading.Event()

    def take():
        counts.extend(join.run((batch(n) for n in range(100)), [batch(0)], ahead=2))
        over.set()

    threading.Thread(target=take, daemon=True).start()
    assert over.wait(60)
    alone = wm.StreamJoin("l.k = r.k", wm.within(15), output="count")
    assert sum(counts) == alone.push(batch(0), batch(0)) + sum(alone.push(left=batch(n)) for n in range(1, 100))


def test_a_stream_that_may_be_idle_is_not_waited_for():
    release = threading.Event()

    def silent():
        yield batch(0)
        release.wait()

    join = wm.StreamJoin("l.k = r.k", wm.within(5, idle_after=20), "left", output="count")
    running = join.run((batch(n) for n in range(30)), silent())
    total = 0
    for answer in running:
        total += answer
        if total > 150:  # tuples without a partner come out although the right stream says nothing
            break
    release.set()
    running.close()


class Trouble(Exception):
    pass


@pytest.mark.parametrize("side", ["left", "right"])
def test_an_error_of_an_iterator_comes_out(side):
    def broken():
        yield batch(0)
        yield batch(1)
        raise Trouble("the disk is full")

    sources = {"left": (batch(n) for n in itertools.count()), "right": (batch(n) for n in itertools.count())}
    sources[side] = broken()
    with pytest.raises(Trouble, match="disk is full"):
        for _ in wm.StreamJoin("l.k = r.k", wm.within(5)).run(**sources):
            pass


def test_an_error_of_the_join_comes_out_and_the_join_goes_on():
    join = wm.StreamJoin("l.k = r.k", wm.within(5), output="count")
    with pytest.raises(ValueError, match="other"):
        list(join.run([batch(0), pa.table({"other": [1]})], (batch(n) for n in itertools.count())))
    assert join.push(left=batch(50), right=batch(50)) > 0


def ended(running):
    return not any(thread.is_alive() for thread in running._threads)


def test_whoever_stops_taking_stops_all():
    endless = [(batch(n) for n in itertools.count()) for _ in range(2)]
    running = wm.StreamJoin("l.k = r.k", wm.within(5)).run(*endless)
    next(running)
    running.close()
    for thread in running._threads:
        thread.join(60)  # it is given half a second, which may be too short where others use the machine
    assert ended(running)
    with pytest.raises(StopIteration):
        for _ in range(100):
            next(running)


def test_ctrl_c_ends_within_a_second():
    forever = threading.Event()

    def stuck():
        yield batch(0)
        forever.wait()

    running = wm.StreamJoin("l.k = r.k", wm.within(5)).run(stuck(), stuck())
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt), running:
        list(running)
    assert time.perf_counter() - begin < 20  # 0.7 s where nobody else uses the machine; else it would be for ever
    forever.set()


def test_progress_and_latencies():
    seen = []
    join = wm.StreamJoin("l.k = r.k", wm.within(15), output="count")
    running = join.run([batch(n) for n in range(8)], [batch(n) for n in range(8)], progress=seen.append)
    total = sum(running)
    assert seen[-1].rows_in == 160 and 0 < seen[-1].rows_out <= total
    assert [one.rows_in for one in seen] == sorted(one.rows_in for one in seen)
    latencies = running.latencies
    for stage in ("waiting", "joining", "taking", "whole"):
        assert 0 <= latencies.percentile(stage, 50) <= latencies.percentile(stage, 99) < 60
    assert "joining" in repr(latencies) and "ms" in repr(latencies)


def test_a_batch_that_waits_for_the_other_stream_counts_from_its_own_arrival():
    def slow():
        time.sleep(0.3)
        yield batch(0)

    running = wm.StreamJoin("l.k = r.k", wm.last(50), output="count").run([batch(0)], slow())
    assert sum(running) > 0
    assert 0.2 < running.latencies.percentile("waiting", 100) <= running.latencies.percentile("whole", 100)


def test_an_error_of_the_progress_hook_is_not_swallowed():
    def hook(_):
        raise Trouble("no room on the screen")

    with pytest.raises(Trouble):
        list(wm.StreamJoin("l.k = r.k", wm.within(15)).run([batch(0)], [batch(0)], progress=hook))


@pytest.mark.parametrize("kind", ["async", "plain", "both"])
def test_asynchronous_iterators(kind):
    async def later():
        for n in range(9):
            await asyncio.sleep(0.001)
            yield batch(n)

    def source(number):
        wants = kind == "async" or (kind == "both" and number)
        return later() if wants else [batch(n) for n in range(9)]

    async def main():
        join = wm.StreamJoin("l.k = r.k", wm.within(15), "full", output="pairs")
        return [table async for table in join.run_async(source(0), source(1))]

    batches = [batch(n) for n in range(9)]
    expected = pushed(wm.StreamJoin("l.k = r.k", wm.within(15), "full", output="pairs"), batches, batches)
    assert pairs(asyncio.run(main())) == expected


def test_an_error_of_an_asynchronous_iterator_comes_out():
    async def broken():
        yield batch(0)
        raise Trouble("the line is dead")

    async def main():
        async for _ in wm.StreamJoin("l.k = r.k", wm.within(15)).run_async(broken(), [batch(0)]):
            pass

    with pytest.raises(Trouble, match="line is dead"):
        asyncio.run(main())
