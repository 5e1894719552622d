"""Streams that have been running for long: positions count every tuple there ever was, and outgrow 32 bits."""

from contextlib import contextmanager

import pytest
from harness import answer, apply, check_timing, make_join, positions
from hypothesis import given
from hypothesis import strategies as st
from strategies import HOWS, WINDOW_KINDS, capacities, scenarios

from watersmeet.engine.arrivals import Clock
from watersmeet.engine.core import JoinCore

STARTS = {"2^31": 1 << 31, "2^40": 1 << 40}


@contextmanager
def streams_begin_at(first):
    """Joins made meanwhile have had so many tuples of each stream before."""
    make_core, make_clock = JoinCore.__init__, Clock.__post_init__

    def core(self, *args, **options):
        make_core(self, *args, first=first, **options)

    def clock(self):
        make_clock(self)
        if not any(self.counts.values()):
            self.counts = {"left": first, "right": first}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JoinCore, "__init__", core)
        patch.setattr(Clock, "__post_init__", clock)
        yield


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("output", ["pairs", "rows", "count"])
@pytest.mark.parametrize("kind", WINDOW_KINDS)
@given(data=st.data())
def test_positions_beyond_32_bits_are_found(start, kind, output, data):
    scenario = data.draw(scenarios(kind=kind, how=data.draw(st.sampled_from(HOWS))))
    options = data.draw(capacities(data.draw(st.sampled_from(scenario.predicate.indexes))))
    with streams_begin_at(STARTS[start]), make_join(scenario, output=output, **options) as join:
        returned = [apply(join, scenario, step) for step in scenario.steps]
    expected = answer(scenario)
    if output == "count":
        assert sum(returned) == len(expected.results)
        return
    less = STARTS[start] if output == "pairs" else 0
    found = []
    for one in returned:
        pairs = positions(scenario, output, one).items()
        found.append({tuple(None if p is None else p - less for p in pair): n for pair, n in pairs})
    check_timing(expected, found)
