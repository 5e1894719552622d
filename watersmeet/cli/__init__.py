"""The `watersmeet` command: demo, warm, pack, run, feed, explain, bench, report.

What only one command needs (DuckDB, the demo, the benchmarks) is imported inside of it, so that `watersmeet --help`
waits for nothing but the package itself. What a user can get wrong ends in one message on standard error and exit
code 2.
"""

from watersmeet.cli import joins, explain, bench  # noqa: I001  --help lists commands in this order
from watersmeet.cli.app import app

__all__ = ["app", "bench", "explain", "joins", "main"]


def main() -> None:
    """Entry point of the `watersmeet` script."""
    app(prog_name="watersmeet")
