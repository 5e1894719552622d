"""Watersmeet joins two unbounded streams over a sliding window on any predicate."""

import watersmeet.machine_code  # noqa: F401  (before the first kernel)

# isort: split
from watersmeet import device, index, sketch
from watersmeet.engine.join import StreamJoin
from watersmeet.engine.metrics import Metrics
from watersmeet.engine.order import punctuate
from watersmeet.query.windows import hopping, last, tumbling, within
from watersmeet.routing.sta import STA

__version__ = "0.1.0"

__all__ = [
    "STA", "Metrics", "StreamJoin", "__version__", "device", "hopping", "index", "last", "punctuate", "sketch",
    "tumbling", "within",
]  # fmt: skip
