"""`python -m watersmeet.bench embedded [--quick]`: the benchmarks without the command line package.

`python -m watersmeet.bench report FILE` shows the results that a run stored.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from watersmeet.bench import embedded, report
from watersmeet.bench.checksum import AnswersDiffer


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m watersmeet.bench", description="Measure joins on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("embedded", help="the embedded engine against sorting, a nested loop and others")
    runs.add_argument("--quick", action="store_true", help="small sizes, for a first look")
    runs.add_argument("--only", action="append", choices=embedded.PARTS, help="run only this part; may be repeated")
    runs.add_argument("--rounds", type=int, help="times each measurement is repeated")
    runs.add_argument("--out", type=Path, help="write the results to this JSON file")
    shows = commands.add_parser("report", help="show the results that a run stored")
    shows.add_argument("file", type=Path)
    for command in (runs, shows):
        command.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    options = parser.parse_args(arguments)
    try:
        if options.command == "report":
            results = report.load(options.file)
        else:
            results = embedded.run(options.quick, options.only, options.out, options.rounds)
    except AnswersDiffer as error:
        print(f"WRONG ANSWERS: {error}", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(report.markdown(results) if options.markdown else report.text(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
