"""Pairs of joins on the device, of large random streams, by checksum: against the CPU's and what the keys say."""

import pyarrow as pa
import pytest

from watersmeet.bench import gpu
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.gpu import exact as gpu_exact
from watersmeet.device.cuda import SIMULATED
from watersmeet.engine.join import StreamJoin

PAIRS, WINDOW, BATCH = (300, 24, 10) if SIMULATED else (1 << 27, 1 << 18, 1 << 16)
SIZES = gpu.Sizes(exact=PAIRS, exact_window=WINDOW, exact_batch=BATCH)
JOINS = {"band": (gpu_exact.BAND, 1), "equality": (gpu_exact.EQUALITY, 0)}


@pytest.mark.parametrize("what", JOINS)
def test_all_pairs_are_the_same_on_the_device_on_the_cpu_and_by_their_keys(what):
    bench = gpu.Gpu(SIZES, 2, False, lambda line: None)
    gpu_exact.compared(bench, what, *JOINS[what])
    (row,) = bench.results
    assert row["contender"] == "gpu, cpu, the keys"
    assert row["pairs"] >= PAIRS
    assert row["tuples"] > 2 * 2 * WINDOW  # windows were full, and went on


class Mistaken(StreamJoin):
    """On the device the last pair has another partner."""

    def __init__(self, *given, device, **options):
        super().__init__(*given, device=device, **options)
        self.wrong = device == "gpu"

    def push(self, *given):
        answer = super().push(*given)
        if not self.wrong or not answer.num_rows:
            return answer
        right = answer["right"].to_numpy().copy()
        right[-1] += 1
        return pa.table({"left": answer["left"], "right": right})


def test_a_pair_that_is_wrong_on_the_device_alone_is_missed():
    bench = gpu.Gpu(SIZES, 2, False, lambda line: None)
    with pytest.raises(AnswersDiffer, match=r"band, push \d on the gpu: "):
        gpu_exact.compared(bench, "band", gpu_exact.BAND, 1, join_of=Mistaken)
