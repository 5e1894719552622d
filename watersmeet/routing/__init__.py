"""Which core stores a tuple, and which cores it probes."""

from watersmeet.routing.base import Places, Route
from watersmeet.routing.broadcast import Broadcast
from watersmeet.routing.cells import Cells
from watersmeet.routing.hash import Hashed
from watersmeet.routing.hot_cold import HotCold
from watersmeet.routing.single import Single
from watersmeet.routing.split import Split
from watersmeet.routing.spread import Spread

__all__ = ["Broadcast", "Cells", "Hashed", "HotCold", "Places", "Route", "Single", "Split", "Spread"]
