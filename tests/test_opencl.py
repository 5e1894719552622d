"""BI-Sort on OpenCL: the contract of every index (tests/test_contract.py), and its parts, on PoCL."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from device_model import check_steps, modes, sizes, steps
from harness import answer, check_timing, make_join, run
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Close, Within
from predicates import PREDICATES
from strategies import HOWS, WINDOW_KINDS, Scenario, scenarios

import watersmeet as wm
from watersmeet.device import DeviceFull, NoDevice, opencl
from watersmeet.index import BISort, OpenCLBISort
from watersmeet.workers import ALONE


def why_not() -> str | None:
    try:
        opencl.check_device(None, None)
    except NoDevice as error:
        return str(error)
    return None


NEEDS_DEVICE = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
SERVED = [predicate for predicate in PREDICATES if predicate.equality or predicate.ordered]
UNITS = st.sampled_from([None, 1, 3, 50])


@st.composite
def options(draw):
    """Options of a join that make structures small."""
    if not draw(st.integers(0, 3)):
        return {"index": OpenCLBISort()}
    small = {name: draw(st.sampled_from([3, 4, 7])) for name in ("buffer_rows", "partition_rows", "portion_rows")}
    given = {"index": OpenCLBISort(**small, units=draw(UNITS))}
    for name, values in (("subwindows", [None, 1, 3]), ("subwindow_rows", [None, 3, 7])):
        value = draw(st.sampled_from(values))
        if value is not None:
            given[name] = value
    return given


# -- the contract ------------------------------------------------------------------------------------------------------


@NEEDS_DEVICE
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", WINDOW_KINDS)
@settings(max_examples=5)
@given(data=st.data())
def test_every_window_and_join_type_gives_the_brute_force_answer(kind, how, data):
    scenario = data.draw(scenarios(kind=kind, how=how, predicates=SERVED))
    check_timing(answer(scenario), run(scenario, "pairs", **data.draw(options())))


@NEEDS_DEVICE
@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=6)
@given(data=st.data())
def test_rows_pairs_and_count_agree(how, data):
    scenario = data.draw(scenarios(how=how, predicates=SERVED))
    given = data.draw(options())
    rows = run(scenario, "rows", **given)
    check_timing(answer(scenario), rows)
    assert run(scenario, "pairs", **given) == rows
    assert run(scenario, "count", **given) == [step.total() for step in rows]


@NEEDS_DEVICE
@pytest.mark.parametrize("predicate", SERVED, ids=lambda predicate: predicate.sql)
def test_every_predicate_with_a_key_runs_on_the_device(predicate):
    with make_join(Scenario(predicate, Within(5, 5), "inner", [Close()]), index=OpenCLBISort()) as join:
        lines = join.explain().splitlines()
    assert any(line.startswith("index: opencl_bisort") for line in lines)
    assert any(line.startswith("device: opencl (") for line in lines)
    assert any(line.startswith("  bounded by its memory: ") for line in lines)


@NEEDS_DEVICE
def test_several_threads_push_at_the_same_join_large_batches():
    """Storing goes on beside the search, in other threads of the host."""
    rng = np.random.default_rng(3)
    pushes = [[pa.table({"x": rng.integers(0, 20_000, 30_000)}) for _ in range(2)] for _ in range(4)]
    answers = []
    for index in ("bisort", OpenCLBISort()):
        with wm.StreamJoin("abs(l.x - r.x) <= 1", wm.last(50_000), index=index, output="pairs", cores=4) as join:
            found = [join.push(left=left, right=right) for left, right in pushes]
            join.check_invariants()
        answers.append([one.sort_by([("left", "ascending"), ("right", "ascending")]) for one in found])
    assert sum(one.num_rows for one in answers[0]) > 100_000
    assert all(one.equals(other) for one, other in zip(*answers, strict=True))


# -- its parts ---------------------------------------------------------------------------------------------------------


@NEEDS_DEVICE
@settings(max_examples=60)
@given(steps, sizes, modes, st.booleans(), UNITS)
def test_a_structure_holds_what_was_inserted_and_not_forgotten(steps, sizes, mode, composite, units):
    buffer_rows, partition_rows, portion_rows = sizes
    index = OpenCLBISort(buffer_rows, partition_rows, portion_rows, units=units)

    def order(asked):
        return index.machine().download((asked.bands[0].rows, asked.size))[0].tolist()

    check_steps(index, steps, mode, composite, order)


@NEEDS_DEVICE
@pytest.mark.parametrize("composite", [False, True])
def test_large_batches_are_merged_searched_and_forgotten_as_the_cpu_does(composite):
    """Also with bounds that do not ascend, and more candidates than a portion has."""
    rng = np.random.default_rng(5)
    indexes = OpenCLBISort(portion_rows=10_000), BISort()
    structures = [index.structure() for index in indexes]
    rows = 0
    for n in (50_000, 300, 20_000, 7):
        keys, equal = rng.integers(0, 30_000, n), rng.integers(0, 4, n) if composite else None
        for index, structure in zip(indexes, structures, strict=True):
            structure.insert(index.entries(equal, keys, None, n, ALONE), rows)
        rows += n
    structures[0].check_invariants()
    m = 3000
    lows, equal = rng.integers(-10, 30_000, m), rng.integers(0, 5, m) if composite else None
    highs = lows + rng.integers(-3, 100, m)
    for gone in (0, 30_000):
        answers = []
        for index, structure in zip(indexes, structures, strict=True):
            structure.forget(gone)
            asked = index.probes(equal, (lows,), (highs,), None, m, ALONE)
            pairs = np.concatenate([np.stack(one) for one in structure.find(asked, 0, asked.size, None)], axis=1)
            assert structure.count(asked, 0, asked.size, None) == pairs.shape[1]
            answers.append(pairs[:, np.lexsort(pairs)])
        assert answers[0].shape[1] > 20_000 and np.array_equal(*answers)


@NEEDS_DEVICE
def test_bounds_that_are_keys_moved_by_a_constant_are_made_on_the_device(monkeypatch):
    index = OpenCLBISort()
    machine = index.machine()
    launched, sent = [], []
    launch, upload = machine.launch, machine.upload
    monkeypatch.setattr(machine, "launch", lambda part, *given: (launched.append(part), launch(part, *given))[1])
    monkeypatch.setattr(machine, "upload", lambda *given: (sent.append(given), upload(*given))[1])
    keys = np.array([5, 3, 9])
    stored = index.entries(None, keys, None, 3, ALONE)
    assert len(sent) == 2
    index.probes(None, (keys - 1,), (keys + 2,), None, 3, ALONE, stored)
    assert launched == ["boundary_generator"] and len(sent) == 2
    index.probes(None, (keys - 1,), (keys + np.array([1, 1, 2]),), None, 3, ALONE, stored)
    assert launched == ["boundary_generator"] and len(sent) == 5


# -- what it says ------------------------------------------------------------------------------------------------------


@NEEDS_DEVICE
def test_a_window_that_outgrows_its_bytes_leaves_the_join_as_it_was():
    index = OpenCLBISort(most_bytes=2 * 12 * 40)
    with wm.StreamJoin("abs(l.x - r.x) <= 0", wm.last(1000), index=index, output="count") as join:
        few = pa.table({"x": list(range(30))})
        assert join.push(left=few, right=few) == 30
        assert "bounded by most_bytes: 40 tuples a window" in join.explain()
        with pytest.raises(DeviceFull, match="a window of 130 rows on the device needs"):
            join.push(left=pa.table({"x": list(range(100))}))
        join.check_invariants()
        assert join.push(right=pa.table({"x": [3, 4]})) == 2


@NEEDS_DEVICE
def test_a_window_that_can_never_fit_is_refused_before_anything_starts():
    with pytest.raises(DeviceFull, match=r"a window of 100,000,000,000,000 tuples takes at least .* which has"):
        wm.StreamJoin("l.x < r.x", wm.last(10**14), index=OpenCLBISort())


@NEEDS_DEVICE
def test_an_array_larger_than_the_device_gives_is_refused_with_the_sizes():
    machine = OpenCLBISort().machine()
    with pytest.raises(DeviceFull, match=r"a window: .* more are needed on the device, which has .* GiB in all, and"):
        machine.allocate(machine.most, np.int64, "a window")


@NEEDS_DEVICE
def test_a_device_is_chosen_by_its_names():
    machine = OpenCLBISort(platform="portable computing").machine()
    assert machine is OpenCLBISort().machine()
    with pytest.raises(NoDevice, match=r"OpenCL has no device with platform 'FPGA' and device_name 'Arria', only"):
        wm.StreamJoin("l.x = r.x", wm.last(5), index=OpenCLBISort(platform="FPGA", device_name="Arria"))


def test_missing_pyopencl_is_told_before_anything_starts(monkeypatch):
    opencl._found.cache_clear()
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(NoDevice, match=r"OpenCL needs pyopencl.* pip install 'watersmeet\[opencl\]', or leave out"):
        wm.StreamJoin("l.x = r.x", wm.last(5), index=OpenCLBISort())


def test_missing_devices_are_told_before_anything_starts(monkeypatch):
    opencl._found.cache_clear()
    monkeypatch.setattr(opencl, "_listed", lambda get: [])
    with pytest.raises(NoDevice, match=r"OpenCL finds no device here; pip install 'watersmeet\[opencl\]' brings one"):
        wm.StreamJoin("l.x = r.x", wm.last(5), index=OpenCLBISort())


def test_a_device_that_builds_no_program_is_passed_over_and_named_when_there_is_no_other(monkeypatch):
    class Device:
        def __init__(self, name):
            self.name = name

    class Platform:
        name = "Some Language"

        def get_devices(self):
            return [Device("too new"), Device("known")]

    pytest.importorskip("pyopencl")
    monkeypatch.setattr(opencl, "_listed", lambda get: [Platform()] if get.__name__ == "get_platforms" else get())
    refused = {"too new": "error: unknown target CPU 'generic'", "known": None}
    monkeypatch.setattr(opencl, "_cannot_build", lambda device: refused[device.name])
    assert opencl._found.__wrapped__(None, None).name == "known"
    with pytest.raises(
        NoDevice, match=r"cannot build programs for 'too new' of 'Some Language' \(error: unknown"
    ):
        opencl._found.__wrapped__(None, "new")


@NEEDS_DEVICE
def test_what_a_compiler_says_of_a_program_is_asked_of_the_device(monkeypatch):
    import pyopencl

    device = opencl._found(None, None)
    assert opencl._cannot_build(device) is None

    class Refused:
        def __init__(self, context, source):
            pass

        def build(self):
            raise pyopencl.RuntimeError("clBuildProgram failed\n\nerror: unknown target CPU 'generic'\n")

    monkeypatch.setattr(pyopencl, "Program", Refused)
    assert opencl._cannot_build(device) == "error: unknown target CPU 'generic'"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"buffer_rows": -1}, "buffer_rows must not be negative, got -1"),
        ({"partition_rows": 1}, "partition_rows must be at least 2, got 1"),
        ({"units": 0}, "units must be at least 1, got 0"),
        ({"platform": 3}, "platform must be text, got 3"),
    ],
)
def test_bad_parameters_are_refused(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        OpenCLBISort(**given)


@NEEDS_DEVICE
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"device": "gpu"}, "index OpenCLBISort.* is not one for device 'gpu'"),
        ({"route": "hash"}, "route 'hash' is not for device 'opencl'"),
        ({"on": "l.x % r.x = 1"}, "device 'opencl' needs an equality, band or inequality .* use index='auto'"),
    ],
)
def test_what_does_not_go_together_is_refused(given, message):
    schema = pa.schema({"x": pa.int64()})
    with pytest.raises(ValueError, match=message):
        wm.StreamJoin(
            **{"on": "l.x = r.x", "window": wm.last(5), "index": OpenCLBISort()} | given,
            left_schema=schema, right_schema=schema,
        )  # fmt: skip


def test_nothing_of_opencl_is_imported_before_it_is_asked_for():
    code = "import sys, watersmeet; watersmeet.index.OpenCLBISort(); sys.exit('pyopencl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
