"""The fuzzer of `make fuzz` works, and finds what is planted."""

import fuzz
import pytest

from watersmeet.engine.core import JoinCore


def test_a_round_of_random_joins_has_no_finding():
    done = fuzz.play(1, joins=20)
    assert done["joins"] >= 20


def test_a_fault_is_found(monkeypatch):
    monkeypatch.setattr(JoinCore, "_settle", lambda *_: None)  # nobody hears that a partner was found
    with pytest.raises(AssertionError):
        fuzz.play(1, joins=200, shrink=False)
