"""How a join would run: `watersmeet explain`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from watersmeet.cli.app import app, user_errors
from watersmeet.engine.choose import NAMES as INDEX_NAMES

if TYPE_CHECKING:
    import pyarrow as pa

    from watersmeet.query.expr import Expr


@app.command()
def explain(
    predicate: Annotated[str, typer.Argument(help="SQL over the columns of l and r, the two streams.")],
    left: Annotated[str, typer.Option(help='Columns of the left stream: "name:type, ...".')] = "",
    right: Annotated[str, typer.Option(help='Columns of the right stream: "name:type, ...".')] = "",
    window: Annotated[
        str,
        typer.Option(
            help='"within 10 seconds", "within 0, 1 hour", "last 1000", "tumbling 1 minute" '
            'or "hopping 1 hour, 5 minutes".'
        ),
    ] = "within 10 seconds",
    time: Annotated[str, typer.Option(help='Time column of both streams, or of each: "ts, seen_at".')] = "ts",
    lateness: Annotated[str, typer.Option(help='How far behind a row may come: "2 seconds".')] = "0",
    how: Annotated[str, typer.Option(help="inner, left, right, full, semi or anti.")] = "inner",
    index: Annotated[str, typer.Option(help=f"One of {', '.join(INDEX_NAMES)}.")] = "auto",
) -> None:
    """Show how a join would run: the terms of its predicate, its window, its index.

    Types are Arrow's (int64, double, string, bool, timestamp, ...) and decimal(10,2). A column that is
    not declared is taken for a double, the time column for a timestamp (or an int64 where the window is in
    whole numbers).

    Examples:

    `watersmeet explain "abs(l.price - r.price) <= 0.05"`

    `watersmeet explain "l.id = r.id and l.x < r.x" --left "id:string" --right "id:string" --how left`
    """
    from watersmeet import StreamJoin
    from watersmeet.query.parse import parse

    with user_errors():
        times = parse_names(time)
        declared = parse_columns(left, "--left"), parse_columns(right, "--right")
        spec, time_type = parse_window(window, times, lateness)
        schemas, assumed = complete_schemas(parse(predicate), declared, times, time_type)
        given: dict[str, Any] = {"how": how, "index": index}  # texts, which StreamJoin checks
        join: Any = StreamJoin(predicate, spec, left_schema=schemas[0], right_schema=schemas[1], **given)
    if assumed:
        typer.echo(f"assumed: {', '.join(assumed)} (declare columns with --left and --right)")
    typer.echo(join.explain())


def parse_names(text: str) -> tuple[str, str]:
    """ "ts" or "ts, seen_at": the time column of each stream."""
    names = [name.strip() for name in text.split(",")]
    if len(names) > 2 or not all(names):
        raise ValueError(f'--time must be one column or two, as in "ts" or "ts, seen_at", not {text!r}')
    return names[0], names[-1]


def parse_window(text: str, times: tuple[str, str], lateness: str) -> tuple[Any, pa.DataType | None]:
    """A window such as "within 10 seconds", and the type of the times that it suits, if it has any."""
    import pyarrow as pa

    from watersmeet.query.window_text import counts_whole_numbers, window_of

    whole = counts_whole_numbers(text, "--window")
    time_type = None if whole is None else pa.int64() if whole else pa.timestamp("us")
    return window_of(text, times, lateness, "--window"), time_type


def parse_columns(text: str, option: str) -> dict[str, pa.DataType]:
    """Columns declared as "name:type, name:type"."""
    columns = {}
    for part in re.split(r",(?![^(\[]*[)\]])", text):  # not the commas inside decimal(10,2)
        if part.strip():
            name, colon, kind = (piece.strip() for piece in part.partition(":"))
            if not name or not colon or not kind:
                raise ValueError(f'{option} must read "name:type, name:type", not {part.strip()!r}')
            columns[name] = parse_type(kind, option)
    return columns


def parse_type(text: str, option: str) -> pa.DataType:
    """An Arrow type by its name, and a few that have no name of their own there."""
    import pyarrow as pa

    if decimal := re.fullmatch(r"decimal(?:128)?\s*\(\s*(\d+)\s*,\s*(-?\d+)\s*\)", text):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if zoned := re.fullmatch(r"timestamp\[\s*(s|ms|us|ns)\s*,\s*(?:tz=)?\s*([^\]]+?)\s*\]", text):
        return pa.timestamp(zoned[1], zoned[2])
    short = {"date": "date32", "time": "time64[us]", "timestamp": "timestamp[us]", "duration": "duration[us]"}
    try:
        return pa.type_for_alias(short.get(text, text))
    except ValueError:
        raise ValueError(
            f"{option}: no type {text!r}; use an Arrow type (int64, double, string, bool, timestamp, ...)"
            " or decimal(10,2)"
        ) from None


def complete_schemas(
    expression: Expr,
    declared: tuple[dict[str, pa.DataType], ...],
    times: tuple[str, str],
    time_type: pa.DataType | None,
) -> tuple[tuple[pa.Schema, ...], list[str]]:
    """The schemas of both streams with what is assumed of columns not declared, and those assumptions."""
    import pyarrow as pa

    from watersmeet.query.expr import Column, walk

    wanted = [] if time_type is None else [(side, name, time_type) for side, name in zip("lr", times)]
    wanted += [(part.side, part.name, pa.float64()) for part in walk(expression) if isinstance(part, Column)]
    columns = {side: dict(types) for side, types in zip("lr", declared)}
    assumed = []
    for side, name, kind in wanted:
        if side and name not in columns[side]:  # a name without l or r belongs to the stream that declares it
            columns[side][name] = kind
            assumed.append(f"{side}.{name} {kind}")
    return tuple(pa.schema(list(types.items())) for types in columns.values()), assumed
