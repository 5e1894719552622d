"""The space of stream joins: algorithm, progressiveness, parallelisation, results, device."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from typing import Any, Literal

from watersmeet.parameters import one_of

Algorithm = Literal["nested_loop", "hash", "sort_merge"]
Progress = Literal["lazy", "eager"]
Parallel = Literal["intra", "inter", "hybrid"]
Results = Literal["none", "count_kernel", "atomic", "estimated"]
Device = Literal["cpu", "gpu"]
Travels = Literal["tuples", "keys"]

CHOICES: dict[str, tuple[str, ...]] = {
    "algorithm": ("nested_loop", "hash", "sort_merge"),
    "progress": ("lazy", "eager"),
    "parallel": ("intra", "inter", "hybrid"),
    "results": ("none", "count_kernel", "atomic", "estimated"),
    "device": ("cpu", "gpu"),
    "travels": ("tuples", "keys"),
}


@dataclass(frozen=True)
class Variant:
    """A stream join.

    progress: lazy joins a window when it is complete; eager joins each batch with what came before it, always intra: it
        is done with a window before the first batch of the next one comes (section 4.3).
    parallel: intra: all threads at one window; inter: many windows at a time, each by one thread (on a GPU: many in one
        launch, and copies beside kernels); hybrid: some windows at a time, each by some threads (on a GPU: each by a
        launch of its own, some of them at a time).
    results: none: counted; count_kernel: counted, then written to a place of that size; atomic: written one by one,
        each to the next place; estimated: written to a place of the size that is expected.
    travels: to a GPU: whole tuples, or their keys alone.
    """

    algorithm: Algorithm = "hash"
    progress: Progress = "lazy"
    parallel: Parallel = "inter"
    results: Results = "none"
    device: Device = "gpu"
    travels: Travels = "tuples"

    def __post_init__(self) -> None:
        for field in fields(self):
            one_of(field.name, getattr(self, field.name), CHOICES[field.name])
        if self.progress == "eager" and self.parallel != "intra":
            raise ValueError(
                f"parallel must be intra where progress is eager, got {self.parallel!r}: batches come in order, so one "
                "window is open at a time, and there is no other to work at beside it"
            )

    @property
    def name(self) -> str:
        """As tables show it."""
        return f"{self.device.upper()} {self.algorithm.replace('_', ' ')}"

    def __str__(self) -> str:
        keys = ", keys only" if self.travels == "keys" else ""
        return f"{self.name}, {self.progress}, {self.parallel}, results: {self.results.replace('_', ' ')}{keys}"


def variants(device: Device, travels: Travels = "tuples") -> list[Variant]:
    """All that there are on a device: 48, for eager has one of the three kinds of parallelism."""
    names = ("algorithm", "progress", "parallel", "results")
    every = itertools.product(*(CHOICES[name] for name in names))
    chosen: list[dict[str, Any]] = [dict(zip(names, one, strict=True)) for one in every]
    allowed = [one for one in chosen if one["progress"] == "lazy" or one["parallel"] == "intra"]
    return [Variant(**one, device=device, travels=travels) for one in allowed]


#: Well-known systems as points of this space (section 4.6, table 8). HELLS-join writes a bitmap of all pairs, for which
#: the nearest here is counting first.
SYSTEMS = {
    "HELLS-join": Variant("nested_loop", "eager", "intra", "count_kernel"),
    "SABER": Variant("nested_loop", "lazy", "intra", "count_kernel"),
    "FineStream": Variant("nested_loop", "lazy", "intra", "count_kernel"),
    "EcoJoin": Variant("hash", "eager", "intra", "none"),
    "EPHSA": Variant("hash", "eager", "intra", "atomic"),
}
