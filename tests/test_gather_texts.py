"""Texts gathered from many chunks are Arrow's own `take`, whatever their lengths and wherever they begin."""

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.window.gather import ColumnKind


@pytest.mark.parametrize("type_", [pa.string(), pa.binary(), pa.large_string()], ids=str)
@pytest.mark.parametrize("most", [1, 7, 8, 9, 40])
def test_texts_of_any_length_are_gathered_as_arrow_takes_them(type_, most):
    rng = np.random.default_rng(most)
    chunks = []
    for number in range(3):
        lengths = rng.integers(0, most + 1, 50)
        texts = ["".join(chr(97 + c) for c in rng.integers(0, 26, length)) for length in lengths]
        texts = [None if number == 1 and n % 7 == 0 else text for n, text in enumerate(texts)]
        whole = pa.array(texts, pa.string()).cast(type_)
        chunks.append(whole.slice(number * 3))  # a slice begins within its buffers
    kind = ColumnKind(type_)
    where = np.array([kind.addresses(chunk) for chunk in chunks]).T.copy()
    for rows in (0, 1, 5, 200):  # fewer and more than are asked for ahead
        chunk = rng.integers(0, 3, rows)
        row = np.array([rng.integers(0, len(chunks[c])) for c in chunk], np.int64)
        found = kind.gather(where, chunk.astype(np.int64), row, True)
        found.validate(full=True)
        assert found.to_pylist() == [chunks[c][int(r)].as_py() for c, r in zip(chunk, row, strict=True)]
