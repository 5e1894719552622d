"""Watersmeet joins two unbounded streams over a sliding window on any predicate."""

from watersmeet import index
from watersmeet.engine.join import StreamJoin
from watersmeet.engine.metrics import Metrics
from watersmeet.engine.order import punctuate
from watersmeet.query.windows import hopping, last, tumbling, within

__version__ = "0.1.0"

__all__ = ["Metrics", "StreamJoin", "__version__", "hopping", "index", "last", "punctuate", "tumbling", "within"]
