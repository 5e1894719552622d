"""Aggregates over the partners of each tuple, without making pairs."""
