"""The command of a benchmark where nothing but the engine is installed: plain lines out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.frame import check_strict


def command_line(
    name: str,
    about: str,
    parts: Collection[str],
    size: tuple[str, str],
    run: Callable[..., dict[str, Any]],
    is_small: Callable[[int | None], bool],
    arguments: Sequence[str] | None,
) -> int:
    """`python -m watersmeet.bench.<name>`; gives the exit code.

    size: the option that says how much of it, and its help. is_small: whether that is less than all.
    """
    option, size_help = size
    parser = argparse.ArgumentParser(prog=f"python -m watersmeet.bench.{name}", description=about)
    parser.add_argument("--out", type=Path, help="store the results in this JSON file")
    parser.add_argument("--only", action="append", choices=list(parts), help="run only this part; may be repeated")
    parser.add_argument("--rounds", type=int, help="times each measurement is repeated")
    parser.add_argument(option, dest="size", type=int, help=size_help)
    parser.add_argument("--quick", action="store_true", help="small sizes, for a first look")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a target is missed")
    given = parser.parse_args(arguments)
    try:
        if given.strict:
            check_strict(given.quick or is_small(given.size))
        results = run(given.quick, given.only, given.out, given.rounds, given.size)
    except ValueError as error:
        parser.error(str(error))
    except AnswersDiffer as error:
        print(f"wrong answers: {error}", file=sys.stderr)
        return 1
    from watersmeet.bench.report import missed, plain

    print(plain(results))
    return 1 if given.strict and missed(results) else 0
