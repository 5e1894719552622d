"""First use: a light import, and no compilation in a new process once the kernels are cached on disk.

Seconds are of CPU: other tests may be running beside these.
"""

import json
import os
import subprocess
import sys
import time

import pytest

IMPORT = """
import json, sys, time
start = time.process_time()
import watersmeet
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "modules": sorted({name.split(".")[0] for name in sys.modules})}))
"""

FIRST_PUSH = """
import json, time
import pyarrow as pa
import watersmeet as wm
rows = pa.table({"ts": [1, 2, 3], "k": [1, 2, 3], "x": [1.0, 2.0, 3.0], "s": ["a", "b", "c"]})
start = time.process_time()
join = wm.StreamJoin(ON, wm.within(5), HOW)
found = join.push(left=rows, right=rows).num_rows
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "found": found}))
"""


def in_new_process(code, **environment):
    environment = os.environ | environment
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def within_a_second(code):
    """The best of up to 10 runs, with the kernel cache filled; one that is fast enough will do."""
    in_new_process(code)
    for _ in range(10):
        run = in_new_process(code)
        if run["seconds"] < 1:
            return run
        time.sleep(1)  # others use the machine
    pytest.fail(f"took {run['seconds']:.2f} s, ten times over")


def test_importing_takes_less_than_a_second_and_nothing_heavy():
    run = within_a_second(IMPORT)
    heavy = {"pyspark", "sqlglot", "typer", "rich", "pandas", "polars", "duckdb", "datafusion", "hypothesis"}
    assert not heavy & set(run["modules"])


@pytest.mark.parametrize(
    ("on", "how"),
    [("l.k = r.k", "inner"), ("abs(l.x - r.x) <= 0.5", "left"), ("l.s = r.s and l.k < r.k + 1", "full")],
)
def test_the_first_push_with_cached_kernels_takes_less_than_a_second(on, how):
    run = within_a_second(FIRST_PUSH.replace("ON", repr(on)).replace("HOW", repr(how)))
    assert run["found"] == 3


COMPILED = """
from watersmeet.warm import dispatchers
names = [one.py_func.__module__ + "." + one.__name__ for one in dispatchers() if one.signatures]
print(json.dumps({"seconds": seconds, "found": found, "names": sorted(names)}))
"""


@pytest.mark.long
@pytest.mark.parametrize("window", ["wm.within(5)", "wm.last(5)"])
@pytest.mark.parametrize("on", ["l.k = r.k", "abs(l.k - r.k) <= 0", "l.k = r.k and abs(l.ts - r.ts) <= 5"])
def test_the_first_push_of_a_new_install_compiles_little(on, window, tmp_path):
    """Nothing that only large batches and full runs need."""
    code = FIRST_PUSH.replace("ON", repr(on)).replace("HOW", repr("inner")).replace("wm.within(5)", window) + COMPILED
    for attempt in range(3):  # others use the machine
        run = in_new_process(code, NUMBA_CACHE_DIR=str(tmp_path / str(attempt)))
        if run["seconds"] < 6:
            break
    assert run["found"] == 3
    assert not [name for name in run["names"] if ".sorting." in name or ".merging." in name or ".batches." in name]
    assert len(run["names"]) <= 13
    assert run["seconds"] < 6


def test_the_engine_runs_without_sqlglot_when_the_predicate_is_given_as_objects():
    code = """
import json, sys
sys.modules["sqlglot"] = None
import pyarrow as pa
import watersmeet as wm
from watersmeet.query.expr import Call, Column
on = Call("=", (Column("l", "k"), Column("r", "k")))
rows = pa.table({"ts": [1, 2], "k": [1, 2]})
join = wm.StreamJoin(on, wm.within(5), output="count")
print(json.dumps({"found": join.push(left=rows, right=rows)}))
"""
    assert in_new_process(code) == {"found": 2}
