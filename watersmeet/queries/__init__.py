"""Seven joins of skewed streams, by name: what they ask, streams as their data are, and readers of the real files."""

from watersmeet.queries.query import QUERIES, Query, query

__all__ = ["QUERIES", "Query", "query"]
