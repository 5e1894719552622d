"""The order of results.

    none     as they are found
    outer    results of an earlier tuple before those of a later one
    inner    and of one tuple, those with its oldest partner first
    punctuate(every=n)   results of the first n tuples of a stream before those of the next n, and so on

The tuple that a result belongs to is the later of the two, the one that completed it; of two that came in one push the
right one. Tuples come in the order of pushes, and within a push left before right. Rows that come out alone, because no
partner can come any more, follow the others of their push: left before right, in the order in which they came.

Pairs are sorted by words of the tuple's row and its partner's position, of which only the first counts where the order
is outer: two passes for a batch of a million rows, and nothing else has to be moved (index/sorting.py).

Reference: SplitJoin, section 5.1 (outer and inner order, relaxed punctuation); cores/collect.py has its star marks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numba import njit, uint64

from watersmeet.index.sorting import digits, sort_words
from watersmeet.memory import room
from watersmeet.parameters import one_of, whole

Array = np.ndarray
OrderName = Literal["none", "outer", "inner"]
ORDERS = ("none", "outer", "inner")


@dataclass(frozen=True)
class Punctuated:
    """Relaxed order: in groups of so many tuples."""

    every: int

    def __repr__(self) -> str:
        return f"punctuate(every={self.every})"


Order = OrderName | Punctuated


def punctuate(every: Any) -> Punctuated:
    """For `order=`: results of the first `every` tuples before those of the next, in any order among themselves."""
    return Punctuated(whole("every", every))


def check_order(order: Any) -> None:
    if not isinstance(order, Punctuated):
        one_of("order", order, ORDERS, " or punctuate(every=n)")


def needs_sorting(order: Order, first: int, last: int) -> bool:
    """Whether results of the tuples from one position to another have to be put in order."""
    if isinstance(order, Punctuated):
        return first // order.every != last // order.every
    return order != "none"


@njit(nogil=True, cache=True)
def _pack(rows, partners, shift, bits, words):
    """(row, partner's position less the least one)."""
    for i in range(rows.size):
        words[i] = (uint64(rows[i]) << bits) | (uint64(partners[i]) + shift)


@njit(nogil=True, cache=True)
def _unpack(words, bits, first, low, own, stored):
    mask = (uint64(1) << bits) - uint64(1)
    for i in range(words.size):
        own[i] = np.int64(words[i] >> bits) + first
        stored[i] = np.int64(words[i] & mask) + low


def in_order(
    order: Order, pieces: list[tuple[int, Array, Array]], first: int, rows: int
) -> tuple[Array, Array]:
    """Positions of tuples and of their partners, in order.

    pieces: (position of row 0 where the partners are, rows of the batch, rows there). The batch has `rows` rows, the
    first of them at position `first`.
    """
    total = sum(piece[1].size for piece in pieces)
    own, stored = room(total, np.int64), room(total, np.int64)
    if not total:
        return own, stored
    low = min(base for base, _, _ in pieces)
    high = max(base + int(partners.max()) for base, _, partners in pieces if partners.size)
    bits, row_bits = max((high - low).bit_length(), 1), max((rows - 1).bit_length(), 1)
    words, spare = room(total, np.uint64), room(total, np.uint64)
    at = 0
    for base, of_batch, partners in pieces:
        _pack(of_batch, partners, np.uint64(base - low), np.uint64(bits), words[at : at + of_batch.size])
        at += of_batch.size
    if order == "inner":
        words = sort_words(words, spare, 0, *digits(bits + row_bits, total))
    else:
        words = sort_words(words, spare, bits, *digits(row_bits, total))
    _unpack(words, np.uint64(bits), first, low, own, stored)
    return own, stored


def by_completion(fresh: Array, own: Array, stored: Array) -> tuple[Array, Array]:
    """Positions of tuples that have found their first partner, in the order in which these partners come, and theirs.

    own, stored: of all pairs, in order; the tuples are among the stored. O(pairs log pairs).
    """
    positions, firsts = np.unique(stored, return_index=True)
    completed = firsts[np.searchsorted(positions, fresh)]
    order = np.argsort(completed, kind="stable")
    return fresh[order], own[completed[order]]
