"""Parts of the package, and which tests are there to see a fault in each: cheap ones first, without a JVM."""

from __future__ import annotations

from dataclasses import dataclass

CONTRACT = "tests/test_contract.py"
#: Joins of every window and join type with pairs, rows and counts: what any fault on the way of a tuple would change.
JOINS = (
    f"{CONTRACT}::test_rows_pairs_and_count_agree",
    f"{CONTRACT}::test_every_window_and_join_type_gives_the_brute_force_answer",
    f"{CONTRACT}::test_the_number_of_threads_changes_nothing",
)
SELF_JOINS = (
    "tests/test_self_join.py::test_rows_pairs_and_count_agree",
    "tests/test_self_join.py::test_batches_that_span_many_windows_are_joined_once_on_any_number_of_threads",
    "tests/test_self_join.py::test_last_windows_of_two_sizes_forget_what_neither_role_needs",
)
INDEXES = f"{CONTRACT}::test_every_index_and_window_gives_the_brute_force_answer"
ON_SPARK = tuple(
    f"tests/spark/test_{name}.py"
    for name in ("narrow", "clock", "router", "cache", "canonical", "runs", "late", "contract")
)


@dataclass(frozen=True)
class Part:
    files: tuple[str, ...]
    tests: tuple[str, ...]


def _of(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"watersmeet/{folder}/{name}.py" for name in names)


def _each(*indexes: str) -> tuple[str, ...]:
    """The contract of these indexes, over all windows."""
    windows = ("within", "last", "tumbling", "hopping", "gaps")
    return tuple(f"{INDEXES}[{index}-{window}]" for index in indexes for window in windows)


QUERY = (
    "tests/query/test_plan.py", "tests/query/test_ranges.py", "tests/query/test_functions.py",
    "tests/query/test_node_keys.py", "tests/query/test_properties.py", "tests/query/test_boxes.py",
    "tests/test_by_keys.py",
    f"{CONTRACT}::test_every_family_of_predicates_gives_the_brute_force_answer",
)  # fmt: skip
WINDOWS = (
    "tests/test_examples.py", *JOINS, f"{CONTRACT}::test_times_may_be_the_first_and_last_of_int64",
    "tests/test_batch_mode.py", *SELF_JOINS,
)  # fmt: skip

KEPT = (
    "tests/test_payload.py", "tests/test_inputs.py", "tests/test_gather_texts.py", "tests/test_column_types.py",
    "tests/test_by_keys.py",
)  # fmt: skip
STATE = "tests/test_state.py"
FAILURES = "tests/test_failures.py::test_a_step_that_fails_at_any_line_leaves_no_trace"

PARTS: dict[str, Part] = {
    "engine/core": Part(
        _of("engine", "core", "finder"),
        (*WINDOWS, "tests/test_counting.py", "tests/test_by_keys.py", FAILURES, STATE, "tests/test_cores.py"),
    ),
    "engine/arrivals": Part(
        _of("engine", "arrivals", "arrival", "late"),
        (
            "tests/test_arrival.py", *WINDOWS, "tests/test_idle.py", "tests/test_unknown_schemas.py",
            "tests/test_errors.py", FAILURES,
        ),
    ),
    "engine/join": Part(
        _of("engine", "join", "asked", "bound", "calls"),
        (
            "tests/test_errors.py", "tests/test_explain.py", "tests/test_inputs.py", "tests/test_unknown_schemas.py",
            "tests/test_public_types.py", *WINDOWS, "tests/test_idle.py", "tests/test_failures.py",
        ),
    ),
    "engine/results": Part(
        _of("engine", "results", "self_join", "inputs"),
        (
            "tests/test_examples.py", "tests/test_inputs.py", "tests/test_later_batches.py", "tests/test_much_text.py",
            "tests/test_column_types.py", "tests/test_counting.py", "tests/test_errors.py", "tests/test_order.py",
            *JOINS, *SELF_JOINS,
        ),
    ),
    "engine/cores": Part(
        _of("engine/cores", "member", "team", "spread", "collect"),
        ("tests/test_cores.py", "tests/test_hot_cold.py", "tests/test_order.py", "tests/test_core_processes.py"),
    ),
    "engine/processes": Part(_of("engine/cores", "segments", "channel", "process"), ("tests/test_core_processes.py",)),
    "engine/shared": Part(
        (*_of("engine", "shared", "tasks"), *_of("index/trees", "shared_kernels", "shared_tree")),
        ("tests/test_shared.py",),
    ),
    "engine/order": Part(_of("engine", "order", "run"), ("tests/test_order.py", "tests/test_run.py")),
    "window/chain": Part(
        _of("window", "chain", "ticks"),
        (
            *WINDOWS, "tests/test_duckdb.py", "tests/test_long_streams.py", "tests/test_counting.py",
            "tests/test_concurrency.py", FAILURES, STATE,
        ),
    ),
    "window/rows": Part(_of("window", "rows"), (*KEPT, STATE)),
    "window/payload": Part(_of("window", "payload"), (*KEPT, *JOINS, STATE)),
    "window/chunks": Part(_of("window", "chunks", "gather"), (*KEPT, *JOINS, STATE)),
    "window/watermark": Part(_of("window", "watermark"), ("tests/test_idle.py", *WINDOWS)),
    "query/plan": Part(_of("query", "plan", "terms"), QUERY),
    "query/linear": Part(_of("query", "linear", "ranges"), QUERY),
    "query/keys": Part(_of("query", "keys", "floats"), QUERY),
    "query/windows": Part(
        _of("query", "windows", "durations"),
        (
            "tests/query/test_windows.py", "tests/test_idle.py", "tests/test_arrival.py", "tests/test_errors.py",
            "tests/test_explain.py", *WINDOWS,
        ),
    ),
    "index/bisort": Part(
        _of("index/sorted", "bisort", "run", "run_kernels", "samples"),
        (
            "tests/test_bisort.py", "tests/test_merging.py", "tests/test_trees.py", "tests/test_counting.py",
            "tests/test_concurrency.py", *_each("bisort", "pim_tree"),
        ),
    ),
    "index/merging": Part(
        _of("index/sorted", "merging"),
        ("tests/test_merging.py", "tests/test_bisort.py", "tests/test_concurrency.py"),
    ),
    "index/sorting": Part(
        _of("index", "sorting", "batches", "base"),
        (
            "tests/test_sorting.py", "tests/test_packing.py", "tests/test_bisort.py", "tests/test_merging.py",
            "tests/test_concurrency.py",
            *_each("bisort", "hash"),
        ),
    ),
    "index/hash": Part(_of("index", "hash"), ("tests/test_hash.py", "tests/test_concurrency.py", *_each("hash"))),
    "index/trees": Part(
        _of("index/trees", "btree", "btree_changes", "btree_kernels", "css_tree", "im_tree", "pim_tree"),
        ("tests/test_trees.py", *_each("btree", "frozen_btree", "im_tree", "pim_tree")),
    ),
    "index/tables": Part(
        (*_of("index/tables", "rap_table", "llat", "llat_kernels"), *_of("index/trees", "wib_tree", "wib_kernels")),
        ("tests/test_tables.py", *_each("rap_table", "wib_tree")),
    ),
    "index/others": Part(
        _of("index", "nested_loop", "adaptive"),
        ("tests/test_hash.py", "tests/test_adaptive.py", *_each("nested_loop", "adaptive")),
    ),
    "aggregates": Part(
        _of("aggregates", "core", "runs", "blocks", "sweep", "functions"), ("tests/test_aggregates.py",)
    ),
    "engine/pick": Part((*_of("engine", "pick"), *_of("window", "asof")), ("tests/test_pick.py",)),
    "query/boxes": Part(
        _of("query", "boxes", "cells", "distances"), ("tests/query/test_boxes.py", "tests/query/test_distances.py")
    ),
    "sketch": Part(_of("sketch", "asketch"), ("tests/test_sketch.py",)),
    "atomics": Part(("watersmeet/atomics.py",), ("tests/test_atomics.py",)),
    "routing/cells": Part(_of("routing", "cells"), ("tests/test_routing.py", "tests/test_cells.py", ON_SPARK[-1])),
    "routing/hot_cold": Part(
        _of("routing", "hot_cold", "beliefs"), ("tests/test_hot_cold.py", "tests/test_routing.py", "tests/test_sta.py")
    ),
    "routing/choose": Part(
        _of("routing", "choose", "base", "hash", "split", "broadcast", "single"),
        ("tests/test_routing.py", "tests/test_cores.py", ON_SPARK[-1]),
    ),
    "spark/clock": Part(_of("spark", "clock"), ON_SPARK),
    "spark/state": Part(_of("spark", "state"), ON_SPARK),
    "spark/runs": Part(_of("spark", "runs"), ON_SPARK),
    "spark/compact": Part(_of("spark", "compact"), ON_SPARK),
    "spark/narrow": Part(_of("spark", "narrow", "packs"), ON_SPARK),
    "spark/joiner": Part(_of("spark", "joiner"), (*ON_SPARK, "tests/spark/test_hot_cold.py")),
    "spark/router": Part(_of("spark", "router"), ON_SPARK),
    "spark/canonical": Part(_of("spark", "canonical", "stores"), (*ON_SPARK, "tests/spark/test_hot_cold.py")),
}  # fmt: skip

#: All of them together, whole files.
EVERY = tuple(sorted({test.partition("::")[0] for part in PARTS.values() for test in part.tests}))
