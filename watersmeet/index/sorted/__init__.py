"""Sorted runs: BI-Sort, and what merges them."""
