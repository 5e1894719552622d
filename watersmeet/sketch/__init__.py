"""Sketches of streams: how often a key comes, in little memory."""

from watersmeet.sketch.asketch import ASketch

__all__ = ["ASketch"]
