"""Benchmarks: seeded workloads, the peers they are run against, runners that write JSON, and its report."""
