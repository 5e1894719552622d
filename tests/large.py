"""Streams of large batches, and a join for each route."""

import numpy as np
import pyarrow as pa

import watersmeet as wm

N = 20_000
JOINS = {
    "hash": ("l.k = r.k", "left"),
    "cells": ("abs(l.x - r.x) <= 3", "full"),
    "split": ("l.x * 100 <= r.k", "semi"),
    "broadcast": ("abs(l.x - r.x) <= 3", "inner"),
}


def rows(start, n, seed):
    rng = np.random.default_rng(seed)
    columns = {"ts": np.arange(start, start + n), "k": rng.integers(0, n, n), "x": rng.integers(0, 10 * n, n)}
    return pa.table({**columns, "s": pa.array(rng.integers(0, n, n)).cast(pa.string())})


def batches(number):
    return rows(number * N, N, 2 * number), rows(number * N, N, 2 * number + 1)


def join_of(kind, window=None, how=None, **options):
    on, how = JOINS[kind][0], how or JOINS[kind][1]
    schema = rows(0, 0, 0).schema
    options = {"cores": 2, "route": kind, "left_schema": schema, "right_schema": schema, **options}
    return wm.StreamJoin(on, window or wm.within(2 * N), how, **options)


def in_order(table):
    return table.sort_by([(name, "ascending") for name in table.column_names])
