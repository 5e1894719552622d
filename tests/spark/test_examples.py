"""The scripts in examples/ run, and show what they say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_trades_and_quotes(spark, capsys):
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        runpy.run_path(str(EXAMPLES / "trades_and_quotes.py"), run_name="__main__")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    before, _, after = capsys.readouterr().out.partition("after: the matches")
    assert "|3       |2026-01-05 14:30:01.4 |AAPL  |187.31|50      |" in before
    assert "route: hash over 2 cores" in before
    rows = [line.strip("|").split("|") for line in after.splitlines() if line.startswith("|")]
    assert [(row[0].strip(), row[5].strip()) for row in rows[1:]] == [("1", "1"), ("1", "3"), ("2", "4"), ("4", "5")]


@pytest.mark.long
def test_three_streams(spark, capsys):
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        runpy.run_path(str(EXAMPLES / "three_streams.py"), run_name="__main__")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    printed = capsys.readouterr().out
    assert "|2026-01-05 14:30:00|1    |" in printed
    assert "|2026-01-05 14:31:00|1    |" in printed
