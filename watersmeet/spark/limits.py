"""How large things may get."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """In bytes, about."""

    step: int = 256 << 20  # of one kind that a step of the engine takes in; an Arrow array ends at 2 GiB of text
    chunk: int = 32 << 20  # a value in the state store
    small: int = 1 << 20  # below this, chunks are joined with their neighbours when their runs are merged


LIMITS = Limits()
