"""Which kind of stream join suits a query, its data and the hardware: the study's guideline as a function.

    >>> advise(distinct_keys=1000, early_results=True)
    Advice(device='gpu', algorithm='hash', progress='eager', parallel='intra', results='none')

Section 5.1, figure 19, with what we measured put in where it says otherwise (docs/gpu.md).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from watersmeet.parameters import one_of, whole

#: Bytes of a window, a side, from which on a GPU needs less energy.
LARGE_WINDOW = 4 << 20
#: Bytes of a batch below which the launches that it takes on a GPU cost more than its work.
SMALL_BATCH = 32 << 10
#: Zipf exponents from which on keys count as skewed.
SKEWED = 0.6
#: Keys of a window that differ, up to which a hash table stays in a GPU's caches.
FEW_KEYS = 1 << 20

Objective = Literal["throughput", "energy"]


class Advice(NamedTuple):
    """A kind of stream join, in the words of `watersmeet bench gpu`."""

    device: str
    algorithm: str
    progress: str
    parallel: str
    results: str

    def __str__(self) -> str:
        return (
            f"{self.algorithm.replace('_', '-')} join on the {self.device}, {self.progress}, {self.parallel}-window, "
            f"results: {self.results.replace('_', ' ')}"
        )


def advise(
    *,
    equality: bool = True,
    early_results: bool = False,
    pairs: bool = False,
    distinct_keys: int | None = None,
    zipf: float = 0.0,
    window_bytes: int = 1 << 20,
    batch_bytes: int = 128 << 10,
    gpu: bool = True,
    objective: Objective = "throughput",
) -> Advice:
    """The kind of join to use.

    equality: whether keys must be equal; else a range of keys must be looked up.
    early_results: results are wanted before a window is complete.
    pairs: results are made, not only counted.
    distinct_keys, zipf: how many keys differ in a window, if that is known, and how skewed they are.
    window_bytes, batch_bytes: of one side.
    gpu: whether there is one. objective: "throughput", or "energy".
    """
    one_of("objective", objective, ("throughput", "energy"))
    if zipf < 0:
        raise ValueError(f"zipf must not be negative, got {zipf}")
    whole("window_bytes", window_bytes)
    whole("batch_bytes", batch_bytes)
    if distinct_keys is not None:
        whole("distinct_keys", distinct_keys)
    small = early_results and min(batch_bytes, window_bytes) < SMALL_BATCH
    device = "gpu" if gpu and not small and (objective == "throughput" or window_bytes >= LARGE_WINDOW) else "cpu"
    few = distinct_keys is None or distinct_keys <= FEW_KEYS
    if not equality:
        algorithm = "sort_merge"  # ranges need an order
    elif pairs:
        algorithm = "hash" if few and zipf < SKEWED else "sort_merge"  # with many partners their order spares memory
    else:
        algorithm = "hash" if few else "sort_merge"  # counted by key, skew costs nothing
    progress = "eager" if early_results else "lazy"
    # The study has all threads of a CPU at one large window; ours do better each at its own, up to 16 MB at least.
    parallel = "intra" if early_results else "inter"
    return Advice(device, algorithm, progress, parallel, "count_kernel" if pairs else "none")
